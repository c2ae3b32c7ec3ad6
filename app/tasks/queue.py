"""A `*_task` table as a queue: every statement that touches one stands here."""

import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, TextClause, text
from sqlalchemy.ext.asyncio import AsyncEngine

from app.retention import LOCK
from app.tasks.settlement import Settlement
from app.tasks.standing import SEEN, TaskView, seen
from app.tasks.task import Lease, Task, TaskStatus
from app.transaction import autocommit, rows, transact

CHANNEL = "task_due"

NEWEST = 2**63 - 1
"""Above every task's id but the very last that there can be."""

LOOK_BACK, OVERLAP = 5.0, timedelta(seconds=1)
"""How often a claim looks at all due rows, and by how much it overlaps with the last one when it does not."""

UNANSWERED = 1000
"""Rows of unanswered claims that are remembered at most; the leases of others run out."""

# One statement claims and tells when to look again. The rows' status does not change: if their worker dies, the lease
# runs out and they are simply due. `= ANY (ARRAY(...))` keeps the update on the primary key whatever the statistics. No
# row's count can overflow: the rows claimed along with it would be stuck. Before `:since` there is hardly anything but
# index entries of rows that were moved on: while somebody keeps an old snapshot they cannot be removed, and each claim
# would walk past all of them. As a comparison of rows it bounds the walk without the planner taking two bounds for few
# rows, which it would rather sort. What subselects bound, the planner cannot guess at: it plans once, not each claim.
_CLAIM = """
WITH due AS MATERIALIZED (
  SELECT task_id, next_attempt_at FROM {table}
  WHERE status IN ('PENDING', 'IN_PROGRESS') AND next_attempt_at <= now()
    AND (next_attempt_at, task_id) >= ((SELECT coalesce(CAST(:since AS timestamptz), '-infinity')), 0)
  ORDER BY next_attempt_at LIMIT (SELECT CAST(:batch AS int)) FOR UPDATE SKIP LOCKED),
claimed AS (
  UPDATE {table} SET next_attempt_at = now() + make_interval(secs => :lease), lease_token = lease_token + 1,
         retry_count = least(retry_count, 2147483646) + 1, updated_at = now()
  WHERE task_id = ANY (ARRAY(SELECT task_id FROM due))
  RETURNING task_id, order_id, status, retry_count, lease_token, payload, payload ->> 'key', external_id, traceparent,
            next_attempt_at AS lease_ends)
SELECT claimed.*, (SELECT max(next_attempt_at) FROM due) AS reached,
  CASE WHEN (SELECT count(*) FROM due) < :batch THEN extract(epoch FROM (
    SELECT min(next_attempt_at) FROM {table}
    WHERE status IN ('PENDING', 'IN_PROGRESS') AND next_attempt_at > now()) - now())::float8 END AS next_due
FROM (SELECT) AS once LEFT JOIN claimed ON true"""

# For a claim whose COMMIT was not answered. If it was rolled back, the next one, anybody's, has the same token: only by
# the lease's end as well, which no two claims share, are the rows known. Locked ones are about to be rolled back.
_GIVE_BACK = """
UPDATE {table} SET next_attempt_at = now(), retry_count = greatest(retry_count - 1, 0), lease_token = lease_token + 1
WHERE task_id = ANY (ARRAY(
  SELECT t.task_id FROM {table} AS t
  JOIN unnest(CAST(:task_ids AS bigint[]), CAST(:tokens AS bigint[]), CAST(:ends AS timestamptz[]))
       AS s (task_id, lease_token, ends) ON s.task_id = t.task_id AND s.lease_token = t.lease_token
  WHERE t.next_attempt_at = s.ends AND t.status IN ('PENDING', 'IN_PROGRESS') FOR UPDATE OF t SKIP LOCKED))"""

# The fence: only the lease that did the work may settle it, and only once. The token moves on even where the row stays
# active, so that a repeated settle changes nothing.
_SETTLE = """
UPDATE {table} AS t SET status = s.status, retry_count = s.retry_count, lease_token = t.lease_token + 1,
       next_attempt_at = now() + make_interval(secs => s.delay),
       external_id = CASE WHEN s.ended THEN NULL ELSE coalesce(s.external_id, t.external_id) END,
       payload = CASE WHEN s.ended THEN t.payload || jsonb_build_object('key', gen_random_uuid()) ELSE t.payload END,
       last_error = s.last_error, updated_at = now()
FROM unnest(CAST(:task_ids AS bigint[]), CAST(:tokens AS bigint[]), CAST(:statuses AS text[]),
            CAST(:retry_counts AS int[]), CAST(:delays AS float8[]), CAST(:external_ids AS text[]),
            CAST(:last_errors AS text[]), CAST(:ended AS bool[]))
     AS s (task_id, lease_token, status, retry_count, delay, external_id, last_error, ended)
WHERE t.task_id = s.task_id AND t.lease_token = s.lease_token AND t.status IN ('PENDING', 'IN_PROGRESS')
RETURNING t.task_id, s.lease_token"""

