"""What a scenario leaves behind: its orders, followed to their end and counted."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, NamedTuple

from httpx_aiohttp import HttpxAiohttpClient
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from app.db import Database, open_database
from app.orders.invariants import violations
from app.orders.journey import STEPS
from app.orders.order import OrderStatus
from app.settings import Settings, load_settings
from tests.service import ORDER, SYSTEMS, Sandbox

TABLES = [step.table for step in STEPS]
FINAL = tuple(status.value for status in OrderStatus if status.final)

DOUBLED_EVENTS = """
SELECT coalesce(sum(told - 1), 0)::int FROM (
  SELECT count(*) AS told FROM outbox_event WHERE type NOT IN ('order.step_failed', 'order.step_retried')
  GROUP BY order_id, type) AS each"""

UNDER_WAY = " + ".join(
    [
        *(f"(SELECT count(*) FROM {table} WHERE status IN ('PENDING', 'IN_PROGRESS'))" for table in TABLES),
        "(SELECT count(*) FROM outbox_event WHERE status = 'PENDING')",
        f"(SELECT count(*) FROM orders WHERE status NOT IN {FINAL})",
    ]
)
IN_VAIN = " + ".join(
    f"(SELECT coalesce(sum(retry_count - 1), 0) FROM {table} WHERE status = 'COMPLETED' AND retry_count > 1)"
    for table in TABLES
)


class Tally(NamedTuple):
    """What must be zero: orders that were taken in and not brought to an end, and what was done or told twice.

    `burnt` are attempts of completed tasks that were counted without any call having failed, in their last phase.
    """

    lost: int
    doubled_operations: int
    doubled_events: int
    burnt: int


Report = Callable[[Tally, int], None]
"""Is told the tally of a scenario, and how many orders it had."""


@dataclass
class Scene:
    """A database and stand-ins, and the orders whose clients were told that they are taken in."""

    database: Database
    settings: Settings
    sandbox: Sandbox
    report: Report
    placed: list[int] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    ended: bool = False

    @property
    def dsn(self) -> str:
        return self.database.dsn

    async def place(self, client: HttpxAiohttpClient, count: int = 1, **changes: Any) -> list[int]:
        """Place orders side by side; those that were refused or not answered are not promised to anybody."""
        posts = (client.post("/orders", json={**ORDER, **changes}) for _ in range(count))
        answers = await asyncio.gather(*posts, return_exceptions=True)
        ids = []
        for answer in answers:
            if isinstance(answer, BaseException):
                self.refused.append(repr(answer))
            elif answer.status_code != HTTPStatus.ACCEPTED:
                self.refused.append(answer.text)
            else:
                ids.append(int(answer.json()["orderId"]))
        self.placed += ids
        return ids

    async def rows(self, sql: str, **values: Any) -> list[Any]:
        """Execute one statement, past whatever stands between the service and its database."""
        async with self.database.engine.begin() as conn:
            result = await conn.execute(text(sql), values)
            return list(result.all()) if result.returns_rows else []

    async def value(self, sql: str, **values: Any) -> Any:
        return (await self.rows(sql, **values))[0][0]

    async def until(self, sql: str, seconds: float = 30, **values: Any) -> None:
        """Wait until the statement's one value is true."""
        try:
            async with asyncio.timeout(seconds):
                while not await self.value(sql, **values):
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"not within {seconds:g} s: {sql}") from None

    async def ends(self, seconds: float = 30, *, failed: int = 0, status: Collection[str] = ("COMPLETED",)) -> None:
        """Wait until nothing is under way any more; then everything must be as if no fault had ever been.

        All orders end with one of the statuses, the invariants hold and held all the time, and the tally is zero. Of
        the attempts up to `failed` are no part of it: their call failed, or their worker died, and so they count.
        """
        self.ended = True
        await self.until(f"SELECT {UNDER_WAY} = 0", seconds)
        tally = await self.tally(status, failed)
        self.report(tally, len(self.placed))
        assert await self.violated() == []
        assert self.seen == []
        assert tally == (0, 0, 0, 0)

    async def tally(self, status: Collection[str], failed: int) -> Tally:
        good = await self.rows("SELECT id FROM orders WHERE status = ANY (:status)", status=list(status))
        doubled = 0
        for system in SYSTEMS:
            doubled += sum(count - 1 for count in (await self.sandbox.operations(system)).values())
        return Tally(
            lost=len(set(self.placed) - {row.id for row in good}),
            doubled_operations=doubled,
            doubled_events=await self.value(DOUBLED_EVENTS),
            burnt=max(int(await self.value(f"SELECT {IN_VAIN}")) - failed, 0),
        )

    async def violated(self) -> list[str]:
        async with self.database.engine.connect() as conn:
            return await self.violated_on(conn)

    async def violated_on(self, conn: AsyncConnection) -> list[str]:
        found = await violations(conn, self.settings.tasks, self.settings.events)
        return [f"{v.invariant.name}: order {v.order_id}: {v.found}" for v in found]

    async def watch(self) -> None:
        """Look at the invariants again and again while things happen."""
        while True:
            with suppress(DBAPIError, OSError):
                self.seen += await self.violated()
            await asyncio.sleep(0.5)


@asynccontextmanager
async def scene_on(dsn: str, sandbox: Sandbox, report: Report) -> AsyncIterator[Scene]:
    """A scene whose invariants are watched until it is over; it is not over before `ends` was called."""
    settings = load_settings({"ORDERS_PG__DSN": dsn})
    async with open_database(settings.pg, application_name="scene") as database:
        scene = Scene(database, settings, sandbox, report)
        watching = asyncio.create_task(scene.watch())
        try:
            yield scene
        finally:
            watching.cancel()
            await asyncio.wait({watching})
        assert scene.ended, "the scene was left before its end was looked at"
        assert scene.seen == []
