"""The outbox table: events are written in the transaction that makes them true, and published from here."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

CHANNEL = "outbox"

_ADD = text("""
WITH new AS (
  INSERT INTO outbox_event (order_id, sequence, type, data, traceparent)
  SELECT * FROM unnest(CAST(:order_ids AS bigint[]), CAST(:sequences AS int[]), CAST(:types AS text[]),
                       CAST(:datas AS jsonb[]), CAST(:traceparents AS text[]))
  RETURNING 1)
SELECT pg_notify(:channel, '') FROM new""")

# An order's events go out in their sequence: one that has an unpublished elder waits for it.
_CLAIM = text("""
UPDATE outbox_event SET next_attempt_at = now() + make_interval(secs => :lease), attempts = attempts + 1,
       lease_token = lease_token + 1
WHERE event_id = ANY (ARRAY(
  SELECT event_id FROM outbox_event AS e
  WHERE status = 'PENDING' AND next_attempt_at <= now() AND NOT EXISTS (
    SELECT FROM outbox_event AS elder
    WHERE elder.order_id = e.order_id AND elder.sequence < e.sequence AND elder.status = 'PENDING')
  ORDER BY position LIMIT :batch FOR UPDATE SKIP LOCKED))
RETURNING event_id, position, order_id, sequence, type, data, occurred_at, traceparent, attempts, lease_token""")

_SETTLE = text("""
UPDATE outbox_event AS e SET status = s.status, last_error = s.last_error, lease_token = e.lease_token + 1,
       next_attempt_at = now() + make_interval(secs => s.delay),
       published_at = CASE WHEN s.status = 'PUBLISHED' THEN now() END
FROM unnest(CAST(:event_ids AS uuid[]), CAST(:tokens AS bigint[]), CAST(:statuses AS text[]),
            CAST(:delays AS float8[]), CAST(:last_errors AS text[]))
     AS s (event_id, lease_token, status, delay, last_error)
WHERE e.event_id = s.event_id AND e.lease_token = s.lease_token AND e.status = 'PENDING'
RETURNING e.event_id""")

_FIGURES = text("""
SELECT count(*) AS unsent, coalesce(extract(epoch FROM now() - min(occurred_at)), 0)::float8 AS oldest
FROM (SELECT occurred_at FROM outbox_event WHERE status = 'PENDING' ORDER BY position LIMIT :most) AS waiting""")


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to be published; `data` is JSON text."""

    order_id: int
    sequence: int
    type: str
    data: str
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event under the relay's lease. `event_id` is what consumers tell duplicates by."""

    event_id: str
    position: int
    order_id: int
    sequence: int
    type: str
    data: str
    occurred_at: datetime
    traceparent: str | None
    attempts: int
    lease_token: int


@dataclass(frozen=True, slots=True)
class Delivery:
    """What became of publishing an event: PUBLISHED, PENDING again after `delay` seconds, or PARKED for a person."""

    event: StoredEvent
    status: str
    delay: float = 0.0
    last_error: str | None = None


async def add(conn: AsyncConnection, events: Sequence[NewEvent]) -> None:
    await conn.execute(
        _ADD,
        {
            "order_ids": [e.order_id for e in events],
            "sequences": [e.sequence for e in events],
            "types": [e.type for e in events],
            "datas": [e.data for e in events],
            "traceparents": [e.traceparent for e in events],
            "channel": CHANNEL,
        },
    )


async def claim(engine: AsyncEngine, *, batch: int, lease: float) -> list[StoredEvent]:
    """Lease up to `batch` publishable events for `lease` seconds, oldest first."""
    async with engine.begin() as conn:
        rows = (await conn.execute(_CLAIM, {"batch": batch, "lease": lease})).all()
    return sorted((StoredEvent(str(r[0]), *r[1:]) for r in rows), key=lambda e: e.position)


async def settle(engine: AsyncEngine, deliveries: Sequence[Delivery]) -> None:
    """Keep what became of a batch; deliveries whose lease is gone change nothing."""
    async with engine.begin() as conn:
        await conn.execute(
            _SETTLE,
            {
                "event_ids": [d.event.event_id for d in deliveries],
                "tokens": [d.event.lease_token for d in deliveries],
                "statuses": [d.status for d in deliveries],
                "delays": [d.delay for d in deliveries],
                "last_errors": [d.last_error for d in deliveries],
            },
        )


async def figures(engine: AsyncEngine, most: int = 10_000) -> tuple[int, float]:
    """Events not yet published (counted up to `most`) and the age of the oldest, in seconds."""
    async with engine.connect() as conn:
        row = (await conn.execute(_FIGURES, {"most": most})).one()
    return int(row.unsent), float(row.oldest)
