"""Reading an order with its steps."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.orders import repository
from app.orders.order import OrderStatus
from app.orders.repository import OrderRecord
from app.tasks.standing import TaskView, tasks_of_order


class OrderWithSteps(NamedTuple):
    record: OrderRecord
    tasks: dict[str, TaskView]


async def read_order(
    engine: AsyncEngine, tables: Sequence[str], order_id: int, customers: Collection[str] | None = None
) -> OrderWithSteps | None:
    """The order and its tasks by table, in the order of `tables`.

    None when there is no such order, or when it belongs to none of `customers`, if these are given.
    """
    async with engine.connect() as conn:
        record = await find_order(conn, order_id, customers)
        if record is None:
            return None
        tasks = await tasks_of_order(conn, tables, order_id)
    return OrderWithSteps(record, {table: tasks[table] for table in tables if table in tasks})


async def list_orders(
    engine: AsyncEngine,
    *,
    before: int,
    most: int,
    statuses: Sequence[OrderStatus] | None,
    customers: Collection[str] | None,
) -> list[OrderRecord]:
    """At most `most` orders with ids below `before`, the newest first; None filters nothing."""
    async with engine.connect() as conn:
        return await repository.page(conn, before=before, most=most, statuses=statuses, customers=customers)


async def exists(engine: AsyncEngine, order_id: int, customers: Collection[str] | None = None) -> bool:
    """Whether there is such an order, and it belongs to one of `customers`, if these are given."""
    async with engine.connect() as conn:
        return await find_order(conn, order_id, customers) is not None


async def find_order(conn: AsyncConnection, order_id: int, customers: Collection[str] | None) -> OrderRecord | None:
    """The order; None when it belongs to none of `customers`, if these are given."""
    record = await repository.find(conn, order_id)
    if record is None or (customers is not None and record.order.customer_id not in customers):
        return None
    return record
