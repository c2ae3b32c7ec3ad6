"""The idempotency keys: what a client calls its request by, and the order that the request made."""

from collections.abc import AsyncGenerator, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncEngine

from app.retention import LOCK

_FIND = text("""
SELECT caller, key, fingerprint, order_id, task_id
FROM idempotency_key JOIN unnest(CAST(:callers AS text[]), CAST(:keys AS text[])) AS n (caller, key) USING (caller, key)
""")

_DELETE = text("""
DELETE FROM idempotency_key WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM idempotency_key
  WHERE (SELECT pg_try_advisory_xact_lock(:lock)) AND created_at < now() - make_interval(secs => :older_than)
  ORDER BY created_at LIMIT :batch FOR UPDATE SKIP LOCKED))""")


class Key(NamedTuple):
    """A request's key, which is its caller's own; `fingerprint` is the SHA-256 of the request's body."""

    caller: str
    name: str
    fingerprint: bytes

    @property
    def id(self) -> tuple[str, str]:
        return self.caller, self.name


class Answered(NamedTuple):
    """What the first request with a key was, and what it made."""

    fingerprint: bytes
    order_id: int
    task_id: int


def find(conn: Connection, keys: Sequence[Key]) -> dict[tuple[str, str], Answered]:
    """The answers given to earlier requests, by caller and key; what is under way is missing."""
    if not keys:
        return {}
    return {(row.caller, row.key): Answered(*row[2:]) for row in conn.execute(_FIND, _ids(keys))}


async def delete_old(engine: AsyncEngine, older_than: float, batch: int) -> AsyncGenerator[int, None]:
    """Forget keys after `older_than` seconds, `batch` in each transaction; yields how many each has deleted."""
    deleted = batch
    while deleted == batch:
        async with engine.begin() as conn:
            result = await conn.execute(_DELETE, {"lock": LOCK, "older_than": older_than, "batch": batch})
            deleted = result.rowcount
        yield deleted


def _ids(keys: Sequence[Key]) -> dict[str, list[str]]:
    return {"callers": [key.caller for key in keys], "keys": [key.name for key in keys]}
