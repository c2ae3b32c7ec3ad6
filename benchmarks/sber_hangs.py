"""One run: a fresh service over a fresh database, with a sber that answers or with one that never does."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

import asyncpg
from httpx_aiohttp import HttpxAiohttpClient
from sqlalchemy.ext.asyncio import AsyncEngine

from app.api.schemas import NewOrder
from app.db import open_database
from app.orders.create import Created, Placement, create_orders
from app.orders.journey import STEPS
from app.orders.moves import StepQueues, save_moves
from app.orders.order import Order
from app.orders.repository import Moved
from app.settings import load_settings
from app.tasks.queue import TaskQueue
from benchmarks.rig import Rig, place_at, until
from tests.rows import insert_orders
from tests.service import ORDER, SYSTEMS, Sandbox

ANSWER_MS = 100
"""What every system takes to answer. So the slots are what limits insurance, as they do in earnest, and not the CPU."""

RATE = 15.0
"""Orders a second while the latency is measured: below half of what insurance's slots can do."""

PAID = 40
"""Orders beyond sber, whose receipt, booking and record are still before them when the backlog comes."""

PATIENCE = 60.0
"""Seconds after which an order that has not arrived is not waited for; it counts as if it had arrived then."""

ITEMS = NewOrder.model_validate_json(json.dumps(ORDER)).to_domain()

# An order is timed by one clock, the database's: from its row to the event that tells of its arrival.
ARRIVED = """
SELECT extract(epoch FROM e.occurred_at - o.created_at)::float8 AS seconds
FROM outbox_event AS e JOIN orders AS o ON o.id = e.order_id WHERE e.type = $1 AND o.id = ANY ($2::bigint[])"""

OPENED = re.compile(r'^circuit_breaker_transitions_total{system="sber",to="open"} (\S+)$', re.MULTILINE)
WAITING = "SELECT count(*), coalesce(sum(retry_count), 0) FROM payment_task WHERE status IN ('PENDING', 'IN_PROGRESS')"


@dataclass(frozen=True)
class Sber:
    """Rows that wait for sber, attempts counted on them, calls that sber has seen, and whether its breaker opened."""

    rows: int
    attempts: int
    calls: int
    opened: bool


@dataclass(frozen=True)
class Run:
    """`latencies`: seconds from an order to its confirmation, at a steady rate. The others: orders a second.

    `confirmed` is the rate at which a backlog passed insurance, `completed` that of orders beyond sber meanwhile.
    """

    latencies: list[float]
    confirmed: float
    completed: float
    sber: Sber


async def measured_run(rig: Rig, module: str, hangs: bool, seconds: float, backlog: int) -> Run:
    """Measure for `seconds` at a steady rate, then a `backlog`; if sber `hangs`, its slots are taken before."""
    async with (
        rig.sandbox() as sandbox,
        rig.database() as dsn,
        open_database(load_settings({"ORDERS_PG__DSN": dsn}).pg, application_name="benchmark") as database,
    ):
        await _prepare(sandbox)
        with rig.service(dsn, module) as service:
            sql = await asyncpg.connect(dsn)
            try:
                await _occupy(sandbox, service.url, hangs=hangs)
                steady = await place_at(service.url, RATE, seconds)
                latencies = await _arrivals(sql, "order.confirmed", steady)
                placed, paid = await _pile_up(database.engine, backlog)
                confirmed = await _arrivals(sql, "order.confirmed", placed)
                completed = await _arrivals(sql, "order.completed", paid)
                sber = await _sber(sql, sandbox, service.url, opens=hangs and module == "app")
            finally:
                await sql.close()
    return Run(latencies, backlog / max(confirmed), PAID / max(completed), sber)


async def _prepare(sandbox: Sandbox) -> None:
    """All systems answer; sber declines, so that the orders end there whether it is well or not."""
    for system in SYSTEMS:
        await sandbox.set(system, mode="slow", latency_ms=ANSWER_MS, outcome="DECLINED" if system == "sber" else None)
        for counted in ("_control", "_control/orders"):
            (await sandbox.client.delete(f"/{system}/{counted}")).raise_for_status()


async def _occupy(sandbox: Sandbox, url: str, *, hangs: bool) -> None:
    """Place orders until sber has as many calls as it has slots; one that hangs will answer none of them."""
    slots = load_settings().client["sber"].max_concurrent
    if hangs:
        await sandbox.set("sber", mode="hang")
    await place_at(url, RATE, 2 * slots / RATE)

    async def occupied() -> bool:
        return await _calls(sandbox) >= slots

    if not await until(occupied, PATIENCE):
        raise RuntimeError("sber was not called")


async def _calls(sandbox: Sandbox) -> int:
    """How many calls sber has seen, health probes apart."""
    calls = (await sandbox.control("sber"))["counters"]["calls"]
    return sum(number for endpoint, number in calls.items() if endpoint != "GET /health")


async def _pile_up(engine: AsyncEngine, backlog: int) -> tuple[list[int], list[int]]:
    """Make a backlog before insurance and some orders that are beyond sber, due at once; returns the ids of both."""
    queues = {step.begins: TaskQueue(step.table, engine) for step in STEPS}
    paid = await _paid(engine, queues)
    placed = await create_orders(engine, queues, [Placement("c-42", ITEMS)] * backlog)
    return [order.order_id for order in placed if isinstance(order, Created)], paid


async def _paid(engine: AsyncEngine, queues: StepQueues) -> list[int]:
    async with engine.begin() as conn:
        orders = [Order(order_id, "c-42", ITEMS) for order_id in await insert_orders(conn, PAID)]
        for move, begins in (("confirm", {}), ("register_payment", {}), ("pay", queues)):
            moves = [Moved(*order.move(move, paymentId="p-1")) for order in orders]
            await conn.run_sync(save_moves, moves, begins)
            orders = [moved.order for moved in moves]
    return [order.id for order in orders]


async def _arrivals(sql: asyncpg.Connection, event: str, orders: Sequence[int]) -> list[float]:
    """Seconds that each of the orders took to its event; returns once all have it, or patience is at its end."""

    async def arrived() -> bool:
        return len(await sql.fetch(ARRIVED, event, orders)) == len(orders)

    await until(arrived, PATIENCE)
    seconds = [float(row["seconds"]) for row in await sql.fetch(ARRIVED, event, orders)]
    return seconds + [PATIENCE] * (len(orders) - len(seconds))


async def _sber(sql: asyncpg.Connection, sandbox: Sandbox, url: str, *, opens: bool) -> Sber:
    """Attempts are read before calls: those that are begun in between do not look like attempts without a call."""

    async def opened() -> bool:
        async with HttpxAiohttpClient(base_url=url) as client:
            found = OPENED.search((await client.get("/metrics")).text)
        return found is not None and float(found[1]) > 0

    has_opened = await until(opened, PATIENCE if opens else 0.5)
    rows, attempts = await sql.fetchrow(WAITING)
    return Sber(rows, attempts, await _calls(sandbox), has_opened)
