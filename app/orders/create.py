"""Taking an order in: the order, its first task and its first event in one transaction."""

from typing import NamedTuple

from sqlalchemy.ext.asyncio import AsyncEngine

from app.orders import repository
from app.orders.moves import Moved, StepQueues, tell
from app.orders.order import Item


class Created(NamedTuple):
    order_id: int
    task_id: int


async def create_order(
    engine: AsyncEngine, steps: StepQueues, customer_id: str, items: tuple[Item, ...], traceparent: str | None = None
) -> Created:
    """Save the order; once this returns, it will be brought to its end whatever happens to this process."""
    async with engine.begin() as conn:
        (order,) = await repository.insert(conn, [(customer_id, items)])
        task_ids = await tell(conn, [Moved(order, order.accepted(), traceparent)], steps)
    return Created(order.id, task_ids[order.id])
