"""Orders confirmed a second by one replica and by several: every call to the insurer takes 200 ms.

So little is to do besides that the machine is not what limits them: what is looked at is whether replicas stand in each
other's way at their one database. No order may be confirmed twice, and the invariants have to hold.
"""

import asyncio
from contextlib import ExitStack
from dataclasses import replace

import asyncpg

from app.db import Database, open_database
from app.orders.invariants import violations
from app.settings import Settings, load_settings
from benchmarks.drain import pile_up
from benchmarks.rig import ONLY_CONFIRMATIONS, Rig, until
from benchmarks.row import Row, compared
from tests.service import Sandbox

ANSWER_MS = 200
SLOTS = 2
RATE = SLOTS / (2 * ANSWER_MS / 1000)
"""Orders a second that a replica's slots allow: an order takes two calls."""

ENVIRON = ONLY_CONFIRMATIONS | {"ORDERS_CLIENT__INSURANCE__MAX_CONCURRENT": str(SLOTS)}

CONFIRMED = (
    "SELECT count(*), extract(epoch FROM max(occurred_at))::float8 FROM outbox_event WHERE type = 'order.confirmed'"
)
NOW = "SELECT extract(epoch FROM clock_timestamp())::float8"


async def measure(rig: Rig, *, rounds: int, replicas: int, seconds: float) -> list[Row]:
    """Rounds with one replica and with several take turns, and which of the two comes first does too."""
    pairs = []
    for number in range(rounds):
        rates: dict[int, float] = {}
        for some in (1, replicas) if number % 2 == 0 else (replicas, 1):
            rates[some] = await _confirmed(rig, some, round(RATE * some * seconds))
        pairs.append((rates[replicas] / replicas, rates[1]))
    what = f"orders confirmed a second by each of {replicas} replicas"
    return [compared("scale-out", what, "by one alone", pairs, "/s", goal=0.95)]


async def _confirmed(rig: Rig, replicas: int, orders: int) -> float:
    """Orders a second; raises RuntimeError when one was confirmed twice or an invariant is violated."""
    limited = replace(rig, environ=rig.environ | ENVIRON)
    async with rig.sandbox() as sandbox, rig.database() as dsn:
        settings = load_settings({"ORDERS_PG__DSN": dsn})
        async with open_database(settings.pg, application_name="benchmark") as database:
            await sandbox.set("insurance", mode="slow", latency_ms=ANSWER_MS)
            (await sandbox.client.delete("/insurance/_control/orders")).raise_for_status()
            with ExitStack() as running:
                for _ in range(replicas):
                    await asyncio.to_thread(running.enter_context, limited.service(dsn, role="worker"))
                await pile_up(database.engine, orders)
                took = await _until_confirmed(dsn, orders)
            await _check(sandbox, database, settings, orders)
    return orders / took


async def _until_confirmed(dsn: str, orders: int) -> float:
    """Seconds from now to the last order's confirmation, by the database's clock."""
    connection = await asyncpg.connect(dsn)
    try:
        began = await connection.fetchval(NOW)

        async def all_are() -> bool:
            return bool((await connection.fetchrow(CONFIRMED))[0] == orders)

        if not await until(all_are, patience=orders):
            raise RuntimeError("not all orders were confirmed")
        return float((await connection.fetchrow(CONFIRMED))[1] - began)
    finally:
        await connection.close()


async def _check(sandbox: Sandbox, database: Database, settings: Settings, orders: int) -> None:
    operations = await sandbox.operations("insurance")
    if len(operations) != orders or set(operations.values()) != {1}:
        raise RuntimeError(f"{sum(operations.values())} applications for {orders} orders")
    async with database.engine.connect() as conn:
        if found := await violations(conn, settings.tasks, settings.events):
            raise RuntimeError(f"violated: {found}")
