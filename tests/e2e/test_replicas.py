"""Real processes over one database: what happens to orders when one of them is killed."""

import asyncio
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from httpx_aiohttp import HttpxAiohttpClient

from tests.processes import SYSTEMS, Process, processes
from tests.service import ORDER

pytestmark = pytest.mark.slow

ORDERS = 200
LEASE = 7


async def place(replicas: list[Process], count: int) -> list[int]:
    """Place orders, in turn at each replica."""
    ids = []
    async with HttpxAiohttpClient() as client:
        for batch in range(0, count, 20):
            posts = [
                client.post(f"{replicas[i % len(replicas)].url}/orders", json=ORDER) for i in range(batch, batch + 20)
            ]
            for answer in await asyncio.gather(*posts):
                assert answer.status_code == 202
                ids.append(int(answer.json()["orderId"]))
    return ids


async def all_final(dsn: str, seconds: float) -> dict[str, int]:
    """Wait until no order is under way; returns how many orders have each status."""
    connection = await asyncpg.connect(dsn)
    try:
        async with asyncio.timeout(seconds):
            while True:
                rows = await connection.fetch("SELECT status, count(*) FROM orders GROUP BY status")
                if {r["status"] for r in rows} <= {"COMPLETED", "REJECTED"}:
                    return {r["status"]: r["count"] for r in rows}
                await asyncio.sleep(0.2)
    finally:
        await connection.close()


async def operations(sandbox: Process) -> dict[str, dict[str, int]]:
    async with HttpxAiohttpClient(base_url=sandbox.url) as client:
        return {name: (await client.get(f"/{name}/_control/orders")).json() for name in SYSTEMS}


async def events(dsn: str) -> list[Any]:
    connection = await asyncpg.connect(dsn)
    try:
        return list(
            await connection.fetch(
                "SELECT order_id, array_agg(type ORDER BY sequence) AS types FROM outbox_event GROUP BY 1"
            )
        )
    finally:
        await connection.close()


@pytest.mark.rule("SHUT-IDEM", "RE-4")
async def test_a_killed_replica_loses_and_doubles_nothing(pg_dsn: str, tmp_path: Path) -> None:
    """Of 200 orders over two replicas, one of which is killed, each is done once at each system and told of once."""
    with processes(pg_dsn, tmp_path) as run:
        run.environ |= {"ORDERS_TASKS__DEFAULT__LEASE": str(LEASE)}
        sandbox = run.sandbox()
        replicas = [run.serve(), run.serve()]
        ids = await place(replicas, ORDERS)
        replicas[0].kill()
        assert await all_final(pg_dsn, 60) == {"COMPLETED": ORDERS}
        for system, per_order in (await operations(sandbox)).items():
            assert per_order == {str(order_id): 1 for order_id in ids}, system
        told = await events(pg_dsn)
        assert len(told) == ORDERS
        assert {tuple(e["types"]) for e in told} == {
            (
                "order.accepted",
                "order.confirmed",
                "order.payment_registered",
                "order.paid",
                "order.receipt_issued",
                "order.booked",
                "order.completed",
            )
        }
        assert replicas[1].terminate() == 0
