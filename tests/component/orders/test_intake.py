"""Group commit, on a real PostgreSQL."""

import asyncio
from decimal import Decimal

import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import DBAPIError

from app.db import Database
from app.orders.create import Placement
from app.orders.intake import Intake
from app.orders.money import Money
from app.orders.order import Item
from app.tasks.queue import TaskQueue

ITEMS = (Item("TICKET", 1, Money(Decimal("10.00"), "RUB")),)


@pytest.fixture
def intake(database: Database) -> Intake:
    queue = TaskQueue("order_confirmation_task", database.engine)
    return Intake(database.engine, {"order.accepted": queue}, most=64)


async def count(database: Database, table: str) -> int:
    async with database.engine.connect() as conn:
        return int((await conn.execute(text(f"SELECT count(*) FROM {table}"))).scalar_one())


async def test_simultaneous_orders_share_transactions(database: Database, intake: Intake) -> None:
    """200 orders at once are all saved, each answered with its own ids, in far fewer transactions than orders."""
    commits = 0

    def committed(_connection: object) -> None:
        nonlocal commits
        commits += 1

    event.listen(database.engine.sync_engine, "commit", committed)
    created = await asyncio.gather(*(intake.place(Placement(f"c-{i}", ITEMS)) for i in range(200)))
    assert commits < 20
    assert len({c.order_id for c in created}) == 200
    async with database.engine.connect() as conn:
        rows = await conn.execute(
            text(
                "SELECT o.id, o.customer_id, t.task_id FROM orders o JOIN "
                "order_confirmation_task t ON t.order_id = o.id"
            )
        )
        saved = {r.id: (r.customer_id, r.task_id) for r in rows}
    assert saved == {c.order_id: (f"c-{i}", c.task_id) for i, c in enumerate(created)}
    assert await count(database, "outbox_event") == 200


async def test_a_bad_order_fails_alone(database: Database, intake: Intake) -> None:
    """An order that the database refuses fails for itself; those that would have shared its transaction are saved."""
    customers = ["c-1", "c" * 65, "c-3", "c-4"]
    answers = await asyncio.gather(*(intake.place(Placement(c, ITEMS)) for c in customers), return_exceptions=True)
    assert [isinstance(a, DBAPIError) for a in answers] == [False, True, False, False]
    assert await count(database, "orders") == 3


async def test_a_database_that_fails_is_told_to_all_and_forgotten(database: Database, intake: Intake) -> None:
    """When a transaction fails as a whole, everybody in it hears of it, and the next one works."""
    async with database.engine.begin() as conn:
        await conn.execute(text("ALTER TABLE orders RENAME TO gone"))
    answers = await asyncio.gather(*(intake.place(Placement("c", ITEMS)) for _ in range(5)), return_exceptions=True)
    assert all(isinstance(a, DBAPIError) for a in answers)
    async with database.engine.begin() as conn:
        await conn.execute(text("ALTER TABLE gone RENAME TO orders"))
    assert (await intake.place(Placement("c", ITEMS))).order_id > 0


async def test_a_client_that_leaves_does_not_stop_the_others(database: Database, intake: Intake) -> None:
    """A request that is cancelled while its transaction is under way leaves the rest of the group as it is."""
    requests = [asyncio.create_task(intake.place(Placement(f"c-{i}", ITEMS))) for i in range(10)]
    await asyncio.sleep(0)
    requests[3].cancel()
    answers = await asyncio.gather(*requests, return_exceptions=True)
    assert [isinstance(a, asyncio.CancelledError) for a in answers] == [i == 3 for i in range(10)]
    await intake.idle()
    assert await count(database, "orders") == await count(database, "order_confirmation_task") >= 9
