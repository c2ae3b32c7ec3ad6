"""The statements of the outbox, on a real PostgreSQL."""

import asyncio

import pytest
from sqlalchemy import text

from app.db import Database
from app.outbox import store
from app.outbox.store import Delivery, StoredEvent
from tests.component.outbox.events import add, fill, rows, run
from tests.rows import insert_orders


async def claim(database: Database, batch: int = 100, lease: float = 30) -> list[StoredEvent]:
    return (await store.claim(database.engine, batch=batch, lease=lease)).events


async def settle(database: Database, event: StoredEvent, status: str = "PUBLISHED", delay: float = 0) -> set[str]:
    delivery = Delivery(event, status, event.attempts, delay)  # type: ignore[arg-type]
    return await store.settle(database.engine, [delivery])


async def test_a_claim_takes_the_eldest_event_of_each_order(database: Database) -> None:
    """Two events of one order are never on their way at once, and what is leased counts an attempt."""
    ids = await fill(database, 3, 1, 2, 3)
    events = await claim(database)
    assert [(e.order_id, e.sequence, e.attempts, e.lease_token) for e in events] == [(i, 1, 1, 1) for i in ids]
    assert await claim(database) == []
    claimed = [row for row in await rows(database) if row.sequence == 1]
    assert all(28 < row.due_in <= 30 for row in claimed)


@pytest.mark.parametrize(
    ("status", "delay", "goes_on"), [("PUBLISHED", 0, True), ("PARKED", 0, True), ("PENDING", 60, False)]
)
async def test_what_the_next_event_waits_for(database: Database, status: str, delay: float, goes_on: bool) -> None:
    """The next event of an order goes once its elder is published or parked, not while it waits to be tried again."""
    await fill(database, 1, 1, 2)
    (elder,) = await claim(database)
    await settle(database, elder, status, delay)
    assert [e.sequence for e in await claim(database)] == ([2] if goes_on else [])


@pytest.mark.rule("WHERE-3")
async def test_inverted_commits_leave_no_gap(database: Database) -> None:
    """An event that was written first and committed last is published like any other."""
    async with database.engine.connect() as early, database.engine.connect() as late:
        first = await insert_orders(early, 1)
        await add(early, first, 1)
        second = await insert_orders(late, 1)
        await add(late, second, 1)
        await late.commit()
        (event,) = await claim(database)
        await settle(database, event)
        assert event.order_id == second[0]
        await early.commit()
    (straggler,) = await claim(database)
    assert straggler.order_id == first[0]
    assert straggler.position < event.position


async def test_claims_at_the_same_time_share_the_events_out(database: Database) -> None:
    """No event is leased by two relays, and none of them waits for another."""
    await fill(database, 60)
    claims = await asyncio.gather(*(claim(database, batch=10) for _ in range(6)))
    taken = [e.event_id for events in claims for e in events]
    assert len(taken) == len(set(taken))
    assert len(taken) + len(await claim(database)) == 60


async def test_a_claim_tells_when_the_next_event_falls_due(database: Database) -> None:
    """The same statement says how long one may sleep."""
    assert (await store.claim(database.engine, batch=1, lease=30)).next_due is None
    await fill(database, 1, next_attempt_at="now() + interval '9 s'")
    claimed = await store.claim(database.engine, batch=1, lease=30)
    assert claimed.events == []
    assert claimed.next_due == pytest.approx(9, abs=1)


@pytest.mark.parametrize("status", ["PUBLISHED", "PENDING", "PARKED"])
async def test_a_lease_settles_once_and_only_while_it_lasts(database: Database, status: str) -> None:
    """A settle that is repeated, or comes after somebody else's lease began, changes nothing."""
    await fill(database, 1)
    (stale,) = await claim(database, lease=0.05)
    await asyncio.sleep(0.1)
    (fresh,) = await claim(database)
    assert (stale.event_id, stale.lease_token + 1) == (fresh.event_id, fresh.lease_token)
    assert await settle(database, stale, status) == set()
    assert await settle(database, fresh, status) == {fresh.event_id}
    before = (await rows(database))[0]
    assert await settle(database, fresh, "PUBLISHED") == set()
    assert (await rows(database))[0][:-1] == before[:-1]


async def test_what_was_not_tried_keeps_its_attempts_and_its_last_error(database: Database) -> None:
    """An event that is given back is due at once and as it was, but for the fence."""
    await fill(database, 1, attempts=6, last_error="'http_500: no'")
    (event,) = await claim(database)
    await store.settle(database.engine, [store.given_back(event)])
    (row,) = await rows(database)
    assert (row.status, row.attempts, row.last_error) == ("PENDING", 6, "http_500: no")
    assert row.due_in <= 0
    assert row.lease_token == event.lease_token + 1


async def test_the_figures_tell_what_waits_and_what_is_parked(database: Database) -> None:
    """Unsent events, the age of the oldest, and parked events are counted, each up to a limit."""
    assert await store.figures(database.engine) == (0, 0, 0)
    await fill(database, 3, 1, 2, occurred_at="now() - interval '5 min'")
    await run(database, "UPDATE outbox_event SET status = 'PARKED' WHERE sequence = 2")
    unsent, oldest, parked = await store.figures(database.engine)
    assert (unsent, parked) == (3, 3)
    assert 300 <= oldest < 360
    assert (await store.figures(database.engine, most=2))[::2] == (2, 2)


PUBLISHED = """
INSERT INTO outbox_event (order_id, sequence, type, data, status)
SELECT id, sequence, 't', '{}', 'PUBLISHED' FROM orders, generate_series(1, 7) AS sequence"""
PENDING = """
INSERT INTO outbox_event (order_id, sequence, type, data)
SELECT id, sequence, 't', '{}' FROM orders, generate_series(8, 10) AS sequence WHERE id <= 1000"""


@pytest.mark.parametrize("analyzed", ["never", "while nothing waited", "with the backlog"])
async def test_the_claims_cost_is_that_of_its_batch(database: Database, analyzed: str) -> None:
    """Published events and the backlog do not count: due events are read in order, their elders through the key.

    What the planner believes must not matter. Only a table that was never analyzed has its due events sorted.
    """
    analyze = "ANALYZE outbox_event"
    async with database.engine.begin() as conn:
        await conn.execute(text("ALTER TABLE outbox_event SET (autovacuum_enabled = off)"))
        await insert_orders(conn, 3000)
    await run(database, PUBLISHED)
    if analyzed == "while nothing waited":
        await run(database, analyze)
    await run(database, PENDING)
    if analyzed == "with the backlog":
        await run(database, analyze)
    sql = f"EXPLAIN (ANALYZE, TIMING OFF, BUFFERS) {store._CLAIM.text}"
    plan = "\n".join(row[0] for row in await run(database, sql, batch=50, lease=30))
    assert "ix_outbox_due" in plan
    assert "Index Cond: ((order_id = e.order_id) AND (sequence < e.sequence))" in plan
    assert "Seq Scan" not in plan
    assert "Rows Removed by Join Filter" not in plan
    assert "Sort" not in plan or analyzed == "never"