# `key` names the operation at the system: it stays the same whatever happens, until the system itself ends it.
_ENQUEUE = """
WITH new AS (
  INSERT INTO {table} (order_id, status, next_attempt_at, payload, traceparent)
  SELECT order_id, 'PENDING', now(), payload || jsonb_build_object('key', gen_random_uuid()), traceparent
  FROM unnest(CAST(:order_ids AS bigint[]), CAST(:payloads AS jsonb[]), CAST(:traceparents AS text[]))
       AS n (order_id, payload, traceparent)
  RETURNING order_id, task_id)
SELECT order_id, task_id, pg_notify(:channel, :table) FROM new"""

# Taken back before anything was sent or, with `:sent`, at any time: the lease, if there is one, loses its fence.
_WITHDRAW = """
UPDATE {table} SET status = 'COMPLETED', last_error = :reason, lease_token = lease_token + 1, updated_at = now()
WHERE order_id = :order_id AND status IN ('PENDING', 'IN_PROGRESS')
  AND (:sent OR (status = 'PENDING' AND retry_count = 0 AND payload -> 'revived' IS NULL))
RETURNING task_id"""

# The token is not reset: a worker that still holds an old lease stays shut out. Nor is it forgotten that attempts were
# made, though they are counted anew: one of them may have reached the system.
_REVIVE = """
UPDATE {table} SET status = CASE WHEN external_id IS NULL THEN 'PENDING' ELSE 'IN_PROGRESS' END, retry_count = 0,
       payload = payload || '{{"revived": true}}', next_attempt_at = now(), lease_token = lease_token + 1,
       updated_at = now()
WHERE task_id = :task_id AND status = 'FAILED'
RETURNING order_id, pg_notify(:channel, :table)"""

# Newest first, along the primary key. The statuses are literals, so that failed rows alone are found in their index.
_LISTING = f"""{SEEN}
status IN ({{statuses}}) AND task_id < :before ORDER BY task_id DESC LIMIT :most"""

_ONE = f"{SEEN} task_id = :task_id"

# Along the primary key, up to where the rows are too young: they finish roughly in the order of their ids, so there is
# no need of an index that every settle would have to write to. A row that somebody has locked is for the next time.
_DELETE = """
WITH passed AS (
  SELECT task_id, created_at FROM {table}
  WHERE (SELECT pg_try_advisory_xact_lock(:lock)) AND task_id > :after ORDER BY task_id LIMIT :batch),
deleted AS (
  DELETE FROM {table} WHERE task_id = ANY (ARRAY(
    SELECT task_id FROM {table} WHERE task_id = ANY (ARRAY(SELECT task_id FROM passed)) AND status = 'COMPLETED'
      AND updated_at < now() - make_interval(secs => :older_than) FOR UPDATE SKIP LOCKED))
  RETURNING 1)
SELECT (SELECT count(*) FROM deleted) AS deleted,
       CASE WHEN max(created_at) < now() - make_interval(secs => :older_than) THEN max(task_id) END AS after
FROM passed"""

# Bounded by :most, so that a scrape costs the same whatever the backlog.
_FIGURES = """
SELECT count(*) AS due, coalesce(extract(epoch FROM now() - min(next_attempt_at)), 0)::float8 AS oldest
FROM (SELECT next_attempt_at FROM {table}
      WHERE status IN ('PENDING', 'IN_PROGRESS') AND next_attempt_at <= now()
      ORDER BY next_attempt_at LIMIT :most) AS waiting"""


@dataclass(frozen=True, slots=True)
class Claim:
    """The rows taken and, if there were no more, the seconds until the next row falls due (None: none is waiting)."""

    tasks: list[Task]
    next_due: float | None


@dataclass(frozen=True, slots=True)
class NewTask:
    order_id: int
    payload: str
    traceparent: str | None = None


