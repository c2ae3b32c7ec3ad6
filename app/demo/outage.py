"""The story of an outage: what becomes of orders while a system is down. Every number is read from what runs."""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import reduce
from itertools import cycle, islice
from typing import Any

import httpx
from rich.console import Console

from app.api.schemas import TaskRow
from app.demo.samples import KNOBS, SAMPLES, Sample
from app.demo.screen import introduce, say
from app.demo.stage import DemoFailed, Stage, open_stage, while_serving
from app.demo.witness import Witness, attempts, until
from app.orders.invariants import INVARIANTS, violations
from app.settings import Settings, load_settings

SYSTEM, TABLE = "insurance", "order_confirmation_task"

HASTE = {
    f"ORDERS_CLIENT__{SYSTEM.upper()}__CONNECT_TIMEOUT": "0.5",
    f"ORDERS_CLIENT__{SYSTEM.upper()}__READ_TIMEOUT": "1",
    f"ORDERS_CLIENT__{SYSTEM.upper()}__TOTAL_TIMEOUT": "2.5",
    f"ORDERS_CLIENT__{SYSTEM.upper()}__BREAKER__OPEN_SECONDS": "8",
    f"ORDERS_TASKS__{TABLE.upper()}__BACKOFF_CAP": "4",
}
"""What the story changes, so that it is over in a minute; it says so."""

DOWN, UP = {"mode": "slow", "latency_ms": 60_000}, {"mode": "ok"}
"""The worst way to be down: each application is taken in, and its answer comes when nobody waits for it any more."""

CALM = 2.0
"""Seconds that calls under way have to end."""


async def tell_outage(console: Console, *, dsn: str | None = None) -> bool:
    """Tell the story; returns whether it ended well: nothing lost, nothing doubled. Raises as `open_stage` does."""
    say(console, "Starting a database, stand-ins for the five systems, and the service ...")
    async with open_stage(dsn, HASTE) as stage:
        introduce(console, stage)
        return await while_serving(stage, _tell(console, stage))


async def _tell(console: Console, stage: Stage) -> bool:
    async with AsyncExitStack() as stack:
        service, sandbox = [
            await stack.enter_async_context(httpx.AsyncClient(base_url=url, trust_env=False))
            for url in (stage.url, stage.sandbox)
        ]
        story = Outage(console, stage, Witness(service, sandbox, SYSTEM, TABLE))
        try:
            story.confess()
            await story.orders_flow()
            await story.system_goes_down()
            await story.breaker_is_open()
            await story.trial_fails()
            await story.system_is_back()
            return await story.account()
        except httpx.HTTPError as error:
            raise DemoFailed(f"the service does not answer as it should: {error!r}") from error


