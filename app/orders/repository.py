"""The orders table, and the statements that bring orders in and move them, each with the event that tells of it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.orders.idempotency import Key
from app.orders.order import Event, Order, OrderStatus
from app.orders.snapshot import dump_details, load_details, load_items
from app.outbox import store
from app.tasks import queue
from app.transaction import rows

_COLUMNS = "id, customer_id, items, status, version, reason, details"

# An order, its first task and event and its key stand or fall together, in one statement: it is one round trip, and no
# transaction stays open between two of them. The ids are drawn first, so that each row may name the others. Nobody
# waits for anybody's key: while another transaction holds it its advisory lock cannot be had, and one that is there
# already is a conflict. Either way the order is not made.
_PLACE = """
WITH given AS MATERIALIZED (
  SELECT nextval('orders_id_seq') AS order_id, nextval('{table}_task_id_seq') AS task_id, n.*
  FROM unnest(CAST(:payloads AS jsonb[]), CAST(:traceparents AS text[]), CAST(:callers AS text[]),
              CAST(:keys AS text[]), CAST(:fingerprints AS bytea[])) WITH ORDINALITY
       AS n (payload, traceparent, caller, key, fingerprint, place)),
keyed AS (
  INSERT INTO idempotency_key (caller, key, fingerprint, order_id, task_id)
  SELECT caller, key, fingerprint, order_id, task_id FROM given
  WHERE key IS NOT NULL AND pg_try_advisory_xact_lock(hashtextextended(key, hashtextextended(caller, 0)))
  ON CONFLICT DO NOTHING RETURNING order_id),
new AS (SELECT * FROM given WHERE key IS NULL OR order_id IN (SELECT order_id FROM keyed)),
placed AS (
  INSERT INTO orders (id, customer_id, items, status) OVERRIDING SYSTEM VALUE
  SELECT order_id, payload ->> 'customer_id', payload -> 'items', payload ->> 'status' FROM new),
queued AS (
  INSERT INTO {table} (task_id, order_id, status, next_attempt_at, payload, traceparent) OVERRIDING SYSTEM VALUE
  SELECT task_id, order_id, 'PENDING', now(), payload || jsonb_build_object('key', gen_random_uuid()), traceparent
  FROM new),
told AS (
  INSERT INTO outbox_event (order_id, sequence, type, data, traceparent)
  SELECT order_id, :sequence, :type, CAST(:data AS jsonb), traceparent FROM new)
SELECT new.order_id, new.task_id, pg_notify(:tasks, '{table}'), pg_notify(:events, '')
FROM given LEFT JOIN new USING (place) ORDER BY place"""

_LOCK = text(f"""
SELECT {_COLUMNS} FROM orders WHERE id = ANY (CAST(:ids AS bigint[]))
ORDER BY id FOR NO KEY UPDATE""")  # noqa: S608

_SAVE = text("""
WITH moved AS MATERIALIZED (
  SELECT * FROM unnest(
    CAST(:ids AS bigint[]), CAST(:statuses AS text[]), CAST(:versions AS int[]), CAST(:reasons AS text[]),
    CAST(:details AS jsonb[]), CAST(:sequences AS int[]), CAST(:types AS text[]), CAST(:datas AS jsonb[]),
    CAST(:traceparents AS text[])
  ) AS m (id, status, version, reason, details, sequence, type, data, traceparent)),
saved AS (
  UPDATE orders AS o
  SET status = m.status, version = m.version, reason = m.reason, details = m.details, updated_at = now()
  FROM moved AS m WHERE o.id = m.id AND o.version = m.version - 1
  RETURNING o.id, o.created_at),
told AS (
  INSERT INTO outbox_event (order_id, sequence, type, data, traceparent)
  SELECT id, sequence, type, data, traceparent FROM moved JOIN saved USING (id))
SELECT id, extract(epoch FROM now() - created_at)::float8 AS age, pg_notify(:channel, '') FROM saved""")

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


class NewOrder(NamedTuple):
    """An order to be placed: its snapshot as JSON text, which its first task gets too, and its client's key."""

    payload: str
    traceparent: str | None
    key: Key | None


class Moved(NamedTuple):
    """An order after its move, the event that tells of it, and the trace it belongs to."""

    order: Order
    event: Event
    traceparent: str | None = None


class StaleOrder(Exception):
    """Someone else moved the order between reading and saving it."""


def place(conn: Connection, orders: Sequence[NewOrder], opening: Event, table: str) -> list[tuple[int, int] | None]:
    """Save new orders, each with the event that opens its history and a task in `table`, which is due at once.

    Returns the ids of each order and its task, or None where a key stands in the way: one that was used before, earlier
    in `orders` as well, or that a transaction under way holds.
    """
    keys = [order.key for order in orders]
    made = rows(
        conn,
        _placing(table),
        {
            "payloads": [order.payload for order in orders],
            "traceparents": [order.traceparent for order in orders],
            "callers": [key and key.caller for key in keys],
            "keys": [key and key.name for key in keys],
            "fingerprints": [key and key.fingerprint for key in keys],
            "sequence": opening.sequence,
            "type": opening.type,
            "data": dump_details(opening.data),
            "tasks": queue.CHANNEL,
            "events": store.CHANNEL,
        },
    )
    return [None if row[0] is None else (row[0], row[1]) for row in made]


def lock(conn: Connection, ids: Sequence[int]) -> dict[int, Order]:
    """Read orders for change; unknown ids are missing from the result."""
    return {row.id: _order(row) for row in rows(conn, _LOCK, {"ids": ids})}


def save(conn: Connection, moves: Sequence[Moved]) -> dict[int, float]:
    """Save moved orders with their events; returns each order's age in seconds.

    Raises StaleOrder when one has moved meanwhile.
    """
    orders, events = [m.order for m in moves], [m.event for m in moves]
    saved = rows(
        conn,
        _SAVE,
        {
            "ids": [o.id for o in orders],
            "statuses": [o.status.value for o in orders],
            "versions": [o.version for o in orders],
            "reasons": [o.reason for o in orders],
            "details": [dump_details(o.details) for o in orders],
            "sequences": [e.sequence for e in events],
            "types": [e.type for e in events],
            "datas": [dump_details(e.data) for e in events],
            "traceparents": [m.traceparent for m in moves],
            "channel": store.CHANNEL,
        },
    )
    ages = {row.id: float(row.age) for row in saved}
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


@cache
def _placing(table: str) -> TextClause:
    return text(_PLACE.format(table=table))


def _record(row: Row[tuple[object, ...]]) -> OrderRecord:
    return OrderRecord(_order(row), row.created_at, row.updated_at)


def _order(row: Sequence[Any]) -> Order:
    """The first of the row are _COLUMNS."""
    order_id, customer_id, items, status, version, reason, details = row[:7]
    return Order(order_id, customer_id, load_items(items), OrderStatus(status), version, reason, load_details(details))
