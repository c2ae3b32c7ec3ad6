"""What goes wrong around a relay: poison, bugs, outages, receivers that hang, relays that die, a database away."""

import asyncio
import logging

import pytest
from sqlalchemy import text

from app.db import Database
from app.outbox import store
from app.outbox.store import StoredEvent
from app.resilience import Broken, CircuitOpen, Refused, Unavailable
from tests.component.outbox.events import (
    Script,
    ended,
    event_rules,
    fill,
    hurry,
    lines,
    relaying,
    rows,
    statements,
    until,
)


async def test_a_poison_event_is_parked_and_the_others_flow(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """An event that never gets through is set aside after its attempts, seen in log and figures; its order goes on."""
    poisoned, *others = await fill(database, 6, 1, 2)

    async def act(event: StoredEvent) -> None:
        if event.order_id == poisoned and event.sequence == 1:
            raise Unavailable("sink", "cannot read this", kind="http_500")

    sink = Script(act)

    async def hurried() -> bool:
        await hurry(database)
        return await ended(database)

    with caplog.at_level(logging.ERROR):
        async with relaying(database, sink, event_rules(max_attempts=5, poll_interval=0.05)):
            await until(hurried)
    parked = (await rows(database))[0]
    assert (parked.status, parked.attempts, parked.last_error) == ("PARKED", 5, "http_500: sink: cannot read this")
    assert [e.attempts for e in sink.given if e.order_id == poisoned and e.sequence == 1] == [1, 2, 3, 4, 5]
    assert sink.sequences(poisoned) == [2]
    assert all(sink.sequences(order_id) == [1, 2] for order_id in others)
    assert (await store.figures(database.engine)).parked == 1
    (line,) = lines(caplog)
    assert (line["event"], line["event_id"], line["order_id"]) == ("event parked", str(parked.event_id), poisoned)


@pytest.mark.parametrize("error", [Broken("sink", "410"), Refused("sink", "no")], ids=lambda e: type(e).__name__)
async def test_what_trying_again_cannot_help_is_parked_at_once(database: Database, error: Exception) -> None:
    """A sink that says so saves the event its other attempts."""
    await fill(database, 1)

    async def act(_event: StoredEvent) -> None:
        raise error

    async with relaying(database, Script(act)):
        await until(lambda: ended(database))
    (row,) = await rows(database)
    assert (row.status, row.attempts) == ("PARKED", 1)


async def test_an_event_whose_relays_die_is_parked_without_another_try(database: Database) -> None:
    """With all its attempts used up and no report from any, it is not tried once more."""
    await fill(database, 1, attempts=20)
    sink = Script()
    async with relaying(database, sink):
        await until(lambda: ended(database))
    (row,) = await rows(database)
    assert (row.status, row.attempts) == ("PARKED", 20)
    assert row.last_error == "lost: no report came back from the last of 20 attempts"
    assert sink.given == []


async def test_a_bug_in_a_sink_is_an_events_failure(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever a sink raises counts for the event it was given, is told with its traceback, and ends nothing else."""
    ids = await fill(database, 3)

    async def act(event: StoredEvent) -> None:
        if event.order_id == ids[1]:
            raise RuntimeError("sur\x00prise")

    async with relaying(database, Script(act)) as relay:

        async def others_are_done() -> bool:
            return [r.status for r in await rows(database)] == ["PUBLISHED", "PENDING", "PUBLISHED"]

        await until(others_are_done)
        assert relay.loop.restarts == 0
    assert (await rows(database))[1].last_error == "bug: RuntimeError: sur\N{SYMBOL FOR NULL}prise"
    assert [repr(line["exc_info"]) for line in lines(caplog)] == ["RuntimeError('sur\\x00prise')"]


@pytest.mark.rule("CB-6")
async def test_an_outage_costs_no_attempts_and_hardly_any_statements(database: Database) -> None:
    """While a sink's breaker is open the events stay as they are and the relay rests; then all go out."""
    ids = await fill(database, 30, 1, 2)
    is_open = True

    async def act(_event: StoredEvent) -> None:
        if is_open:
            raise CircuitOpen("sink", "open", retry_after=1.5)

    sink = Script(act)
    async with relaying(database, sink, event_rules(poll_interval=0.1)) as relay:
        with statements(database) as seen:
            await asyncio.sleep(1)
            relay.loop.ring()
            await asyncio.sleep(0.1)
        assert seen == ["WITH", "UPDATE"]
        assert len(sink.given) <= 4
        assert {(r.status, r.attempts) for r in await rows(database)} == {("PENDING", 0)}
        is_open = False
        await until(lambda: ended(database))
    assert all(sink.sequences(order_id) == [1, 2] for order_id in ids)
    assert {r.attempts for r in await rows(database)} == {1}


@pytest.mark.parametrize(("announced", "least", "most"), [(40.0, 40, 48), (1e6, 50, 60), (None, 2, 2.4)])
async def test_an_announced_wait_is_honoured_within_the_cap(
    database: Database, announced: float | None, least: float, most: float
) -> None:
    """The next attempt comes no sooner than the receiver asked, and never later than the cap."""
    await fill(database, 1)

    async def act(_event: StoredEvent) -> None:
        raise Unavailable("sink", "busy", retry_after=announced)

    async with relaying(database, Script(act), event_rules(backoff_cap=60)):

        async def tried() -> bool:
            return bool((await rows(database))[0].last_error)

        await until(tried)
        assert least - 1 < (await rows(database))[0].due_in <= most


@pytest.mark.rule("TO-X1")
async def test_a_hanging_event_ends_at_its_timeout(database: Database) -> None:
    """One that is never taken fails in time; the others of its batch are published, and the relay counts as alive."""
    ids = await fill(database, 12)

    async def act(event: StoredEvent) -> None:
        if event.order_id == ids[0]:
            await asyncio.Event().wait()

    async with relaying(database, Script(act), event_rules(publish_timeout=0.3)) as relay:

        async def settled() -> bool:
            return [r.status for r in await rows(database)].count("PUBLISHED") == 11

        await until(settled)
        assert relay.loop.alive
    assert (await rows(database))[0].last_error == "timeout: not published within 0.3 s"


async def test_a_slow_sink_never_outlives_the_lease(database: Database) -> None:
    """What does not fit into the lease is given back untried: no attempt is lost, nothing is published twice."""
    ids = await fill(database, 4)

    async def act(_event: StoredEvent) -> None:
        await asyncio.sleep(1.6)

    sink = Script(act)
    rules = event_rules(lease=3, publish_timeout=1.8, concurrency=2)
    async with relaying(database, sink, rules), relaying(database, sink, rules):
        await until(lambda: ended(database), 15)
    assert sorted(e.order_id for e in sink.given) == ids
    assert {e.attempts for e in sink.given} == {1}
    assert any(row.lease_token > 2 for row in await rows(database))


async def test_a_killed_relay_comes_back_and_loses_nothing(database: Database) -> None:
    """A relay whose task is killed in the middle of a batch is not alive, starts again, and publishes what was cut."""
    await fill(database, 8)
    blocked = asyncio.Event()

    async def act(event: StoredEvent) -> None:
        if event.attempts == 1 and not blocked.is_set():
            blocked.set()
            await asyncio.sleep(60)

    sink = Script(act)
    async with relaying(database, sink, event_rules(lease=3.2, poll_interval=0.1)) as relay:
        await blocked.wait()
        victim = relay.loop._running
        assert victim is not None
        victim.cancel()
        await asyncio.wait({victim})
        assert not relay.loop.alive
        assert sink.running == 0
        await until(lambda: ended(database), 15)
        assert relay.loop.restarts == 1
    assert len({e.event_id for e in sink.taken}) == 8


async def test_a_database_that_fails_for_a_while_ends_nothing(database: Database) -> None:
    """A relay whose statements fail is started again until they succeed."""
    async with database.engine.begin() as conn:
        await conn.execute(text("ALTER TABLE outbox_event RENAME TO elsewhere"))
    sink = Script()
    async with relaying(database, sink, event_rules(poll_interval=0.1)) as relay:

        async def failing() -> bool:
            return relay.loop.restarts > 1

        await until(failing)
        async with database.engine.begin() as conn:
            await conn.execute(text("ALTER TABLE elsewhere RENAME TO outbox_event"))
        await fill(database, 3)
        await until(lambda: ended(database))
    assert len(sink.taken) == 3
