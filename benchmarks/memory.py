"""What orders that wait cost in memory: rows in a table here, handlers that sleep there."""

import asyncio
from contextlib import suppress

import httpx
import httpx_aiohttp

from app.db import open_database
from app.settings import load_settings
from benchmarks.drain import pile_up
from benchmarks.insurer import insure
from benchmarks.intake import ORDER
from benchmarks.rig import Rig
from benchmarks.row import Row, compared
from tests.processes import free_port

FEW, SLEEPERS = 50, 500


async def measure(rig: Rig, *, rounds: int, waiting: int) -> list[Row]:
    pairs = [(await _resident(rig, waiting), await _resident(rig, FEW)) for _ in range(rounds)]
    what, peer = f"the service with {waiting:,} orders waiting", f"with {FEW}"
    rows = [compared("memory", what, peer, pairs, "MiB", more_is_better=False, goal=1 / 1.1)]
    growth = max(rows[0].ours - rows[0].theirs, 0.01) * 1024 / waiting
    sleeping = await _asleep(rig) * 1024 / SLEEPERS
    what, peer = "an order that waits", "a handler that sleeps"
    return [*rows, compared("memory", what, peer, [(growth, sleeping)], "KiB", more_is_better=False)]


async def _resident(rig: Rig, waiting: int) -> float:
    """MiB of a service whose insurer takes calls and never answers, with so many orders in the queue."""
    port = free_port()
    async with await insure(port, "PENDING", lambda *_: None), rig.database() as dsn:
        async with open_database(load_settings({"ORDERS_PG__DSN": dsn}).pg, application_name="benchmark") as database:
            await pile_up(database.engine, waiting)
        with rig.service(dsn, systems=f"http://127.0.0.1:{port}") as service:
            await asyncio.sleep(8)
            return mebibytes(service.popen.pid)


async def _asleep(rig: Rig) -> float:
    """By how many MiB handlers that sleep make a FastAPI server grow."""
    async with rig.peers() as peers:
        with peers.server("with_sleep") as (url, process):
            before = mebibytes(process.pid)
            async with httpx_aiohttp.HttpxAiohttpClient(
                timeout=60, limits=httpx.Limits(max_connections=SLEEPERS)
            ) as client:
                asking = [asyncio.create_task(client.post(f"{url}/orders", json=ORDER)) for _ in range(SLEEPERS)]
                await asyncio.sleep(5)
                grown = mebibytes(process.pid) - before
                for call in asking:
                    call.cancel()
                with suppress(asyncio.CancelledError):
                    await asyncio.gather(*asking)
            return grown


def mebibytes(pid: int) -> float:
    """The memory that the process has in RAM, as Linux tells."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:  # noqa: PTH123
        line = next(line for line in status if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024
