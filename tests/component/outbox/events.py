"""Events in an outbox, and sinks that do what a test says."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.event import listen, remove
from sqlalchemy.ext.asyncio import AsyncConnection

from app.db import Database
from app.outbox.relay import Relay
from app.outbox.sink import Sink
from app.outbox.store import StoredEvent
from app.settings import EventSettings, load_settings
from tests.rows import insert_event, insert_orders

Act = Callable[[StoredEvent], Awaitable[None]]


async def accept(_event: StoredEvent) -> None:
    """Publish at once."""


@dataclass
class Script:
    """A sink that remembers what it was given, and what it has taken."""

    act: Act = accept
    given: list[StoredEvent] = field(default_factory=list)
    taken: list[StoredEvent] = field(default_factory=list)
    running: int = 0
    most: int = 0

    async def publish(self, event: StoredEvent) -> None:
        self.given.append(event)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.act(event)
            self.taken.append(event)
        finally:
            self.running -= 1

    def sequences(self, order_id: int) -> list[int]:
        return [event.sequence for event in self.taken if event.order_id == order_id]


async def add(conn: AsyncConnection, order_ids: Sequence[int], *sequences: int) -> None:
    """Write an event of each sequence number for each order."""
    for sequence in sequences:
        for order_id in order_ids:
            await insert_event(conn, order_id, sequence)


async def fill(database: Database, orders: int, *sequences: int, **columns: Any) -> list[int]:
    """Write events of new orders, with columns set as given; returns the orders' ids."""
    async with database.engine.begin() as conn:
        ids = await insert_orders(conn, orders)
        await add(conn, ids, *(sequences or (1,)))
        for column, value in columns.items():
            await conn.execute(text(f"UPDATE outbox_event SET {column} = {value}"))
    return ids


async def run(database: Database, sql: str, **values: Any) -> list[Any]:
    async with database.engine.begin() as conn:
        result = await conn.execute(text(sql), values)
        return list(result.all()) if result.returns_rows else []


async def rows(database: Database) -> list[Any]:
    sql = "SELECT *, extract(epoch FROM next_attempt_at - now()) AS due_in FROM outbox_event ORDER BY position"
    return await run(database, sql)


async def hurry(database: Database) -> None:
    """Let what waits for its next attempt wait no longer, but for what the relay has in hand: they could deadlock."""
    waiting = "SELECT event_id FROM outbox_event WHERE next_attempt_at > now() + '1.2 s' FOR UPDATE SKIP LOCKED"
    await run(database, f"UPDATE outbox_event SET next_attempt_at = now() WHERE event_id IN ({waiting})")


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 10) -> None:
    async with asyncio.timeout(seconds):
        while not await condition():
            await asyncio.sleep(0.02)


async def ended(database: Database) -> bool:
    return all(row.status != "PENDING" for row in await rows(database))


def event_rules(**changed: float) -> EventSettings:
    """Polls that come too late to help, times that a test can wait for, and what it changes of them."""
    ours = {"poll_interval": 30.0, "concurrency": 4, "publish_timeout": 2.0, "lease": 10.0}
    return load_settings({}).events.model_copy(update={**ours, **changed})


@contextmanager
def statements(database: Database) -> Iterator[list[str]]:
    """The first word of each statement that the database's pool carries meanwhile."""
    seen: list[str] = []

    def note(_conn: object, _cursor: object, statement: str, *_: object) -> None:
        seen.append(statement.split(maxsplit=1)[0])

    listen(database.engine.sync_engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        remove(database.engine.sync_engine, "before_cursor_execute", note)


@asynccontextmanager
async def relaying(database: Database, sink: Sink, rules: EventSettings | None = None) -> AsyncIterator[Relay]:
    relay = Relay(database.engine, sink, rules or event_rules(), stalled_after=2)
    relay.loop.start()
    try:
        yield relay
    finally:
        await relay.drain(0.5)


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """What the outbox has logged."""
    return [record.msg for record in caplog.records if isinstance(record.msg, dict) and "outbox" in record.name]
