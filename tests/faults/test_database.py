"""PostgreSQL is there and does not do what is asked of it: it takes no writes, it is slow, it waits for an operator."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy import text

from tests.conftest import execute
from tests.faults.scene import Scene
from tests.faults.short import LASTING
from tests.service import ORDER, service_running, settings_for

HASTY = {
    "ORDERS_PG__LOCK_TIMEOUT": "0.3",
    "ORDERS_PG__STATEMENT_TIMEOUT": "0.5",
    "ORDERS_INVARIANTS__STATEMENT_TIMEOUT": "0.5",
}

TERMINATE = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE 'orders-%'"""


@asynccontextmanager
async def operator(scene: Scene, statement: str) -> AsyncIterator[None]:
    """Somebody types a statement into a console, and forgets to commit."""
    async with scene.database.engine.connect() as console:
        await console.execute(text(statement))
        yield


async def test_a_server_that_takes_no_writes(scene: Scene, server_dsn: str) -> None:
    """After a failover to a read-only server orders are refused, not lost; once it takes writes all goes on."""
    name = scene.dsn.rpartition("/")[2].partition("?")[0]
    async with service_running(settings_for(scene.dsn, scene.sandbox.url, LASTING)) as service:
        await scene.sandbox.set("insurance", mode="slow", latency_ms=300)
        await scene.place(service.client, 8)
        execute(server_dsn, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        await scene.rows(TERMINATE)
        for _ in range(20):
            refused = await service.client.post("/orders", json=ORDER)
            assert (refused.status_code, refused.json()["type"]) == (503, "/problems/unavailable")
        assert (await service.client.get(f"/orders/{scene.placed[0]}")).status_code == 200
        execute(server_dsn, f"ALTER DATABASE {name} RESET default_transaction_read_only")
        await scene.until("SELECT count(*) = 8 FROM orders WHERE status = 'COMPLETED'")
        await scene.place(service.client, 8)
        assert len(scene.placed) == 16
        await scene.ends()


async def test_statements_that_run_into_their_timeout(scene: Scene) -> None:
    """While an operator has locked a whole table nothing hangs: clients get 503; afterwards everything flows."""
    async with service_running(settings_for(scene.dsn, scene.sandbox.url, LASTING | HASTY)) as service:
        await scene.place(service.client, 3)
        async with operator(scene, "LOCK TABLE order_confirmation_task"):
            refused = await service.client.post("/orders", json=ORDER)
            assert (refused.status_code, refused.json()["type"]) == (503, "/problems/unavailable")
            assert (await service.client.get("/health/live")).status_code == 200
        await scene.place(service.client, 5)
        await scene.ends()


async def test_a_row_in_an_operators_hand(scene: Scene) -> None:
    """An order that somebody holds locked waits; all others flow, also those that were claimed along with it."""
    settings = settings_for(scene.dsn, scene.sandbox.url, {"ORDERS_PG__LOCK_TIMEOUT": "0.3"})
    async with service_running(settings) as service:
        await scene.sandbox.set("insurance", mode="slow", latency_ms=300)
        ids = await scene.place(service.client, 8)
        async with operator(scene, f"SELECT FROM orders WHERE id = {min(ids)} FOR UPDATE"):
            await scene.place(service.client, 24)
            await scene.until("SELECT count(*) = 31 FROM orders WHERE status = 'COMPLETED'", 12)
        await scene.ends()
