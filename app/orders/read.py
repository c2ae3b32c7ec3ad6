"""Reading an order with its steps."""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy.ext.asyncio import AsyncEngine

from app.orders import repository
from app.orders.repository import OrderRecord
from app.tasks.queue import TaskView, tasks_of_order


class OrderWithSteps(NamedTuple):
    record: OrderRecord
    tasks: dict[str, TaskView]


async def read_order(engine: AsyncEngine, tables: Sequence[str], order_id: int) -> OrderWithSteps | None:
    """The order and its tasks by table, in the order of `tables`; None when there is no such order."""
    async with engine.connect() as conn:
        record = await repository.find(conn, order_id)
        if record is None:
            return None
        tasks = await tasks_of_order(conn, tables, order_id)
    return OrderWithSteps(record, {table: tasks[table] for table in tables if table in tasks})
