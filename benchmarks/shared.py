"""The service without isolation, to compare with: one connection pool and one poller for all external systems.

Deadlines and repetition are the service's own, and so are the sums of slots and of connections. What is gone is what
each system has to itself: pool, bulkhead, breaker and poller. Started as `python -m benchmarks.shared serve`.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import cache
from typing import Any, cast

import aiohttp
from sqlalchemy import Connection

from app import cli, wiring
from app.db import Database
from app.orders.journey import StepWork
from app.outbox.sink import Sink
from app.resilience.events import Report
from app.settings import ClientSettings, Settings, load_settings
from app.systems import client
from app.systems.system import ExternalSystem, open_system
from app.tasks.poller import Poller
from app.tasks.queue import Claim, TaskQueue
from app.tasks.settlement import Settlement
from app.tasks.task import GivenUp, Lease, Outcome, Task
from app.wiring import Wiring

SLOTS = sum(section.max_concurrent for section in load_settings().client.values())
CONNECTIONS = sum(section.pool_size for section in load_settings().client.values())
NEVER = {"minimum_calls": 1_000_000, "window": 1_000_000}
"""A breaker that comes to no verdict."""

Apply = Callable[[Connection, list[Settlement]], None]


class EveryTask:
    """All task tables as one queue, and all steps as one work; claims begin at another table each time."""

    table = "every_task"

    def __init__(self, queues: Sequence[TaskQueue], works: Mapping[str, StepWork]) -> None:
        self._queues, self._works = deque(queues), works
        self._owners: dict[str, TaskQueue] = {}

    async def claim(self, batch: int, lease: float) -> Claim:
        tasks: list[Task] = []
        due: list[float] = []
        self._queues.rotate()
        for queue in tuple(self._queues):
            if len(tasks) == batch:
                break
            claim = await queue.claim(batch - len(tasks), lease)
            self._owners |= {task.key: queue for task in claim.tasks}
            tasks += claim.tasks
            due += [claim.next_due] if claim.next_due is not None else []
        return Claim(tasks, min(due, default=None))

    async def give_back(self) -> None:
        for queue in self._queues:
            await queue.give_back()

    async def settle(self, settlements: Sequence[Settlement], apply: Apply) -> set[Lease]:
        owned = {queue: [s for s in settlements if self._owners[s.task.key] is queue] for queue in self._queues}
        settling = [queue.settle(own, self._works[queue.table].apply) for queue, own in owned.items() if own]
        return set[Lease]().union(*await asyncio.gather(*settling))

    async def attempt(self, task: Task, budget: float) -> Outcome:
        return await self._work(task).attempt(task, budget)

    def exhausted(self, task: Task, reason: str) -> GivenUp:
        return self._work(task).exhausted(task, reason)

    def apply(self, conn: Connection, settlements: list[Settlement]) -> None:
        raise NotImplementedError("each table's rows are settled by themselves")

    def _work(self, task: Task) -> StepWork:
        return self._works[self._owners[task.key].table]


class OnePoller(Wiring):
    def __init__(
        self, settings: Settings, database: Database, systems: Mapping[str, ExternalSystem[Any]], sink: Sink
    ) -> None:
        super().__init__(settings, database, systems, sink)
        rules = settings.tasks["order_confirmation_task"]
        works = {step.table: StepWork(step, self.step_queues, jitter=rules.jitter) for step in self.steps}
        every = EveryTask([*self.queues.values()], works)
        queue = cast("TaskQueue", every)
        self.pollers = {
            every.table: Poller(queue, every, rules, slots=SLOTS, stalled_after=settings.health.stalled_after)
        }

    def _heard(self, table: str) -> None:
        self._ring_all()


@cache
def one_pool() -> aiohttp.TCPConnector:
    return aiohttp.TCPConnector(limit=CONNECTIONS, keepalive_timeout=client.KEEP_ALIVE_SECONDS)


def without_policy(
    name: str, settings: ClientSettings, adapter: Any, report: Report
) -> AbstractAsyncContextManager[ExternalSystem[Any]]:
    breaker = settings.breaker.model_copy(update=NEVER)
    shared = settings.model_copy(update={"max_concurrent": SLOTS, "breaker": breaker})
    return open_system(name, shared, adapter, report)


def share() -> None:
    """Put the shared parts into the places of the service's own, which it has no switch for."""
    vars(client)["_connector"] = lambda *_: one_pool()
    vars(wiring).update(open_system=without_policy, Wiring=OnePoller)


if __name__ == "__main__":
    share()
    cli.main()
