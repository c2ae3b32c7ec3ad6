"""Orders taken in per second: the service as it ships, and what else takes an order and a task in."""

import json

from benchmarks.load import Load, post
from benchmarks.peer import Peers
from benchmarks.rig import Rig
from benchmarks.row import Row, compared

PEERS = {
    "floor": "Starlette + asyncpg, one statement",
    "orm": "FastAPI + SQLAlchemy ORM",
    "with_procrastinate": "FastAPI + procrastinate",
    "with_pgqueuer": "FastAPI + pgqueuer",
}
GOALS = {"floor": 1.2, "orm": 6.0}

PRICES = {"TICKET-MSK-LED": "1990.00", "BAG": "300.00"}
ORDER = {
    "customerId": "c-42",
    "items": [
        {"sku": sku, "quantity": 2, "price": {"amount": amount, "currency": "RUB"}} for sku, amount in PRICES.items()
    ],
}
BODY = json.dumps(ORDER).encode()


async def measure(rig: Rig, *, rounds: int, seconds: float, peers: tuple[str, ...] = tuple(PEERS)) -> list[Row]:
    loads: dict[str, list[Load]] = {name: [] for name in ("service", *peers)}
    async with rig.database() as dsn, rig.peers() as beside:
        for turn in range(rounds):
            for name in list(loads)[:: 1 if turn % 2 == 0 else -1]:  # what ran just before is felt
                measured = _service(rig, dsn, seconds) if name == "service" else _peer(beside, name, seconds)
                loads[name].append(await measured)
    rows = []
    for name in peers:
        pairs = [(ours.rate, theirs.rate) for ours, theirs in zip(loads["service"], loads[name], strict=True)]
        rows.append(compared("intake", "orders a second", PEERS[name], pairs, "/s", goal=GOALS.get(name)))
    tails = [(1000 * ours.p99, 1000 * floor.p99) for ours, floor in zip(loads["service"], loads["floor"], strict=True)]
    tail = compared("intake", "99th percentile", PEERS["floor"], tails, "ms", more_is_better=False, goal=1.0)
    return [*rows, tail]


async def _service(rig: Rig, dsn: str, seconds: float) -> Load:
    with rig.service(dsn, role="api") as service:
        return await _load(service.url, seconds)


async def _peer(beside: Peers, name: str, seconds: float) -> Load:
    with beside.server(name) as (url, _):
        return await _load(url, seconds)


async def _load(url: str, seconds: float) -> Load:
    await post(f"{url}/orders", BODY, 1.0)
    load = await post(f"{url}/orders", BODY, seconds)
    if load.failures:
        raise RuntimeError(f"{load.failures} of {len(load.latencies)} orders were not taken in")
    return load
