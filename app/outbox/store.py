"""The outbox table: the statement that makes an event true writes it, and it is published from here."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app import audit
from app.audit import By
from app.retention import LOCK
from app.transaction import rows, transact

CHANNEL = "outbox"

# An order's events go out in their sequence: one that has an elder still to be published waits for it. The elders'
# status is asked for in a way that no partial index answers: such an index knows nothing of orders, and while the
# planner believes it to be empty it would be read from end to end for each row.
_CLAIM = text("""
WITH claimed AS (
  UPDATE outbox_event SET next_attempt_at = now() + make_interval(secs => :lease), attempts = attempts + 1,
         lease_token = lease_token + 1
  WHERE event_id = ANY (ARRAY(
    SELECT event_id FROM outbox_event AS e
    WHERE status = 'PENDING' AND next_attempt_at <= now() AND NOT EXISTS (
      SELECT FROM outbox_event AS elder
      WHERE elder.order_id = e.order_id AND elder.sequence < e.sequence AND elder.status NOT IN ('PUBLISHED', 'PARKED'))
    ORDER BY next_attempt_at LIMIT :batch FOR UPDATE SKIP LOCKED))
  RETURNING event_id, position, order_id, sequence, type, data, occurred_at, traceparent, attempts, lease_token)
SELECT claimed.*, extract(epoch FROM (
    SELECT min(next_attempt_at) FROM outbox_event WHERE status = 'PENDING' AND next_attempt_at > now()
  ) - now())::float8 AS next_due
FROM (SELECT) AS once LEFT JOIN claimed ON true""")

_SETTLE = text("""
UPDATE outbox_event AS e SET status = s.status, attempts = s.attempts, lease_token = e.lease_token + 1,
       next_attempt_at = now() + make_interval(secs => s.delay), last_error = coalesce(s.last_error, e.last_error),
       published_at = CASE WHEN s.status = 'PUBLISHED' THEN now() END
FROM unnest(CAST(:event_ids AS uuid[]), CAST(:tokens AS bigint[]), CAST(:statuses AS text[]),
            CAST(:attempts AS int[]), CAST(:delays AS float8[]), CAST(:last_errors AS text[]))
     AS s (event_id, lease_token, status, attempts, delay, last_error)
WHERE e.event_id = s.event_id AND e.lease_token = s.lease_token AND e.status = 'PENDING'
RETURNING e.event_id""")

_FIGURES = text("""
SELECT count(*) AS unsent, coalesce(extract(epoch FROM now() - min(occurred_at)), 0)::float8 AS oldest,
       (SELECT count(*) FROM (SELECT FROM outbox_event WHERE status = 'PARKED' LIMIT :most) AS aside) AS parked
FROM (SELECT occurred_at FROM outbox_event WHERE status = 'PENDING' ORDER BY position LIMIT :most) AS waiting""")

_SEEN = """
SELECT CAST(event_id AS text), order_id, sequence, type, status, attempts, last_error, occurred_at, published_at
FROM outbox_event WHERE """

# Newest first, along the unique position.
_LISTING = text(f"""{_SEEN}
status = ANY (CAST(:statuses AS text[])) AND (CAST(:order_id AS bigint) IS NULL OR order_id = :order_id)
ORDER BY position DESC LIMIT :most""")

# The token is not reset: a relay that still holds an old lease stays shut out.
_REVIVE = text("""
UPDATE outbox_event SET status = 'PENDING', attempts = 0, next_attempt_at = now(), lease_token = lease_token + 1
WHERE event_id = CAST(:event_id AS uuid) AND status = 'PARKED'
RETURNING order_id, pg_notify(:channel, '')""")

# Order by order along the unique index, so that no plan reads what the other orders have told.
_SINCE = text("""
SELECT e.* FROM unnest(CAST(:order_ids AS bigint[]), CAST(:seen AS int[])) AS known (order_id, sequence)
CROSS JOIN LATERAL (
  SELECT event_id, position, order_id, sequence, type, data, occurred_at, traceparent, attempts, lease_token
  FROM outbox_event WHERE order_id = known.order_id AND sequence > known.sequence ORDER BY sequence LIMIT :most) AS e
ORDER BY e.order_id, e.sequence""")

# As the tasks are deleted: along an index that is there anyway, up to where the events are too young.
_DELETE = text("""
WITH passed AS (
  SELECT position, occurred_at FROM outbox_event
  WHERE (SELECT pg_try_advisory_xact_lock(:lock)) AND position > :after ORDER BY position LIMIT :batch),
deleted AS (
  DELETE FROM outbox_event WHERE position = ANY (ARRAY(
    SELECT position FROM outbox_event WHERE position = ANY (ARRAY(SELECT position FROM passed))
      AND status = 'PUBLISHED' AND published_at < now() - make_interval(secs => :older_than) FOR UPDATE SKIP LOCKED))
  RETURNING 1)
