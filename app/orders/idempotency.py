"""The idempotency keys: what a client calls its request by, and the order that the request made."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.retention import LOCK

# Nobody waits for anybody: while another transaction holds the key its advisory lock cannot be had, and a key that is
# there already is a conflict. Either way the row is missing from the answer.
_CLAIM = text("""
INSERT INTO idempotency_key (caller, key, fingerprint)
SELECT caller, key, fingerprint
FROM unnest(CAST(:callers AS text[]), CAST(:keys AS text[]), CAST(:fingerprints AS bytea[]))
     AS n (caller, key, fingerprint)
WHERE pg_try_advisory_xact_lock(hashtextextended(key, hashtextextended(caller, 0)))
ON CONFLICT DO NOTHING
RETURNING caller, key""")

_ANSWER = text("""
UPDATE idempotency_key AS k SET order_id = n.order_id, task_id = n.task_id
FROM unnest(CAST(:callers AS text[]), CAST(:keys AS text[]), CAST(:order_ids AS bigint[]), CAST(:task_ids AS bigint[]))
     AS n (caller, key, order_id, task_id)
WHERE k.caller = n.caller AND k.key = n.key""")

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


async def claim(conn: AsyncConnection, keys: Sequence[Key | None]) -> list[Key | None]:
    """Take keys for the transaction; returns, each in its place, those that this was not the first use of.

    Such a key was used before, is used a second time in `keys`, or is held by a transaction under way.
    """
    wanted = {key.id: key for key in reversed(keys) if key is not None}
    if not wanted:
        return [None for _ in keys]
    values = {**_ids([*wanted.values()]), "fingerprints": [key.fingerprint for key in wanted.values()]}
    taken = {(row.caller, row.key) for row in await conn.execute(_CLAIM, values)}
    repeats: list[Key | None] = []
    for key in keys:
        first = key is None or key.id in taken
        repeats.append(None if first else key)
        if key is not None:
            taken.discard(key.id)
    return repeats


async def answer(conn: AsyncConnection, made: Mapping[Key, tuple[int, int]]) -> None:
    """Note at claimed keys which order and which task, by their ids, their requests have made."""
    if made:
        order_ids, task_ids = zip(*made.values(), strict=True)
        await conn.execute(_ANSWER, {**_ids([*made]), "order_ids": order_ids, "task_ids": task_ids})


async def find(conn: AsyncConnection, keys: Sequence[Key]) -> dict[tuple[str, str], Answered]:
    """The answers given to earlier requests, by caller and key; what is under way is missing."""
    if not keys:
        return {}
    return {(row.caller, row.key): Answered(*row[2:]) for row in await conn.execute(_FIND, _ids(keys))}


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
