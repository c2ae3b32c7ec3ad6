"""The orders table."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.orders.order import Item, Order, OrderStatus
from app.orders.snapshot import dump_details, dump_items, load_details, load_items

_COLUMNS = "id, customer_id, items, status, version, reason, details"

# Ids are given in the order of the input, so the sorted ids belong to the rows as they came.
_INSERT = text("""
INSERT INTO orders (customer_id, items, status)
SELECT customer_id, items, 'ACCEPTED'
FROM unnest(CAST(:customer_ids AS text[]), CAST(:items AS jsonb[])) WITH ORDINALITY AS n (customer_id, items, place)
ORDER BY place
RETURNING id""")

_LOCK = text(f"""
SELECT {_COLUMNS} FROM orders WHERE id = ANY (CAST(:ids AS bigint[]))
ORDER BY id FOR NO KEY UPDATE""")  # noqa: S608

_SAVE = text("""
UPDATE orders AS o
SET status = s.status, version = s.version, reason = s.reason, details = s.details, updated_at = now()
FROM unnest(CAST(:ids AS bigint[]), CAST(:statuses AS text[]), CAST(:versions AS int[]), CAST(:reasons AS text[]),
            CAST(:details AS jsonb[])) AS s (id, status, version, reason, details)
WHERE o.id = s.id AND o.version = s.version - 1
RETURNING o.id, extract(epoch FROM now() - o.created_at)::float8 AS age""")

# By id, which every order has to itself: times of creation are equal for orders of one transaction.
_PAGE = text(f"""
SELECT {_COLUMNS}, created_at, updated_at FROM orders
WHERE id < :before AND (CAST(:statuses AS text[]) IS NULL OR status = ANY (CAST(:statuses AS text[])))
  AND (CAST(:customers AS text[]) IS NULL OR customer_id = ANY (CAST(:customers AS text[])))
ORDER BY id DESC LIMIT :most""")  # noqa: S608

_FIND = text(f"SELECT {_COLUMNS}, created_at, updated_at FROM orders WHERE id = :id")  # noqa: S608


@dataclass(frozen=True, slots=True)
class OrderRecord:
    """An order as it stands in the table, with the times the database gave it."""

    order: Order
    created_at: datetime
    updated_at: datetime


class StaleOrder(Exception):
    """Someone else moved the order between reading and saving it."""


async def insert(conn: AsyncConnection, orders: Sequence[tuple[str, tuple[Item, ...]]]) -> list[Order]:
    """Save new orders, given as (customer id, items); returns them with their ids, in the same order."""
    values = {"customer_ids": [c for c, _ in orders], "items": [dump_items(items) for _, items in orders]}
    ids = sorted(await conn.scalars(_INSERT, values))
    return [Order(order_id, customer, items) for order_id, (customer, items) in zip(ids, orders, strict=True)]


async def lock(conn: AsyncConnection, ids: Sequence[int]) -> dict[int, Order]:
    """Read orders for change; unknown ids are missing from the result."""
    return {row.id: _order(row) for row in await conn.execute(_LOCK, {"ids": ids})}


async def save(conn: AsyncConnection, orders: Sequence[Order]) -> dict[int, float]:
    """Save moved orders; returns each one's age in seconds. Raises StaleOrder when one has moved meanwhile."""
    rows = await conn.execute(
        _SAVE,
        {
            "ids": [o.id for o in orders],
            "statuses": [o.status.value for o in orders],
            "versions": [o.version for o in orders],
            "reasons": [o.reason for o in orders],
            "details": [dump_details(o.details) for o in orders],
        },
    )
    ages = {row.id: float(row.age) for row in rows}
    if stale := [o.id for o in orders if o.id not in ages]:
        raise StaleOrder(f"orders {stale} were moved by someone else")
    return ages


async def find(conn: AsyncConnection, order_id: int) -> OrderRecord | None:
    row = (await conn.execute(_FIND, {"id": order_id})).first()
    return None if row is None else _record(row)


async def page(
    conn: AsyncConnection,
    *,
    before: int,
    most: int,
    statuses: Sequence[OrderStatus] | None = None,
    customers: Collection[str] | None = None,
) -> list[OrderRecord]:
    """At most `most` orders with ids below `before`, the newest first; None filters nothing."""
    values = {
        "before": before,
        "most": most,
        "statuses": None if statuses is None else [s.value for s in statuses],
        "customers": None if customers is None else sorted(customers),
    }
    return [_record(row) for row in await conn.execute(_PAGE, values)]


def _record(row: Row[tuple[object, ...]]) -> OrderRecord:
    return OrderRecord(_order(row), row.created_at, row.updated_at)


def _order(row: Row[tuple[object, ...]]) -> Order:
    return Order(
        row.id,
        row.customer_id,
        load_items(row.items),
        OrderStatus(row.status),
        row.version,
        row.reason,
        load_details(row.details),
    )
