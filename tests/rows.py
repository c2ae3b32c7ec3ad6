"""Rows put straight into the database, for tests that are not about how they came there; rules to work on them by."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.settings import TaskSettings


class Rules(TaskSettings):
    enabled: bool = True
    poll_interval: float = 30.0
    batch: int = 50
    lease: float = 30.0
    max_attempts: int = 20
    backoff_cap: float = 300.0
    jitter: float = 0.2
    retention: float = 86_400.0


async def insert_orders(conn: AsyncConnection, count: int) -> list[int]:
    """Add orders of nothing, without tasks or events; returns their ids, in ascending order."""
    sql = """
        INSERT INTO orders (customer_id, items, status)
        SELECT 'c-1', '[]', 'ACCEPTED' FROM generate_series(1, :count) RETURNING id"""
    return sorted(await conn.scalars(text(sql), {"count": count}))


async def insert_event(
    conn: AsyncConnection,
    order_id: int,
    sequence: int,
    event_type: str = "order.paid",
    data: str = '{"status": "PAID"}',
    traceparent: str | None = None,
) -> None:
    """Add an event, of which nobody is told before somebody looks."""
    sql = """
        INSERT INTO outbox_event (order_id, sequence, type, data, traceparent)
        VALUES (:order_id, :sequence, :event_type, CAST(:data AS jsonb), :traceparent)"""
    values = {"order_id": order_id, "sequence": sequence, "event_type": event_type, "data": data}
    await conn.execute(text(sql), {**values, "traceparent": traceparent})