class Outage:
    """The chapters, in their order."""

    def __init__(self, console: Console, stage: Stage, witness: Witness) -> None:
        self._console, self._stage, self._witness = console, stage, witness
        self._began = time.monotonic()
        self._breaker = stage.settings.client[SYSTEM].breaker
        self._left = 0

    def confess(self) -> None:
        """Say which settings are the story's own."""
        usual = load_settings()
        paths = [tuple(name.removeprefix("ORDERS_").lower().split("__")) for name in HASTE]
        say(self._console, "\nSo that it takes a minute, in this story only:")
        for path in paths:
            say(self._console, f"  {'.'.join(path)} = {_at(self._stage.settings, path):g}, not {_at(usual, path):g}")

    async def orders_flow(self) -> None:
        self._chapter("Orders flow")
        await self._place(SAMPLES)
        await until(self._all_completed, "all orders are COMPLETED", every=1)
        seen = await self._witness.seen()
        self._say(
            f"all {len(self._witness.placed)} are COMPLETED; the breaker is {seen.breaker.state.upper()}, "
            f"{seen.breaker.failure_rate:.0%} of {seen.breaker.samples} calls failed"
        )

    async def system_goes_down(self) -> None:
        self._chapter(f"The system {SYSTEM} goes down: it takes applications in and answers nobody")
        await self._turn(DOWN)
        await self._place(_more(2))
        await until(self._is_open, "the breaker opens")
        breaker, rule = (await self._witness.seen()).breaker, self._breaker
        self._say(
            f"the breaker is OPEN: of the last {breaker.samples} calls {breaker.failure_rate:.0%} failed, and it opens "
            f"at {rule.failure_rate:.0%}, judging by {rule.minimum_calls} to {rule.window} calls"
        )

    async def breaker_is_open(self) -> None:
        self._chapter(f"While it is open: nobody asks {SYSTEM}, nobody waits for it, nothing is lost")
        await asyncio.sleep(CALM)
        rows, calls = await self._at_rest(), await self._witness.calls()
        tried = [row for row in rows if row.attempts]
        self._say(f"{len(rows)} rows of {TABLE} wait in PostgreSQL, with {attempts(rows)} attempts made so far")
        if tried:
            self._say(f"the last error of order {tried[0].order_id}: {tried[0].last_error}")
        known = {row.task_id for row in rows}
        await self._place(_more(1))
        self._say(f"readiness answers {await self._witness.ready()}: intake does not need {SYSTEM}")
        await asyncio.sleep(CALM)
        later = await self._at_rest()
        old, new = [r for r in later if r.task_id in known], [r for r in later if r.task_id not in known]
        self._say(
            f"{CALM:g} s later: {await self._witness.calls() - calls} more calls got through. The {len(old)} rows "
            f"still have {attempts(old)} attempts made, the {len(new)} new ones {attempts(new)}: waiting costs none"
        )

    async def trial_fails(self) -> None:
        self._chapter(f"After {self._breaker.open_seconds:g} s it is half-open: a few calls may try")
        calls = await self._witness.calls()
        await until(self._opened_again, "the trial fails")
        self._say(
            f"{await self._witness.calls() - calls} calls got through, {self._breaker.half_open_permits} are allowed. "
            "They fail: it is OPEN again"
        )

    async def system_is_back(self) -> None:
        self._chapter(f"The system {SYSTEM} is back")
        await self._turn(UP)
        await until(self._is_closed, "the breaker closes")
        entered = [f"{state} {await self._witness.entered(state)}x" for state in ("open", "half_open", "closed")]
        self._say(f"the trials succeed: the breaker is CLOSED. It was, in all: {', '.join(entered)}")
        await until(self._all_completed, "all orders are COMPLETED", every=1)
        self._say(f"all {len(self._witness.placed)} are COMPLETED")

    async def account(self) -> bool:
        """Settle the account: what was promised with 202, against what was done."""
        self._chapter("The account")
        orders, completed = len(self._witness.placed), (await self._witness.statuses())["COMPLETED"]
        self._say(f"{orders} orders were answered with 202, {completed} are COMPLETED: {orders - completed} lost")
        ledgers = {system: await self._witness.ledger(system) for system in KNOBS}
        carried_out = ", ".join(f"{system} {sum(ledger.values())}" for system, ledger in ledgers.items())
        doubled = sum(number > 1 for ledger in ledgers.values() for number in ledger.values())
        missing = sum(number == 0 for ledger in ledgers.values() for number in ledger.values())
        self._say(f"operations in the systems' own ledgers: {carried_out}; {doubled} doubled, {missing} missing")
        self._say(f"{SYSTEM} met {await self._witness.repeated_keys()} Idempotency-Keys again, and knew them")
        async with self._stage.database.engine.connect() as conn:
            found = await violations(conn, self._stage.settings.tasks, self._stage.settings.events)
        self._say(f"{len(INVARIANTS)} invariants checked, {len(found)} violated")
        well = not (orders - completed or doubled or missing or found)
        verdict = (
            "Nothing was lost, nothing was doubled." if well else f"That must not be. {self._stage.log} tells more."
        )
        self._chapter(f"{verdict} `python -m app demo` starts the same again, for you to break.")
        return well

    async def _turn(self, knobs: Mapping[str, Any]) -> None:
        await self._witness.turn(**knobs)
        self._say(f"PUT {self._stage.sandbox}/{SYSTEM}/_control {json.dumps(knobs)}")

    async def _place(self, samples: Sequence[Sample]) -> None:
        codes, slowest = await self._witness.place(samples)
        answers = ", ".join(f"{number} x {code}" for code, number in codes.items())
        self._say(f"{len(samples)} orders placed: {answers}, the slowest answer after {slowest * 1000:.0f} ms")

    async def _at_rest(self) -> list[TaskRow]:
        """The rows that wait, once none is under lease: a claim counts an attempt and gives it back if none is made."""
        rows: list[TaskRow] = []

        async def none_leased() -> bool:
            rows[:] = await self._witness.waiting()
            return all(row.due_in < self._stage.settings.tasks[TABLE].lease / 2 for row in rows)

        await until(none_leased, "all attempts have ended")
        return rows

    async def _all_completed(self) -> bool:
        left = len(self._witness.placed) - (await self._witness.statuses())["COMPLETED"]
        if left not in {0, self._left}:
            self._say(f"{left} orders are under way")
        self._left = left
        return not left

    async def _is_open(self) -> bool:
        return (await self._witness.seen()).breaker.state == "open"

    async def _is_closed(self) -> bool:
        return (await self._witness.seen()).breaker.state == "closed"

    async def _opened_again(self) -> bool:
        return await self._witness.entered("open") > 1

    def _chapter(self, title: str) -> None:
        say(self._console, f"\n{title}", "bold")

    def _say(self, text: str) -> None:
        say(self._console, f"{time.monotonic() - self._began:7.1f} s  {text}")


def _more(times: int) -> list[Sample]:
    return list(islice(cycle(SAMPLES), times * len(SAMPLES)))


def _at(settings: Settings, path: tuple[str, ...]) -> Any:
    return reduce(lambda node, key: node[key] if isinstance(node, dict) else getattr(node, key), path, settings)
