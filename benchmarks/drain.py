"""Queued checks of a status per second: the insurer answers at once, eight calls at a time, one process.

The limit is a bare loop of httpx over aiohttp, which makes the same calls and keeps nothing. `journeys` is the same
service on whole orders: all five systems, five tables, an event for each move; its calls are counted.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import httpx_aiohttp
from sqlalchemy.ext.asyncio import AsyncEngine

from app.db import open_database
from app.orders.create import Placement, create_orders
from app.orders.journey import STEPS
from app.settings import load_settings
from app.tasks.queue import TaskQueue
from benchmarks.peer import Peers, running, wait_for
from benchmarks.rig import Rig, execute
from benchmarks.row import Row, compared
from benchmarks.sber_hangs import ITEMS
from tests.processes import free_port

CONCURRENCY = 8
CALLS_OF_A_JOURNEY = 9

PEERS = {
    "bare": "bare loop, httpx over aiohttp",
    "with_procrastinate": "procrastinate worker",
    "with_pgqueuer": "pgqueuer worker",
}

SENT = "UPDATE order_confirmation_task SET status = 'IN_PROGRESS', external_id = 'a-1'"
TOLD = "UPDATE outbox_event SET status = 'PUBLISHED'"
OPEN = "SELECT count(*) FROM order_confirmation_task WHERE status IN ('PENDING', 'IN_PROGRESS')"
ARRIVED = "SELECT {count} - count(*) FROM orders WHERE status = 'COMPLETED'"
JOBS = {
    "with_procrastinate": "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')",
    "with_pgqueuer": "SELECT count(*) FROM pgqueuer",
}


async def measure(rig: Rig, *, rounds: int, count: int, peers: tuple[str, ...] = tuple(JOBS)) -> list[Row]:
    found: dict[str, list[float]] = {name: [] for name in ("service", "journeys", "bare", *peers)}
    for _ in range(rounds):
        async with insurer("REJECTED") as url:
            found["service"].append(await _service(rig, url, count, OPEN, SENT, TOLD))
            found["bare"].append(await _bare(url, count))
            for name in peers:
                async with rig.peers(url) as beside:
                    found[name].append(await _jobs(beside, name, count // 4))
        async with insurer("CONFIRMED") as url:
            orders = count // CALLS_OF_A_JOURNEY
            arrived = await _service(rig, url, orders, ARRIVED.format(count=orders))
            found["journeys"].append(arrived * CALLS_OF_A_JOURNEY)

    def row(what: str, ours: str, theirs: str, goal: float | None) -> Row:
        pairs = list(zip(found[ours], found[theirs], strict=True))
        return compared("drain", what, PEERS[theirs], pairs, "/s", goal=goal)

    checks = [row("checks a second", "service", name, 0.85 if name == "bare" else 8.0) for name in ("bare", *peers)]
    return [*checks, row("calls a second in journeys", "journeys", "bare", None)]


@asynccontextmanager
async def insurer(status: str) -> AsyncIterator[str]:
    """The address of a server that plays all systems."""
    port = free_port()
    with running([sys.executable, "-m", "benchmarks.insurer", str(port), status]) as server:
        url = f"http://127.0.0.1:{port}"
        wait_for(url, server)
        yield url


async def pile_up(engine: AsyncEngine, count: int) -> None:
    """Take so many orders in, while no worker runs."""
    queues = {step.begins: TaskQueue(step.table, engine) for step in STEPS}
    for begin in range(0, count, 500):
        await create_orders(engine, queues, [Placement("c-42", ITEMS)] * min(500, count - begin))


async def _service(rig: Rig, url: str, count: int, left: str, *prepared: str) -> float:
    async with rig.database() as dsn:
        settings = load_settings({"ORDERS_PG__DSN": dsn})
        async with open_database(settings.pg, application_name="benchmark") as database:
            await pile_up(database.engine, count)
        await execute(dsn, *prepared)
        emptied = asyncio.create_task(_emptied(dsn, left, count))
        with rig.service(dsn, role="worker", systems=url):
            return await emptied


async def _bare(url: str, count: int) -> float:
    async with httpx_aiohttp.HttpxAiohttpClient() as client:
        orders = iter(range(count))

        async def ask() -> None:
            for order in orders:
                answer = await client.get(f"{url}/orders/{order}/status")
                assert answer.json()["status"] == "REJECTED"

        began = time.perf_counter()
        await asyncio.gather(*(ask() for _ in range(CONCURRENCY)))
        return count / (time.perf_counter() - began)


async def _jobs(peers: Peers, module: str, count: int) -> float:
    await asyncio.to_thread(peers.fill, module, count)
    emptied = asyncio.create_task(_emptied(peers.dsn, JOBS[module], count))
    with peers.worker(module):
        return await emptied


async def _emptied(dsn: str, left: str, count: int) -> float:
    """Rows a second, from when the first of them is gone until none is left."""
    connection = await asyncpg.connect(dsn)
    try:
        async with asyncio.timeout(300):
            while (first := await connection.fetchval(left)) == count:
                await asyncio.sleep(0.01)
            began = time.perf_counter()
            while await connection.fetchval(left):
                await asyncio.sleep(0.01)
            return float(first / (time.perf_counter() - began))
    finally:
        await connection.close()
