"""The relay on a real PostgreSQL, with scripted sinks."""

import asyncio
import logging
import random

import pytest

from app.db import Database
from app.outbox.sink import LogSink
from app.outbox.store import StoredEvent
from app.resilience import Unavailable
from tests.component.outbox.events import (
    Script,
    accept,
    add,
    ended,
    event_rules,
    fill,
    lines,
    relaying,
    rows,
    statements,
    until,
)
from tests.rows import insert_orders


@pytest.mark.rule("WHERE-3")
async def test_each_orders_events_go_out_in_their_sequence(database: Database) -> None:
    """Orders go side by side, at most as many as the rules allow; one order's events go one after the other."""
    ids = await fill(database, 5, 1, 2, 3, 4, 5, 6)

    async def act(_event: StoredEvent) -> None:
        await asyncio.sleep(random.uniform(0, 0.02))

    sink = Script(act)
    async with relaying(database, sink):
        await until(lambda: ended(database))
    assert sink.most == 4
    assert all(sink.sequences(order_id) == [1, 2, 3, 4, 5, 6] for order_id in ids)
    assert {row.status for row in await rows(database)} == {"PUBLISHED"}
    assert all(row.published_at is not None for row in await rows(database))


async def test_a_failed_event_keeps_its_orders_later_ones_waiting(database: Database) -> None:
    """What comes after an event that has to be tried again does not overtake it, and other orders do not wait."""
    first, second = await fill(database, 2, 1, 2)

    async def act(event: StoredEvent) -> None:
        if event.order_id == first and event.sequence == 1 and event.attempts < 3:
            raise Unavailable("sink", "not now", kind="http_503")

    sink = Script(act)
    async with relaying(database, sink):

        async def other_is_done() -> bool:
            return sink.sequences(second) == [1, 2]

        await until(other_is_done)
        assert sink.sequences(first) == []
        waiting = (await rows(database))[0]
        assert (waiting.status, waiting.attempts) == ("PENDING", 1)
        assert waiting.last_error == "http_503: sink: not now"
        await until(lambda: ended(database))
    assert sink.sequences(first) == [1, 2]


async def test_inverted_commits_are_both_published(database: Database) -> None:
    """Of two writers the first commits last, when the other's event is long published: neither is passed over."""
    sink = Script()
    async with relaying(database, sink, event_rules(poll_interval=0.1)), database.engine.connect() as early:
        ids = await insert_orders(early, 1)
        await add(early, ids, 1)
        (other,) = await fill(database, 1)
        await until(lambda: ended(database))
        assert [e.order_id for e in sink.taken] == [other]
        await early.commit()
        await until(lambda: ended(database))
    assert [e.order_id for e in sink.taken] == [other, *ids]


async def test_two_relays_publish_each_event_once(database: Database) -> None:
    """Healthy relays side by side share the events out and keep each order's sequence."""
    ids = await fill(database, 40, 1, 2, 3)

    async def act(_event: StoredEvent) -> None:
        await asyncio.sleep(random.uniform(0, 0.01))

    sink, rules = Script(act), event_rules(batch=7, poll_interval=0.05)
    async with relaying(database, sink, rules), relaying(database, sink, rules):
        await until(lambda: ended(database))
    assert len(sink.taken) == 120
    assert all(sink.sequences(order_id) == [1, 2, 3] for order_id in ids)


@pytest.mark.rule("SHUT-SCHED")
async def test_draining_lets_arrive_what_can_and_gives_back_the_rest(database: Database) -> None:
    """At the stop nothing more is begun; what takes too long is cut; all that is left is due now, uncounted."""
    ids = await fill(database, 8)
    seconds = dict(zip(ids, [0.3, 60, 0.3, 60, 0, 0, 0, 0], strict=True))

    async def act(event: StoredEvent) -> None:
        await asyncio.sleep(seconds[event.order_id])

    sink = Script(act)
    async with relaying(database, sink, event_rules(publish_timeout=5)) as relay:

        async def busy() -> bool:
            return sink.running == 4

        await until(busy)
        await relay.drain(0.8)
    result = await rows(database)
    assert [e.order_id for e in sink.taken] == [ids[0], ids[2]]
    assert len(sink.given) == 4
    assert [r.status for r in result] == ["PUBLISHED", "PENDING", "PUBLISHED", *["PENDING"] * 5]
    assert {(r.attempts, r.due_in <= 0) for r in result if r.status == "PENDING"} == {(0, True)}


async def test_a_batch_costs_two_statements_and_an_idle_relay_next_to_none(database: Database) -> None:
    """Fifty events of fifty orders are one claim and one settle; after another look there is silence."""
    await fill(database, 50)
    sink = Script()
    with statements(database) as seen:
        async with relaying(database, sink):

            async def published() -> bool:
                return len(sink.taken) == 50

            await until(published)
            await asyncio.sleep(1)
    assert seen == ["WITH", "UPDATE", "WITH"]


async def test_wakes_when_the_next_event_falls_due(database: Database) -> None:
    """An event that has to be tried again in two seconds does not wait for a poll every thirty."""
    await fill(database, 1)

    async def act(event: StoredEvent) -> None:
        if event.attempts == 1:
            raise Unavailable("sink", "not now")

    async with relaying(database, Script(act), event_rules(jitter=0)):
        await until(lambda: ended(database), 6)


async def test_a_ring_starts_new_events_at_once(database: Database) -> None:
    """A relay that sleeps for 30 s publishes at once when it is told of new events."""
    async with relaying(database, Script(accept)) as relay:
        await asyncio.sleep(0.3)
        await fill(database, 1)
        relay.loop.ring()
        await until(lambda: ended(database), 3)


async def test_the_default_sink_writes_into_the_log(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    """Each event is a line with its type, id, order and sequence."""
    (order_id,) = await fill(database, 1)
    with caplog.at_level(logging.INFO):
        async with relaying(database, LogSink()):
            await until(lambda: ended(database))
    (line,) = lines(caplog)
    assert (line["event"], line["type"], line["order_id"], line["sequence"]) == ("event", "order.paid", order_id, 1)


async def test_events_that_come_shortly_after_one_another_share_a_claim(database: Database) -> None:
    """A resting relay that hears of an event waits a moment for others."""
    sink = Script()
    with statements(database) as seen:
        async with relaying(database, sink) as relay:

            async def looked() -> bool:
                return seen == ["WITH"]

            async def published() -> bool:
                return len(sink.taken) == 5

            await until(looked)
            await fill(database, 1)
            relay.loop.ring()
            await fill(database, 4)
            relay.loop.ring()
            await until(published)
    assert [statement for statement in seen if statement == "UPDATE"] == ["UPDATE"]
