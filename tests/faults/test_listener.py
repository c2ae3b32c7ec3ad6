"""The listener's connection is lost in every way there is; what it would have said is found all the same."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from app import listener, loop
from app.tasks.queue import Claim
from tests.faults.proxy import Proxy, proxy_to_postgres
from tests.faults.scene import Scene
from tests.service import service_running, settings_for

RECONNECTS = 50

TERMINATE = """
SELECT count(pg_terminate_backend(pid)) = 1 FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE 'orders-all pool=%' AND query = 'SELECT 1'"""


@pytest.fixture
async def way(scene: Scene) -> AsyncIterator[tuple[Proxy, dict[str, str]]]:
    """A way to the database for the listener alone, and the settings that make it take that."""
    async with proxy_to_postgres(scene.dsn) as (proxy, dsn):
        yield proxy, {"ORDERS_PG__DIRECT_DSN": dsn, "ORDERS_TASKS__DEFAULT__POLL_INTERVAL": "20"}


async def test_fifty_reconnects_leave_one_connection(
    scene: Scene, way: tuple[Proxy, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often its connection is cut, each replica has one, hears again, and catches up on what it missed."""
    monkeypatch.setattr(loop, "RESTART_CAP", 0.02)
    proxy, environ = way
    async with service_running(settings_for(scene.dsn, scene.sandbox.url, environ)) as service:
        for lost in range(RECONNECTS):
            await connected(proxy, lost + 1)
            proxy.cut()
            if lost % 10 == 0:
                await scene.place(service.client)
        await connected(proxy, RECONNECTS + 1)
        assert proxy.most == 1
        await scene.place(service.client)
        await scene.ends(10)
        assert proxy.open == 1


async def test_a_listener_that_was_terminated_comes_back(scene: Scene, way: tuple[Proxy, dict[str, str]]) -> None:
    """PostgreSQL ends its session: it reconnects, and finds at once what was placed meanwhile."""
    proxy, environ = way
    async with service_running(settings_for(scene.dsn, scene.sandbox.url, environ)) as service:
        await scene.until(TERMINATE)
        await scene.place(service.client, 5)
        await connected(proxy, 2)
        await scene.ends(10)
        assert (proxy.opened, proxy.open) == (2, 1)


async def test_a_peer_that_silently_vanished_is_noticed(
    scene: Scene, way: tuple[Proxy, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection on which nothing comes and nothing breaks is given up by the probe, and replaced when that works."""
    monkeypatch.setattr(listener, "PROBE_INTERVAL", 0.2)
    monkeypatch.setattr(listener, "PROBE_TIMEOUT", 0.5)
    proxy, environ = way
    async with service_running(settings_for(scene.dsn, scene.sandbox.url, environ)) as service:
        await connected(proxy, 1)
        proxy.hold()
        await connected(proxy, 3)
        await scene.place(service.client, 5)
        proxy.pass_on()
        await scene.ends(10)
        assert proxy.open == 1


async def test_what_is_committed_between_look_and_sleep_is_not_slept_over(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An order that comes after the claim's snapshot and before the poller lies down is worked on at once."""
    environ = {"ORDERS_TASKS__DEFAULT__POLL_INTERVAL": "20"}
    async with service_running(settings_for(scene.dsn, scene.sandbox.url, environ)) as service:
        poller = service.wiring.pollers["order_confirmation_task"]
        claim = poller.queue.claim

        async def followed_by_an_order(batch: int, lease: float) -> Claim:
            found = await claim(batch, lease)
            if not scene.placed:
                await scene.place(service.client)
                while not poller.claiming._bell.is_set():
                    await asyncio.sleep(0.01)
            return found

        monkeypatch.setattr(poller.queue, "claim", followed_by_an_order)
        poller.claiming.ring()
        await scene.until("SELECT count(*) = 1 FROM orders", 10)
        await scene.ends(10)


async def connected(proxy: Proxy, times: int) -> None:
    """Wait until so many connections were opened, and the last one listens."""
    async with asyncio.timeout(10):
        while proxy.opened < times or not proxy.open:
            await asyncio.sleep(0.01)
