"""Retention: what is deleted, what stays, and that nobody has to wait for it."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import text

from app.db import Database
from app.orders import idempotency
from app.orders.create import Placement
from app.orders.idempotency import Key
from app.orders.intake import Intake
from app.orders.money import Money
from app.orders.order import Item
from app.outbox import store
from app.retention import LOCK
from app.settings import load_settings
from app.tasks.queue import NewTask, TaskQueue
from tests.rows import insert_event, insert_orders
from tests.service import service_running, settings_for

NOWHERE = "http://127.0.0.1:1"
HOUR, DAY = 3600.0, 86_400.0
ITEMS = (Item("TICKET", 2, Money(Decimal("1990.00"), "RUB")),)
TASK_TABLES = list(load_settings({}).tasks)


@pytest.fixture
def queue(database: Database) -> TaskQueue:
    return TaskQueue("order_confirmation_task", database.engine)


async def run(database: Database, sql: str, **values: Any) -> Sequence[Any]:
    async with database.engine.begin() as conn:
        result = await conn.execute(text(sql), values)
        return result.all() if result.returns_rows else []


async def column(database: Database, sql: str) -> list[Any]:
    return [row[0] for row in await run(database, sql)]


async def fill(database: Database, queue: TaskQueue, rows: int) -> None:
    """Enqueue tasks of new orders, completed two hours ago."""
    async with database.engine.begin() as conn:
        orders = await insert_orders(conn, rows)
        await conn.run_sync(queue.enqueue, [NewTask(order_id, "{}") for order_id in orders])
    await run(
        database,
        f"UPDATE {queue.table} SET status = 'COMPLETED', created_at = now() - interval '3 h', "
        "updated_at = now() - interval '2 h'",
    )


async def swept(batches: AsyncGenerator[int, None]) -> list[int]:
    return [deleted async for deleted in batches]


@pytest.mark.parametrize("table", TASK_TABLES)
async def test_completed_tasks_go_when_they_are_old(database: Database, table: str) -> None:
    """A task that was completed long ago goes; a young one, an open one and one that failed stay, however old."""
    queue = TaskQueue(table, database.engine)
    await fill(database, queue, 5)
    for position, change in enumerate(["status = 'PENDING'", "status = 'IN_PROGRESS'", "status = 'FAILED'"]):
        await run(
            database, f"UPDATE {table} SET {change} WHERE task_id = (SELECT min(task_id) + {position} FROM {table})"
        )
    await run(database, f"UPDATE {table} SET updated_at = now() WHERE task_id = (SELECT max(task_id) FROM {table})")
    assert sum(await swept(queue.delete_completed(HOUR, 1000))) == 1
    kept = await column(database, f"SELECT status FROM {table} ORDER BY task_id")
    assert kept == ["PENDING", "IN_PROGRESS", "FAILED", "COMPLETED"]


async def test_published_events_go_when_they_are_old(database: Database, queue: TaskQueue) -> None:
    """An event that was published long ago goes; one that waits, is parked or was published just now stays."""
    await fill(database, queue, 1)
    async with database.engine.begin() as conn:
        for sequence in range(1, 5):
            await insert_event(conn, 1, sequence)
    await run(database, "UPDATE outbox_event SET occurred_at = now() - interval '3 h'")
    for sequence, change in (
        (1, "status = 'PUBLISHED', published_at = now() - interval '2 h'"),
        (2, "status = 'PUBLISHED', published_at = now()"),
        (3, "status = 'PARKED'"),
    ):
        await run(database, f"UPDATE outbox_event SET {change} WHERE sequence = {sequence}")
    assert sum(await swept(store.delete_published(database.engine, HOUR, 1000))) == 1
    kept = await column(database, "SELECT status FROM outbox_event ORDER BY sequence")
    assert kept == ["PUBLISHED", "PARKED", "PENDING"]


async def test_old_keys_are_forgotten(database: Database, queue: TaskQueue) -> None:
    """A key may be used again when its time is over, and not before."""
    steps = {"order.accepted": queue}
    requests = [Placement("c-1", ITEMS, key=Key("shop", name, b"a")) for name in ("old", "young")]
    first = [await Intake(database.engine, steps, most=64).place(request) for request in requests]
    await run(database, "UPDATE idempotency_key SET created_at = now() - interval '25 h' WHERE key = 'old'")
    assert await swept(idempotency.delete_old(database.engine, DAY, 1000)) == [1]
    second = [await Intake(database.engine, steps, most=64).place(request) for request in requests]
    assert [answer.replayed for answer in second] == [False, True]
    assert second[1].order_id == first[1].order_id
    assert await column(database, "SELECT count(*) FROM orders") == [3]


async def test_a_batch_has_its_limit(database: Database, queue: TaskQueue) -> None:
    """No transaction looks at more rows than it was told, and together they get through all of them."""
    await fill(database, queue, 25)
    await run(database, f"UPDATE {queue.table} SET status = 'FAILED' WHERE task_id <= 12")
    assert await swept(queue.delete_completed(HOUR, 10)) == [0, 8, 5, 0]
    steps = {"order.accepted": TaskQueue("payment_task", database.engine)}
    for n in range(25):
        await Intake(database.engine, steps, most=64).place(Placement("c-1", ITEMS, key=Key("shop", f"k-{n}", b"a")))
    await run(database, "UPDATE outbox_event SET status = 'PUBLISHED', published_at = occurred_at - interval '2 h'")
    await run(database, "UPDATE outbox_event SET occurred_at = published_at")
    await run(database, "UPDATE idempotency_key SET created_at = created_at - interval '2 h'")
    assert await swept(store.delete_published(database.engine, HOUR, 10)) == [10, 10, 5, 0]
    assert await swept(idempotency.delete_old(database.engine, HOUR, 10)) == [10, 10, 5]


async def test_a_sweep_ends_where_rows_are_young(database: Database, queue: TaskQueue) -> None:
    """What came after the retention began is not looked through: one batch is enough to see that it is young."""
    await fill(database, queue, 50)
    await run(database, f"UPDATE {queue.table} SET created_at = now() WHERE task_id > 20")
    assert await swept(queue.delete_completed(HOUR, 10)) == [10, 10, 10]


async def test_a_locked_row_is_left_for_the_next_time(database: Database, queue: TaskQueue) -> None:
    """Whoever holds a row in an open transaction is not waited for."""
    await fill(database, queue, 3)
    async with database.engine.begin() as conn:
        await conn.execute(text(f"SELECT FROM {queue.table} WHERE task_id = 2 FOR KEY SHARE"))
        async with asyncio.timeout(3):
            assert sum(await swept(queue.delete_completed(HOUR, 10))) == 2
    assert sum(await swept(queue.delete_completed(HOUR, 10))) == 1


async def test_one_replica_deletes_at_a_time(database: Database, queue: TaskQueue) -> None:
    """While another transaction deletes, nothing is deleted and nothing is waited for."""
    await fill(database, queue, 3)
    await Intake(database.engine, {"order.accepted": TaskQueue("payment_task", database.engine)}, most=64).place(
        Placement("c-1", ITEMS, key=Key("shop", "k", b"a")),
    )
    await run(database, "UPDATE outbox_event SET status = 'PUBLISHED', published_at = now()")

    def sweeps() -> list[AsyncGenerator[int, None]]:
        return [
            queue.delete_completed(0, 10),
            store.delete_published(database.engine, 0, 10),
            idempotency.delete_old(database.engine, 0, 10),
        ]

    async with database.engine.begin() as conn:
        await conn.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
        async with asyncio.timeout(3):
            assert [sum(await swept(sweep)) for sweep in sweeps()] == [0, 0, 0]
    assert [sum(await swept(sweep)) for sweep in sweeps()] == [3, 1, 1]


async def test_a_deleted_task_is_a_step_less(database: Database, pg_dsn: str) -> None:
    """An order whose finished tasks are gone is shown all the same, with the steps that are left."""
    async with service_running(settings_for(pg_dsn, NOWHERE), "api") as service:
        order_id = await service.place()
        assert len((await service.order(order_id))["steps"]) == 1
        await run(database, "UPDATE order_confirmation_task SET status = 'COMPLETED'")
        await swept(service.wiring.queues["order_confirmation_task"].delete_completed(0, 10))
        order = await service.order(order_id)
        assert (order["status"], order["steps"]) == ("ACCEPTED", [])


async def test_workers_sweep_by_themselves(database: Database, queue: TaskQueue, pg_dsn: str) -> None:
    """A worker deletes old rows of every kind, again and again, and counts them; an API replica does not."""
    often = {"ORDERS_RETENTION__INTERVAL": "0.2", "ORDERS_RETENTION__BATCH": "2", "ORDERS_RETENTION__PAUSE": "0.01"}
    settings = settings_for(pg_dsn, NOWHERE, {**often, "ORDERS_TASKS__DEFAULT__RETENTION": "3600"})
    await fill(database, queue, 5)
    async with service_running(settings, "api"):
        await asyncio.sleep(0.6)
    assert await column(database, f"SELECT count(*) FROM {queue.table}") == [5]
    async with service_running(settings, "worker") as service:
        for rows in (5, 3):
            await wait_until_empty(database, queue.table)
            counted = (await service.client.get("/metrics")).text
            assert f'rows_deleted_total{{table="{queue.table}"}}' in counted
            await fill(database, queue, rows)
        await wait_until_empty(database, queue.table)
        assert service.wiring.retention.loop.alive
        assert service.wiring.retention.loop.restarts == 0


async def wait_until_empty(database: Database, table: str) -> None:
    async with asyncio.timeout(10):
        while await column(database, f"SELECT count(*) FROM {table}") != [0]:
            await asyncio.sleep(0.05)


async def test_a_sweep_stops_between_two_batches(database: Database, queue: TaskQueue, pg_dsn: str) -> None:
    """A worker that is told to stop in the middle of a long sweep ends at once and leaves the rest."""
    slow = {"ORDERS_RETENTION__INTERVAL": "0.1", "ORDERS_RETENTION__BATCH": "1", "ORDERS_RETENTION__PAUSE": "60"}
    settings = settings_for(pg_dsn, NOWHERE, {**slow, "ORDERS_TASKS__DEFAULT__RETENTION": "3600"})
    await fill(database, queue, 5)
    async with service_running(settings, "worker"):
        async with asyncio.timeout(10):
            while await column(database, f"SELECT count(*) FROM {queue.table}") != [4]:
                await asyncio.sleep(0.05)
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began < 10
    assert await column(database, f"SELECT count(*) FROM {queue.table}") == [4]
