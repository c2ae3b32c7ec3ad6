"""A relay that stands still past its lease, as a stopped process does, beside one that goes on."""

import asyncio
import logging
import threading
import time

import pytest

from app.db import Database, open_database
from app.outbox.store import StoredEvent
from tests.component.outbox.events import Script, ended, event_rules, fill, relaying, rows, until
from tests.conftest import pg_settings

LEASE = 2.5


async def relay_in_a_loop_of_its_own(dsn: str, sink: Script, done: threading.Event) -> None:
    rules = event_rules(lease=LEASE, publish_timeout=0.5, poll_interval=0.1)
    async with open_database(pg_settings(dsn), application_name="paused") as db, relaying(db, sink, rules):
        while not done.is_set():
            await asyncio.sleep(0.05)


async def test_a_relay_paused_past_its_lease_doubles_nothing_but_the_same_event(
    pg_dsn: str, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """The other relay takes over, in sequence. What the paused one sends late has an id that was seen before.

    Its settle comes too late and changes nothing: each event is published once, after two attempts at most.
    """
    ids = await fill(database, 3, 1, 2, 3)
    paused, done = threading.Event(), threading.Event()

    async def stand_still(_event: StoredEvent) -> None:
        if not paused.is_set():
            paused.set()
            time.sleep(LEASE + 1.5)  # noqa: ASYNC251 - the whole loop has to stand still

    late, sink = Script(stand_still), Script()
    thread = threading.Thread(target=lambda: asyncio.run(relay_in_a_loop_of_its_own(pg_dsn, late, done)))
    with caplog.at_level(logging.WARNING):
        thread.start()
        await asyncio.to_thread(paused.wait, 10)
        async with relaying(database, sink, event_rules(poll_interval=0.1)):
            await until(lambda: ended(database))
            assert late.taken == []
            before = await rows(database)
            async with asyncio.timeout(10):
                while not late.taken:
                    await asyncio.sleep(0.05)
            await asyncio.sleep(0.5)
            done.set()
            await asyncio.to_thread(thread.join)
    assert [row[:-1] for row in await rows(database)] == [row[:-1] for row in before]
    assert all(sink.sequences(order_id) == [1, 2, 3] for order_id in ids)
    seen = {e.event_id: e for e in sink.taken}
    assert {e.event_id for e in late.taken} <= set(seen)
    assert all((e.type, e.data, e.sequence) == _told(seen[e.event_id]) for e in late.taken)
    assert {row.attempts for row in before} <= {1, 2}
    assert any("lease lost" in str(record.msg) for record in caplog.records)


def _told(event: StoredEvent) -> tuple[str, str, int]:
    return event.type, event.data, event.sequence
