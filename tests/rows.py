"""Rows put straight into the database, for tests that are not about how they came there."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection


async def insert_orders(conn: AsyncConnection, count: int) -> list[int]:
    """Add orders of nothing, without tasks or events; returns their ids, in ascending order."""
    sql = """
        INSERT INTO orders (customer_id, items, status)
        SELECT 'c-1', '[]', 'ACCEPTED' FROM generate_series(1, :count) RETURNING id"""
    return sorted(await conn.scalars(text(sql), {"count": count}))
