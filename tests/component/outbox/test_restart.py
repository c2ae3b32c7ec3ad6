"""Worker processes that are killed and stopped while they publish."""

import asyncio
import signal
from collections import Counter
from pathlib import Path

import pytest

from app.db import Database
from tests.component.outbox.events import ended, fill, rows, until
from tests.component.outbox.receiver import environ, told
from tests.component.systems.hostile import Received, response, serve
from tests.processes import processes

pytestmark = pytest.mark.slow

ORDERS, EVENTS = 50, 3


@pytest.mark.rule("SHUT-IDEM", "WHERE-3")
async def test_killed_and_stopped_workers_lose_nothing(database: Database, pg_dsn: str, tmp_path: Path) -> None:
    """One worker is killed, the next stopped past its lease and let go again, a third does the rest.

    Every event arrives, first in its order's sequence; what arrives again is the same event under the same id.
    """
    ids = await fill(database, ORDERS, *range(1, EVENTS + 1))

    async def slow(_: Received, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.05)
        writer.write(response())
        await writer.drain()

    async with serve(slow) as receiver, asyncio.timeout(120):
        with processes(pg_dsn, tmp_path) as run:
            short = {"concurrency": "3", "batch": "20", "publish_timeout": "2", "lease": "7", "poll_interval": "0.5"}
            run.environ |= environ(f"{receiver.url}/hook", **short)
            killed = await asyncio.to_thread(run.serve, "worker")
            await receiver.has_received(25)
            await asyncio.to_thread(killed.kill)
            stopped = await asyncio.to_thread(run.serve, "worker")
            await receiver.has_received(len(receiver.received) + 10)
            stopped.popen.send_signal(signal.SIGSTOP)
            third = await asyncio.to_thread(run.serve, "worker")
            await until(lambda: ended(database), 60)
            stopped.popen.send_signal(signal.SIGCONT)
            await asyncio.sleep(1)
            assert [await asyncio.to_thread(process.terminate) for process in (stopped, third)] == [0, 0]
    stored = await rows(database)
    assert {row.status for row in stored} == {"PUBLISHED"}
    bodies: dict[str, set[bytes]] = {}
    for request in receiver.received:
        bodies.setdefault(request.headers["webhook-id"], set()).add(request.body)
    assert set(bodies) == {str(row.event_id) for row in stored}
    assert {len(each) for each in bodies.values()} == {1}
    by_first_arrival = {event["id"]: event for event in map(told, receiver.received)}
    seen = Counter[str]()
    for event in by_first_arrival.values():
        seen[event["subject"]] += 1
        assert int(event["sequence"]) == seen[event["subject"]]
    assert seen == {str(order_id): EVENTS for order_id in ids}
