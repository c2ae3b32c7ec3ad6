"""The poller: claims due rows of one task table, works on them side by side, and settles them in batches."""

import asyncio
import time
from collections import deque
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

import structlog
from sqlalchemy import Connection
from sqlalchemy.exc import DataError, IntegrityError, SQLAlchemyError

from app.loop import Loop
from app.observability import metrics
from app.observability.traces import trace_of
from app.settings import TaskSettings
from app.settings.tasks import LEASE_MARGIN
from app.tasks.queue import Claim, TaskQueue
from app.tasks.settlement import Settlement, settle
from app.tasks.task import ACTIVE, GivenUp, NotMade, NotYet, Outcome, Sent, Task

log = structlog.get_logger()


class Work(Protocol):
    """What the rows of a table are about."""

    async def attempt(self, task: Task, budget: float) -> Outcome:
        """Make one attempt within `budget` seconds."""

    def exhausted(self, task: Task, reason: str) -> GivenUp:
        """Say what it means that the last allowed attempt did not decide."""

    def apply(self, conn: Connection, settlements: list[Settlement]) -> None:
        """Apply the effects of settled rows, in the transaction that settles them."""


class Poller:
    """Works through one queue with at most `slots` attempts at a time. Rows are held in memory only under lease.

    It claims ahead by its pace, the attempts that end while a claim is under way: by none while they take their time.
    """

    def __init__(self, queue: TaskQueue, work: Work, rules: TaskSettings, *, slots: int, stalled_after: float) -> None:
        self.queue, self._work, self._rules, self._slots = queue, work, rules, slots
        self.claiming = Loop(f"{queue.table} claim", self._claim_loop, stalled_after=stalled_after)
        self.settling = Loop(f"{queue.table} settle", self._settle_loop, stalled_after=stalled_after)
        self._waiting: deque[tuple[Task, float]] = deque()
        self._pace = self._ended = 0
        self._claimed_at = self._claim_took = 0.0
        self._attempts: set[asyncio.Task[Outcome]] = set()
        self._finished: list[tuple[Settlement, float]] = []
        self._settling_now = 0
        self._alone: set[asyncio.Task[None]] = set()
        self._waits_for_room = False

    def start(self) -> None:
        self.settling.start()
        self.claiming.start()

    def stop_claiming(self) -> None:
        """Claim nothing from now on; what has begun is brought to its end, what waits is given back."""
        self.claiming.stop()
        self._begin()

    async def drain(self, within: float) -> None:
        """Let attempts under way end; those still running after `within` seconds are cut and their rows given back."""
        self.stop_claiming()
        until = time.monotonic() + within
        await self.claiming.stopped(within)
        with suppress(SQLAlchemyError, OSError):
            async with asyncio.timeout(LEASE_MARGIN):
                await self.queue.give_back()
        await _ended(self._attempts, max(until - time.monotonic(), 0))
        await self.settling.stopped(LEASE_MARGIN)
        await _ended(self._alone, LEASE_MARGIN)

    @property
    def in_flight(self) -> int:
        return len(self._attempts)

    def _room(self) -> int:
        """How many rows to claim; those that wait to be settled take room too: a stuck settle stops the claiming."""
        held = len(self._attempts) + len(self._waiting)
        if held >= self._slots + self._pace:
            return 0
        unsettled = len(self._finished) + self._settling_now + len(self._alone)
        batch = self._rules.batch
        return min(batch, self._slots + 2 * self._pace - held, self._slots + batch - held - unsettled)

    async def _claim_loop(self, loop: Loop) -> None:
        while not loop.stopping:
            loop.beat()
            loop.listen()
            wanted = self._room()
            self._waits_for_room = wanted <= 0
            pause = self._rules.poll_interval
            if not self._waits_for_room:
                claim = await self._claim(wanted)
                if len(claim.tasks) == wanted:
                    continue
                if claim.next_due is not None:
                    pause = min(pause, claim.next_due)
            await loop.rest(pause)

    async def _claim(self, wanted: int) -> Claim:
        began, until = time.monotonic(), self._lease_ends()
        self._pace = min(round(self._ended * self._claim_took / (began - self._claimed_at)), self._slots)
        self._claimed_at, self._ended = began, 0
        claim = await self.queue.claim(wanted, self._rules.lease)
        self._claim_took = time.monotonic() - began
        self._waiting.extend((task, until) for task in claim.tasks)
        self._begin()
        return claim

    def _begin(self) -> None:
        """Begin as many attempts as there are slots; from the stop signal on none, and what waits is given back."""
        while self._waiting and (self.claiming.stopping or len(self._attempts) < self._slots):
            task, until = self._waiting.popleft()
            if self.claiming.stopping:
                self._finish(task, NotMade("stopping: the service is about to end"), until)
                continue
            attempt = asyncio.create_task(self._attempt(task, until), name=f"{self.queue.table} {task.task_id}")
            self._attempts.add(attempt)
            attempt.add_done_callback(partial(self._attempted, task, until))

    def _attempted(self, task: Task, until: float, attempt: asyncio.Task[Outcome]) -> None:
        self._attempts.discard(attempt)
        if attempt.cancelled():
            outcome: Outcome = NotMade("stopping: the attempt was cut short")
        elif error := attempt.exception():
            log.error("attempt failed in our own code", **self._names(task), exc_info=error)
            outcome = NotYet(f"bug: {type(error).__name__} in our own code")
        else:
            outcome = attempt.result()
        self._ended += not isinstance(outcome, Sent)  # what was sent is asked about next, without a claim
        self._finish(task, outcome, until)
        self._begin()

    async def _attempt(self, task: Task, until: float) -> Outcome:
        if task.attempt > self._rules.max_attempts:
            return self._work.exhausted(
                task, f"lost: no report came back from the last of {self._rules.max_attempts} attempts"
            )
        budget = until - time.monotonic()
        if 2 * budget < self._rules.lease - LEASE_MARGIN:
            return NotMade("lease: half of it had passed before the attempt could begin")
        return await self._work.attempt(task, budget)

    def _finish(self, task: Task, outcome: Outcome, until: float) -> None:
        if isinstance(outcome, NotYet) and task.attempt >= self._rules.max_attempts:
            outcome = self._work.exhausted(task, outcome.reason)
        self._finished.append((settle(task, outcome, self._rules), until))
        self.settling.ring()
        if self._waits_for_room and self._room() > 0:
            self.claiming.ring()

    async def _settle_loop(self, loop: Loop) -> None:
        while self._finished or self._alone or not loop.stopping:
            loop.beat()
            loop.listen()
            if not self._finished:
                await loop.rest(self._rules.poll_interval)
                continue
            batch, self._finished = self._finished, []
            self._settling_now = len(batch)
            try:
                await self._settle(batch)
            except asyncio.CancelledError:
                self._finished = batch + self._finished
                raise
            finally:
                self._settling_now = 0
            due_soon = any(s.status in ACTIVE and s.delay < self._rules.poll_interval for s, _ in batch)
            if due_soon or (self._waits_for_room and self._room() > 0):
                self.claiming.ring()

    async def _settle(self, batch: list[tuple[Settlement, float]]) -> None:
        """Settle a batch in one transaction; if it fails, every row alone, so that a bad one holds up no other."""
        try:
            await self._settle_now(batch)
        except Exception as error:  # noqa: BLE001 - whatever it was, each row gets its own chance and its own log line
            log.warning("settle failed, going row by row", table=self.queue.table, rows=len(batch), error=repr(error))
            for settlement, until in batch:
                alone = asyncio.create_task(self._settle_alone(settlement, until))
                self._alone.add(alone)
                alone.add_done_callback(self._settled_alone)

    async def _settle_now(self, batch: list[tuple[Settlement, float]]) -> None:
        """Settle, and go on with the rows that stay under lease.

        One whose lease does not hold, though its time is not over, may have been settled by an earlier try that was not
        answered; nobody else can have claimed it yet, so it goes on as well and the fence will tell.
        """
        ends = self._lease_ends()
        held = await self.queue.settle([settlement for settlement, _ in batch], self._work.apply)
        for settlement, until in batch:
            kept = settlement.task.under in held
            self._count(settlement, held=kept)
            if (task := settlement.going_on) and (kept or time.monotonic() < until):
                self._waiting.append((task, ends if kept else until))
        self._begin()

    async def _settle_alone(self, settlement: Settlement, until: float) -> None:
        """Settle one row, again and again while the database cannot do it and the lease lasts."""
        pause = 0.05
        while True:
            try:
                await self._settle_now([(settlement, until)])
            except (SQLAlchemyError, OSError, TimeoutError) as error:
                if isinstance(error, (DataError, IntegrityError)):
                    return await self._fail_visibly(settlement, error)
                if time.monotonic() + pause > until + LEASE_MARGIN or self.settling.stopping:
                    log.exception("settle given up, the row falls due again", **self._names(settlement.task))
                    return None
                await asyncio.sleep(pause)
                pause = min(pause * 2, 1.0)
            except Exception as error:  # noqa: BLE001 - logged with its traceback below
                return await self._fail_visibly(settlement, error)
            else:
                return None

    def _settled_alone(self, alone: asyncio.Task[None]) -> None:
        self._alone.discard(alone)
        self.claiming.ring()
        self.settling.ring()

    async def _fail_visibly(self, settlement: Settlement, error: Exception) -> None:
        """The row's own effect cannot be applied: that is our bug. Fail the step, at the least the row, visibly."""
        log.error("effect cannot be applied", exc_info=error, **self._names(settlement.task))
        reason = f"bug: its result cannot be applied: {error!r}"
        for outcome in (self._work.exhausted(settlement.task, reason), GivenUp(reason)):
            failed = settle(settlement.task, outcome, self._rules)
            try:
                held = await self.queue.settle([failed], self._work.apply)
            except Exception:
                log.exception("failing the step failed as well", **self._names(settlement.task))
            else:
                self._count(failed, held=failed.task.under in held)
                return

    def _count(self, settlement: Settlement, *, held: bool) -> None:
        if not held:
            metrics.task_lease_lost(self.queue.table)
            log.warning("lease lost, nothing of this attempt is kept", **self._names(settlement.task))
            return
        metrics.task_settled(self.queue.table, settlement.label)
        if settlement.label == "failed":
            log.error("task failed for good", **self._names(settlement.task), reason=settlement.last_error)

    def _lease_ends(self) -> float:
        """When calls under a lease that is taken now must be over."""
        return time.monotonic() + self._rules.lease - LEASE_MARGIN

    def _names(self, task: Task) -> dict[str, object]:
        ids = {"task_id": task.task_id, "order_id": task.order_id, "attempt": task.attempt}
        return {"table": self.queue.table, **ids, **trace_of(task.traceparent)}


async def _ended(tasks: set[asyncio.Task[Any]], within: float) -> None:
    """Wait for tasks to end; those that still run after `within` seconds are cancelled."""
    if not tasks:
        return
    _, late = await asyncio.wait(tasks, timeout=within)
    for task in late:
        task.cancel()
    if late:
        await asyncio.wait(late)