class TaskQueue:
    """One `*_task` table."""

    def __init__(self, table: str, engine: AsyncEngine) -> None:
        if not table.isidentifier():
            raise ValueError(f"{table!r} is no table name")
        self.table, self._engine, self._autocommit = table, engine, autocommit(engine)
        self._claim, self._settle = _statement(_CLAIM, table), _statement(_SETTLE, table)
        self._enqueue, self._withdraw = _statement(_ENQUEUE, table), _statement(_WITHDRAW, table)
        self._revive, self._figures = _statement(_REVIVE, table), _statement(_FIGURES, table)
        self._give_back = _statement(_GIVE_BACK, table)
        self._unanswered: deque[tuple[int, int, datetime]] = deque(maxlen=UNANSWERED)
        self._since: datetime | None = None
        self._looked_back = 0.0

    async def claim(self, batch: int, lease: float) -> Claim:
        """Lease up to `batch` due rows for `lease` seconds; each claim counts as an attempt, if it is answered."""
        if (now := time.monotonic()) - self._looked_back > LOOK_BACK:
            self._since, self._looked_back = None, now
        claimed: list[Any] = []

        def work(conn: Connection) -> Sequence[Any]:
            self._give_back_on(conn)
            found = rows(conn, self._claim, {"batch": batch, "lease": lease, "since": self._since})
            claimed.extend(row for row in found if row.task_id is not None)
            return found

        try:
            found = await transact(self._engine, work)
        except BaseException:
            self._unanswered.extend((row.task_id, row.lease_token, row.lease_ends) for row in claimed)
            raise
        self._unanswered.clear()
        if claimed:
            self._since = found[0].reached - OVERLAP
        return Claim([Task(r[0], r[1], TaskStatus(r[2]), *r[3:9]) for r in claimed], found[0].next_due)

    async def give_back(self) -> None:
        """Give back the rows of claims whose COMMIT was not answered: no claim will follow."""
        if self._unanswered:
            await transact(self._engine, self._give_back_on)
            self._unanswered.clear()

    async def settle(
        self,
        settlements: Sequence[Settlement],
        apply: Callable[[Connection, list[Settlement]], None],
    ) -> set[Lease]:
        """Settle rows and apply the effects of those whose leases still hold, in one transaction; returns these."""

        def work(conn: Connection) -> set[Lease]:
            held = {Lease(*row) for row in rows(conn, self._settle, _columns(settlements))}
            if effects := [s for s in settlements if s.effect is not None and s.task.under in held]:
                apply(conn, effects)
            return held

        alone = all(s.effect is None for s in settlements)
        return await transact(self._autocommit if alone else self._engine, work)

    def enqueue(self, conn: Connection, tasks: Sequence[NewTask]) -> dict[int, int]:
        """Add tasks that are due at once and wake the pollers at commit; returns task ids by order id."""
        added = rows(
            conn,
            self._enqueue,
            {
                "order_ids": [t.order_id for t in tasks],
                "payloads": [t.payload for t in tasks],
                "traceparents": [t.traceparent for t in tasks],
                "channel": CHANNEL,
                "table": self.table,
            },
        )
        return {row.order_id: row.task_id for row in added}

    def withdraw(self, conn: Connection, order_id: int, *, reason: str, sent: bool) -> bool:
        """Close the order's active task without a result. With `sent` false only if no attempt was ever made."""
        values = {"order_id": order_id, "reason": reason, "sent": sent}
        return conn.execute(self._withdraw, values).first() is not None

    def revive(self, conn: Connection, task_id: int) -> int | None:
        """Give a FAILED task its attempts back, due now; returns its order's id, None when it is not FAILED."""
        values = {"task_id": task_id, "channel": CHANNEL, "table": self.table}
        row = conn.execute(self._revive, values).first()
        return None if row is None else int(row.order_id)

    async def figures(self, most: int = 10_000) -> tuple[int, float]:
        """Due rows (counted up to `most`) and the age of the oldest, in seconds."""
        async with self._engine.connect() as conn:
            row = (await conn.execute(self._figures, {"most": most})).one()
        return int(row.due), float(row.oldest)

    async def listing(
        self, statuses: Sequence[TaskStatus], most: int, before: int = NEWEST
    ) -> list[tuple[int, TaskView]]:
        """The newest `most` tasks that have one of the statuses and ids below `before`, each with its order's id."""
        literals = ", ".join(f"'{status.value}'" for status in statuses)
        listing = text(_LISTING.format(table=self.table, statuses=literals))
        async with self._engine.connect() as conn:
            rows = await conn.execute(listing, {"most": most, "before": before})
        return [seen(row) for row in rows]

    async def find(self, task_id: int) -> tuple[int, TaskView] | None:
        """The task with its order's id; None when there is none."""
        async with self._engine.connect() as conn:
            row = (await conn.execute(_statement(_ONE, self.table), {"task_id": task_id})).first()
        return None if row is None else seen(row)

    async def delete_completed(self, older_than: float, batch: int) -> AsyncGenerator[int, None]:
        """Delete tasks that were completed more than `older_than` seconds ago; FAILED ones stay, an operator may retry.

        Each transaction looks at `batch` rows; yields how many each has deleted.
        """
        after: int | None = 0
        while after is not None:
            values = {"lock": LOCK, "after": after, "batch": batch, "older_than": older_than}
            async with self._engine.begin() as conn:
                deleted, after = (await conn.execute(_statement(_DELETE, self.table), values)).one()
            yield deleted

    def _give_back_on(self, conn: Connection) -> None:
        if self._unanswered:
            ids, tokens, ends = map(list, zip(*self._unanswered, strict=True))
            conn.execute(self._give_back, {"task_ids": ids, "tokens": tokens, "ends": ends})


def _statement(sql: str, table: str) -> TextClause:
    return text(sql.format(table=table))


def _columns(settlements: Sequence[Settlement]) -> dict[str, list[Any]]:
    """Rows as arrays, in the order of their ids so that two batches lock in the same order."""
    rows = sorted(settlements, key=lambda s: s.task.task_id)
    return {
        "task_ids": [s.task.task_id for s in rows],
        "tokens": [s.task.lease_token for s in rows],
        "statuses": [s.status.value for s in rows],
        "retry_counts": [s.retry_count for s in rows],
        "delays": [s.delay for s in rows],
        "external_ids": [s.external_id for s in rows],
        "last_errors": [s.last_error for s in rows],
        "ended": [s.ended for s in rows],
    }