SELECT (SELECT count(*) FROM deleted) AS deleted,
       CASE WHEN max(occurred_at) < now() - make_interval(secs => :older_than) THEN max(position) END AS after
FROM passed""")


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event in the outbox, and the relay's lease on it. `event_id` is what consumers tell duplicates by."""

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
class Claim:
    """The events taken, and the seconds until the next falls due (None: none is waiting)."""

    events: list[StoredEvent]
    next_due: float | None


@dataclass(frozen=True, slots=True)
class Delivery:
    """What became of publishing an event: PUBLISHED, PENDING again after `delay` seconds, or PARKED for a person."""

    event: StoredEvent
    status: Literal["PUBLISHED", "PENDING", "PARKED"]
    attempts: int
    delay: float = 0.0
    last_error: str | None = None


class EventView(NamedTuple):
    """An event as an operator sees it."""

    event_id: str
    order_id: int
    sequence: int
    type: str
    status: str
    attempts: int
    last_error: str | None
    occurred_at: datetime
    published_at: datetime | None


class Figures(NamedTuple):
    """Events to be published, the age of the oldest in seconds, and events that wait for a person."""

    unsent: int
    oldest: float
    parked: int


def given_back(event: StoredEvent) -> Delivery:
    """The event was not tried: it is due at once, with its attempts as they were."""
    return Delivery(event, "PENDING", event.attempts - 1)


async def claim(engine: AsyncEngine, *, batch: int, lease: float) -> Claim:
    """Lease up to `batch` due events for `lease` seconds, at most one of each order: the eldest to be published."""
    found = await transact(engine, lambda conn: rows(conn, _CLAIM, {"batch": batch, "lease": lease}))
    events = [StoredEvent(str(r[0]), *r[1:10]) for r in found if r[0] is not None]
    return Claim(sorted(events, key=lambda e: e.position), found[0].next_due)


async def settle(engine: AsyncEngine, deliveries: Sequence[Delivery]) -> set[str]:
    """Keep what became of a batch; deliveries whose lease is gone change nothing. Returns the ids of the others."""
    values = {
        "event_ids": [d.event.event_id for d in deliveries],
        "tokens": [d.event.lease_token for d in deliveries],
        "statuses": [d.status for d in deliveries],
        "attempts": [d.attempts for d in deliveries],
        "delays": [d.delay for d in deliveries],
        "last_errors": [d.last_error for d in deliveries],
    }
    held = await transact(engine, lambda conn: rows(conn, _SETTLE, values))
    return {str(row.event_id) for row in held}


async def since(conn: AsyncConnection, seen: Mapping[int, int], most: int) -> list[StoredEvent]:
    """By order id and sequence: at most `most` events of each order after the sequence that `seen` has for it."""
    values = {"order_ids": list(seen), "seen": list(seen.values()), "most": most}
    return [StoredEvent(str(row[0]), *row[1:]) for row in await conn.execute(_SINCE, values)]


async def figures(engine: AsyncEngine, most: int = 10_000) -> Figures:
    """How the outbox stands; each count ends at `most`."""
    async with engine.connect() as conn:
        row = (await conn.execute(_FIGURES, {"most": most})).one()
    return Figures(int(row.unsent), float(row.oldest), int(row.parked))


async def listing(
    engine: AsyncEngine, statuses: Sequence[str], most: int, order_id: int | None = None
) -> list[EventView]:
    """The newest `most` events that have one of the statuses, of all orders or of one."""
    async with engine.connect() as conn:
        rows = await conn.execute(_LISTING, {"statuses": list(statuses), "most": most, "order_id": order_id})
    return [EventView(*row) for row in rows]


async def revive(engine: AsyncEngine, event_id: str, by: By) -> int | None:
    """Give a PARKED event its attempts back, due now; returns its order's id, None when it is not PARKED."""

    def work(conn: Connection) -> int | None:
        row = conn.execute(_REVIVE, {"event_id": event_id, "channel": CHANNEL}).first()
        if row is None:
            return None
        audit.record(conn, by, "retry", f"outbox_event/{event_id}")
        return int(row.order_id)

    return await transact(engine, work)


async def delete_published(engine: AsyncEngine, older_than: float, batch: int) -> AsyncGenerator[int, None]:
    """Delete events that were published more than `older_than` seconds ago; parked ones stay, a person decides.

    Each transaction looks at `batch` rows; yields how many each has deleted.
    """
    after: int | None = 0
    while after is not None:
        values = {"lock": LOCK, "after": after, "batch": batch, "older_than": older_than}
        async with engine.begin() as conn:
            deleted, after = (await conn.execute(_DELETE, values)).one()
        yield deleted
