"""A poller on a real PostgreSQL, with work that does what a test says."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, text

from app.db import Database
from app.tasks.poller import Poller
from app.tasks.queue import NewTask, TaskQueue
from app.tasks.settlement import Settlement
from app.tasks.task import GivenUp, Outcome, Task
from tests.rows import Rules, insert_orders

TABLE = "order_confirmation_task"
USUAL = Rules()


@dataclass
class Script:
    """Work that does what the test says, and remembers what was asked of it."""

    act: Callable[[Task], Awaitable[Outcome]]
    attempts: list[Task] = field(default_factory=list)
    running: int = 0
    most: int = 0
    effects: list[object] = field(default_factory=list)

    async def attempt(self, task: Task, budget: float) -> Outcome:
        assert budget > 0
        self.attempts.append(task)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            return await self.act(task)
        finally:
            self.running -= 1

    def exhausted(self, task: Task, reason: str) -> GivenUp:
        return GivenUp(reason, ("failed", task.task_id))

    def apply(self, conn: Connection, settlements: list[Settlement]) -> None:
        for settlement in settlements:
            if settlement.effect == "impossible":
                raise RuntimeError("this effect cannot be applied")
            self.effects.append(settlement.effect)


def always(outcome: Outcome) -> Callable[[Task], Awaitable[Outcome]]:
    async def act(_task: Task) -> Outcome:
        return outcome

    return act


async def fill(database: Database, rows: int, **columns: Any) -> list[int]:
    """Enqueue tasks of new orders, with columns set as given; returns their ids in order."""
    queue = TaskQueue(TABLE, database.engine)
    async with database.engine.begin() as conn:
        orders = await insert_orders(conn, rows)
        ids = sorted((await conn.run_sync(queue.enqueue, [NewTask(order_id, "{}") for order_id in orders])).values())
        for column, value in columns.items():
            await conn.execute(text(f"UPDATE {TABLE} SET {column} = {value}"))
    return ids


async def rows(database: Database) -> list[Any]:
    async with database.engine.connect() as conn:
        sql = f"SELECT *, extract(epoch FROM next_attempt_at - now()) AS due_in FROM {TABLE} ORDER BY task_id"
        return list((await conn.execute(text(sql))).all())


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 8) -> None:
    async with asyncio.timeout(seconds):
        while not await condition():
            await asyncio.sleep(0.02)


async def ended(database: Database) -> bool:
    return all(r.status in ("COMPLETED", "FAILED") for r in await rows(database))


@asynccontextmanager
async def polling(database: Database, work: Script, rules: Rules = USUAL, slots: int = 4) -> AsyncIterator[Poller]:
    poller = Poller(TaskQueue(TABLE, database.engine), work, rules, slots=slots, stalled_after=2)
    poller.start()
    try:
        yield poller
    finally:
        await poller.drain(0.5)
