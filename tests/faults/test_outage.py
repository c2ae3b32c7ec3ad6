"""PostgreSQL goes away under load, in every way it does, and comes back."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from app.db import migrate, open_database
from tests.component.api.following import following
from tests.conftest import new_database, pg_settings, run
from tests.faults.postgres import Mode, OwnPostgres, own_postgres
from tests.faults.scene import Scene
from tests.faults.short import LASTING
from tests.service import Service, service_running, settings_for

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def postgres() -> Iterator[OwnPostgres]:
    async def fill() -> None:
        async with open_database(pg_settings(server.dsn), application_name="template") as database:
            await migrate(database)

    with own_postgres() as server:
        run(fill())
        yield server


@pytest.fixture
def pg_dsn(postgres: OwnPostgres) -> Iterator[str]:
    """A migrated database on a server that may be stopped."""
    with new_database(postgres.dsn, template="orders") as dsn:
        yield dsn


@asynccontextmanager
async def load(scene: Scene, service: Service, every: float = 0.05) -> AsyncIterator[None]:
    """Clients that place an order now and then, whether they get an answer or not."""

    async def keep_placing() -> None:
        while True:
            await scene.place(service.client, 2)
            await asyncio.sleep(every)

    placing = asyncio.create_task(keep_placing())
    try:
        yield
    finally:
        placing.cancel()
        await asyncio.wait({placing})


async def ready(service: Service) -> bool:
    return (await service.client.get("/health/ready")).status_code == 200


async def becomes(service: Service, wanted: bool, seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while await ready(service) is not wanted:
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_a_restart_under_load(scene: Scene, postgres: OwnPostgres, mode: Mode) -> None:
    """Not ready, but alive, while PostgreSQL is away; then it goes on by itself, and nothing is lost or doubled."""
    async with service_running(settings_for(scene.dsn, scene.sandbox.url, LASTING)) as service:
        async with load(scene, service):
            await scene.until("SELECT count(*) > 10 FROM orders WHERE status = 'COMPLETED'")
            await postgres.stop(mode)
            await becomes(service, wanted=False)
            assert (await service.client.get("/health/live")).status_code == 200
            await postgres.start()
            await becomes(service, wanted=True)
            known = await scene.value("SELECT max(id) FROM orders")
            await scene.until("SELECT count(*) > 5 FROM orders WHERE status = 'COMPLETED' AND id > :id", id=known)
        await scene.ends()


async def test_restarts_again_and_again(scene: Scene, postgres: OwnPostgres) -> None:
    """Restarts that follow upon each other, each amid the recovery from the one before, change nothing of that."""
    async with service_running(settings_for(scene.dsn, scene.sandbox.url, LASTING)) as service:
        async with load(scene, service):
            for mode in ("fast", "immediate", "fast", "immediate"):
                await postgres.restart(mode)
                await asyncio.sleep(0.4)
        await scene.ends()
        assert await ready(service)


async def test_streams_outlive_a_restart(scene: Scene, postgres: OwnPostgres) -> None:
    """Clients that follow orders stay connected while PostgreSQL is away, and miss nothing that happens afterwards."""
    settings = settings_for(scene.dsn, scene.sandbox.url, LASTING)
    async with service_running(settings, "api") as service, AsyncExitStack() as stack:
        await scene.place(service.client, 5)
        streams = [await stack.enter_async_context(following(service.client, order_id)) for order_id in scene.placed]
        for stream in streams:
            await stream.until(1)
        await postgres.stop("immediate")
        await becomes(service, wanted=False)
        await postgres.start()
        await becomes(service, wanted=True)
        assert not any(stream.ended for stream in streams)
        async with service_running(settings, "worker"), asyncio.timeout(60):
            while not all(stream.ended for stream in streams):
                await asyncio.sleep(0.02)
            await scene.ends()
    assert {tuple(stream.ids) for stream in streams} == {(1, 2, 3, 4, 5, 6, 7)}
