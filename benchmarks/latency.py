"""From the request to the first call for it at the insurer, at a steady rate: what queueing and waking up cost.

And from the order to its confirmation: by a process that does no more, and by one that takes orders to their end.
"""

import asyncio
import time
from dataclasses import replace
from statistics import median, quantiles

import asyncpg
from httpx_aiohttp import HttpxAiohttpClient

from benchmarks.insurer import insure
from benchmarks.intake import ORDER
from benchmarks.rig import ONLY_CONFIRMATIONS, Rig
from benchmarks.row import Row, compared
from tests.processes import free_port

PEERS = {"with_procrastinate": "FastAPI + procrastinate", "with_pgqueuer": "FastAPI + pgqueuer"}

CONFIRMED = """
SELECT extract(epoch FROM e.occurred_at - o.created_at)::float8 AS seconds
FROM outbox_event AS e JOIN orders AS o ON o.id = e.order_id WHERE e.type = 'order.confirmed'"""


class Watch:
    """An insurer that notes when it is first asked about each order."""

    def __init__(self) -> None:
        self.first: dict[int, float] = {}
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    def asked(self, path: str, body: bytes) -> None:
        now = time.perf_counter()
        if path == "/applications":
            self.first.setdefault(int(body.partition(b'"orderId":')[2].partition(b",")[0]), now)
        elif path.endswith("/status"):
            self.first.setdefault(int(path.split("/")[2]), now)


async def measure(rig: Rig, *, rounds: int, seconds: float, rate: float = 50.0) -> list[Row]:
    ours: list[list[float]] = []
    confirmed: dict[str, list[float]] = {"alone": [], "amid whole journeys": []}
    theirs: dict[str, list[list[float]]] = {name: [] for name in PEERS}
    for _ in range(rounds):
        ours.append(await _service(rig, rate, seconds, "REJECTED", []))
        alone = replace(rig, environ=rig.environ | ONLY_CONFIRMATIONS)
        for service, found in zip((alone, rig), confirmed.values(), strict=True):
            await _service(service, rate, seconds, "CONFIRMED", found)
        for name, waits in theirs.items():
            waits.append(await _peer(rig, name, rate, seconds))
    rows = []
    for where, seconds_each in confirmed.items():
        for what, figure, goal in (("median", median, 15.0), ("99th percentile", _p99, 60.0)):
            told, peer = f"confirmed, {where}, {what}", f"the goal of {goal:.0f} ms"
            pairs = [(1000 * figure(seconds_each), goal)]
            rows.append(compared("wake-up", told, peer, pairs, "ms", more_is_better=False, goal=1.0))
    for name, peer in PEERS.items():
        for what, figure in (("median", median), ("99th percentile", _p99)):
            pairs = [
                (1000 * figure(mine), 1000 * figure(other)) for mine, other in zip(ours, theirs[name], strict=True)
            ]
            rows.append(compared("wake-up", what, peer, pairs, "ms", more_is_better=False))
    return rows


async def _service(rig: Rig, rate: float, seconds: float, status: str, confirmed: list[float]) -> list[float]:
    """How long orders waited for their first call; those that the insurer confirms go on to the other systems."""
    watch = Watch()
    async with await insure(watch.port, status, watch.asked), rig.database() as dsn:
        with rig.service(dsn, systems=watch.url) as service:
            waits = await _waits(watch, service.url, rate, seconds)
        connection = await asyncpg.connect(dsn)
        confirmed += [float(row["seconds"]) for row in await connection.fetch(CONFIRMED)]
        await connection.close()
    return waits


async def _peer(rig: Rig, name: str, rate: float, seconds: float) -> list[float]:
    watch = Watch()
    async with await insure(watch.port, "CONFIRMED", watch.asked), rig.peers(watch.url) as peers:
        with peers.server(name) as (url, _), peers.worker(name):
            return await _waits(watch, url, rate, seconds)


async def _waits(watch: Watch, url: str, rate: float, seconds: float) -> list[float]:
    """Place orders at the rate, after two seconds that do not count; returns the seconds each one waited."""
    sent: dict[int, float] = {}
    async with HttpxAiohttpClient(base_url=url) as client:

        async def place() -> None:
            began = time.perf_counter()
            answer = await client.post("/orders", json=ORDER)
            sent[int(answer.json()["orderId"])] = began

        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in range(round(rate * (seconds + 2))):
                await asyncio.sleep(began + number / rate - time.perf_counter())
                group.create_task(place())
        async with asyncio.timeout(30):
            while len(watch.first) < len(sent):
                await asyncio.sleep(0.05)
    return [watch.first[order] - at for order, at in sent.items() if at > began + 2]


def _p99(values: list[float]) -> float:
    return quantiles(values, n=100)[-1]
