"""Database connections: few are enough, none is held during a call, and an idle service hardly uses any."""

import asyncio

import pytest

from app import loop
from app.settings import PoolSettings, Settings
from app.tasks.queue import Claim
from tests.faults.proxy import proxy_to_postgres
from tests.faults.scene import TABLES, Scene
from tests.faults.short import SHORT
from tests.service import service_running, settings_for

HUNDRED_AT_ONCE = {
    "ORDERS_CLIENT__INSURANCE__MAX_CONCURRENT": "100",
    "ORDERS_CLIENT__INSURANCE__READ_TIMEOUT": "40",
    "ORDERS_CLIENT__INSURANCE__TOTAL_TIMEOUT": "45",
    "ORDERS_TASKS__ORDER_CONFIRMATION_TASK__LEASE": "60",
    "ORDERS_TASKS__ORDER_CONFIRMATION_TASK__BATCH": "100",
    "ORDERS_PG__POOL__MAX": "300",
}

EVERY_SECOND = {"ORDERS_TASKS__DEFAULT__POLL_INTERVAL": "1", "ORDERS_EVENTS__POLL_INTERVAL": "1"}

ERRORS = 1000


def with_pool(settings: Settings, size: int) -> Settings:
    """Settings with a pool smaller than the rules allow."""
    pool = PoolSettings(max=size, acquire_timeout=settings.pg.pool.acquire_timeout)
    return settings.model_copy(update={"pg": settings.pg.model_copy(update={"pool": pool})})


async def test_a_pool_of_two_is_enough(scene: Scene) -> None:
    """Twenty calls at a time and fifty clients at once all get their turn: nobody holds one and waits for another."""
    environ = {"ORDERS_CLIENT__INSURANCE__MAX_CONCURRENT": "20", "ORDERS_PG__POOL__MAX": "88"}
    settings = with_pool(settings_for(scene.dsn, scene.sandbox.url, environ), 2)
    async with service_running(settings) as service:
        assert len(await scene.place(service.client, 50)) == 50
        await scene.ends()


async def test_no_connection_is_held_during_a_call(scene: Scene) -> None:
    """While a hundred calls wait for the insurance hardly a connection is in use, and orders are taken in as ever."""
    settings = settings_for(scene.dsn, scene.sandbox.url, HUNDRED_AT_ONCE)
    async with service_running(settings) as service:
        await scene.sandbox.set("insurance", mode="slow", latency_ms=30_000)
        await scene.place(service.client, 100)
        poller = service.wiring.pollers["order_confirmation_task"]
        async with asyncio.timeout(20):
            while poller.in_flight < 100 or service.wiring.database.pool_in_use:
                await asyncio.sleep(0.02)
        most = 0
        for _ in range(20):
            await scene.place(service.client)
            most = max(most, service.wiring.database.pool_in_use)
        assert most <= 8
        assert len(scene.placed) == 120
        for order_id in scene.placed:
            assert (await service.client.post(f"/orders/{order_id}/cancel")).status_code == 200
        await scene.ends(status=("CANCELLED",))


async def test_an_idle_service_is_quiet(scene: Scene) -> None:
    """With nothing to do each loop looks once in its interval, the listener probes and figures are taken."""
    async with proxy_to_postgres(scene.dsn) as (postgres, dsn):
        async with service_running(settings_for(dsn, scene.sandbox.url, EVERY_SECOND)) as service:
            await scene.place(service.client)
            await scene.ends()
            before = postgres.statements
            await asyncio.sleep(3)
            statements = postgres.statements - before
        looks = (len(TABLES) + 1) * 4
        figures, others = len(TABLES) + 1, 3
        assert statements <= looks + figures + others


async def test_a_thousand_errors_in_a_row_end_nothing(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often the claim has failed, with the first that succeeds the work goes on."""
    monkeypatch.setattr(loop, "RESTART_FIRST", 0.0005)
    monkeypatch.setattr(loop, "RESTART_CAP", 0.001)
    async with service_running(settings_for(scene.dsn, scene.sandbox.url)) as service:
        queue = service.wiring.queues["order_confirmation_task"]
        claim, errors = queue.claim, 0

        async def failing(batch: int, lease: float) -> Claim:
            nonlocal errors
            if errors < ERRORS:
                errors += 1
                raise ConnectionRefusedError("no database")
            return await claim(batch, lease)

        monkeypatch.setattr(queue, "claim", failing)
        await scene.place(service.client, 3)
        await scene.ends()
    assert errors == ERRORS


async def test_an_outage_is_not_answered_with_a_storm(scene: Scene) -> None:
    """While the database refuses connections each loop asks for one less and less often."""
    async with proxy_to_postgres(scene.dsn) as (postgres, dsn):
        settings = settings_for(dsn, scene.sandbox.url, SHORT)
        async with service_running(settings) as service:
            await scene.place(service.client, 3)
            await scene.until("SELECT count(*) = 3 FROM orders WHERE status = 'COMPLETED'")
            postgres.refusing = True
            postgres.cut()
            before = postgres.opened
            await asyncio.sleep(4)
            asked = postgres.opened - before
            postgres.refusing = False
            await scene.place(service.client, 3)
            await scene.ends()
        loops = len(TABLES) + 4
        assert loops < asked <= loops * 6
