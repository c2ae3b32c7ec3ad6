"""Many streams beside each other: one look for all, a bound, clients that leave, loops and listeners that fail."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import httpx
import pytest
from httpx_aiohttp import HttpxAiohttpClient
from prometheus_client import REGISTRY
from sqlalchemy import text
from sqlalchemy.event import listen

from app.outbox import news
from tests.component.api.following import JOURNEY, followed, following, is_problem, until
from tests.component.outbox.events import statements
from tests.faults.proxy import NO_LINGER
from tests.service import Sandbox, Service, service_running, settings_for

LISTENERS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name ^@ 'orders-' AND query = 'SELECT 1'"""


@asynccontextmanager
async def unlimited(service: Service) -> AsyncIterator[HttpxAiohttpClient]:
    """A client that opens as many connections as it needs."""
    async with HttpxAiohttpClient(
        base_url=service.client.base_url, limits=httpx.Limits(max_connections=300), timeout=30
    ) as client:
        yield client


async def leave_in_the_middle(service: Service, order_id: int) -> None:
    """Read the first event and break the connection, as a network does."""
    url = service.client.base_url
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(f"GET /orders/{order_id}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    await reader.readuntil(b"id: 1\n")
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
    writer.transport.abort()


async def test_two_hundred_clients_cost_one_connection(pg_dsn: str, sandbox: Sandbox) -> None:
    """All of them get every event in sequence; one connection listens, and none is held while they wait."""
    settings = settings_for(pg_dsn, sandbox.url)
    async with service_running(settings, "api") as service, AsyncExitStack() as stack:
        ids = [await service.place() for _ in range(20)]
        client = await stack.enter_async_context(unlimited(service))
        streams = [await stack.enter_async_context(following(client, ids[n % 20])) for n in range(200)]
        await until(lambda: all(len(stream.events) == 1 for stream in streams), 30)
        await until(lambda: service.wiring.database.pool_in_use == 0)
        assert service.wiring.news.watches == 200
        async with service.wiring.database.engine.connect() as conn:
            assert await conn.scalar(text(LISTENERS)) == 1
        async with service_running(settings, "worker"):
            await until(lambda: all(stream.ended for stream in streams), 30)
        await until(lambda: service.wiring.news.watches == 0)
    assert {tuple(stream.types) for stream in streams} == {tuple(JOURNEY)}
    assert {tuple(stream.ids) for stream in streams} == {(1, 2, 3, 4, 5, 6, 7)}


async def test_many_moves_share_a_look(pg_dsn: str, sandbox: Sandbox) -> None:
    """While orders move all the time, the watched ones are looked for at most once in a pause."""
    settings = settings_for(pg_dsn, sandbox.url, {"ORDERS_API__NEWS_PAUSE": "0.5"})
    async with service_running(settings, "api") as service:
        looks = 0

        def note(_conn: object, _cursor: object, statement: str, *_: object) -> None:
            nonlocal looks
            looks += "known.sequence" in statement

        watched = await service.place()
        async with following(service.client, watched) as stream:
            await stream.until(1)
            listen(service.wiring.database.engine.sync_engine, "before_cursor_execute", note)
            began = asyncio.get_running_loop().time()
            while asyncio.get_running_loop().time() < began + 1.2:
                await service.place()
            passed = asyncio.get_running_loop().time() - began
        assert 2 <= looks <= 2 + passed / 0.5


async def test_nobody_watches_and_nothing_is_looked_for(service: Service) -> None:
    """Without streams the news cost no statement."""
    with statements(service.wiring.database) as seen:
        order_id = await service.place()
        await service.reach([order_id], "COMPLETED")
    assert not [statement for statement in seen if "known.sequence" in statement]


async def test_a_silent_listener_starves_nobody(pg_dsn: str, sandbox: Sandbox) -> None:
    """Where no notification comes through, the streams' own look finds what has happened."""
    environ = {"ORDERS_PG__PGBOUNCER": "true", "ORDERS_API__POLL_INTERVAL": "0.3"}
    settings = settings_for(pg_dsn, sandbox.url)
    async with service_running(settings_for(pg_dsn, sandbox.url, environ), "api") as service:
        assert not service.wiring.listener.loop.started
        order_id = await service.place()
        async with following(service.client, order_id) as stream:
            await stream.until(1)
            async with service_running(settings, "worker"):
                await until(lambda: stream.ended, 20)
    assert stream.types == JOURNEY


async def test_a_killed_loop_costs_no_stream(pg_dsn: str, sandbox: Sandbox) -> None:
    """Whoever looks for news is started again when it dies, and those who wait notice nothing."""
    settings = settings_for(pg_dsn, sandbox.url)
    async with service_running(settings, "api") as service:
        loop = service.wiring.news.loop
        async with following(service.client, await service.place()) as stream:
            await stream.until(1)
            assert loop._running is not None
            loop._running.cancel()
            await until(lambda: service.wiring.stalled == ["news"])
            async with service_running(settings, "worker"):
                await until(lambda: stream.ended, 20)
        assert (loop.restarts, service.wiring.stalled) == (1, [])
    assert stream.types == JOURNEY


async def test_streams_have_a_bound(pg_dsn: str, sandbox: Sandbox) -> None:
    """Beyond `api.max_streams` clients are asked to come again; a place that becomes free is given away."""
    settings = settings_for(pg_dsn, sandbox.url, {"ORDERS_API__MAX_STREAMS": "2"})
    async with service_running(settings, "api") as service:
        order_id = await service.place()
        async with following(service.client, order_id):
            async with following(service.client, order_id):
                refused = await service.client.get(f"/orders/{order_id}/events")
                assert is_problem(refused, 503)
                assert int(refused.headers["retry-after"]) >= 1
                assert REGISTRY.get_sample_value("order_watches") == 2
            await until(lambda: service.wiring.news.watches == 1)
            async with following(service.client, order_id) as stream:
                await stream.until(1)


async def test_clients_that_leave_are_forgotten(pg_dsn: str, sandbox: Sandbox) -> None:
    """Connections that break in the middle free their places, and other clients notice nothing."""
    settings = settings_for(pg_dsn, sandbox.url)
    async with service_running(settings, "api") as service:
        order_id = await service.place()
        async with following(service.client, order_id) as stays:
            await asyncio.gather(*(leave_in_the_middle(service, order_id) for _ in range(20)))
            await until(lambda: service.wiring.news.watches == 1)
            async with service_running(settings, "worker"):
                await until(lambda: stays.ended, 20)
    assert stays.types == JOURNEY


async def test_a_client_that_does_not_read_is_let_go(
    pg_dsn: str, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more events wait for it than the bound; it is ended, comes again, and gets what it has not had."""
    monkeypatch.setattr(news, "BACKLOG", 3)
    settings = settings_for(pg_dsn, sandbox.url)
    async with service_running(settings, "api") as service:
        order_id = await service.place()
        with service.wiring.news.watch(order_id, 0) as watch:
            async with service_running(settings, "worker"):
                await service.reach([order_id], "COMPLETED")
            await until(lambda: watch.over)
            taken = await watch.events(1)
            assert len(taken) <= 3
            assert await watch.events(1) == []
        seen = str(len(taken))
        assert (await followed(service.client, order_id, Last_Event_ID=seen)).ids == [*range(len(taken) + 1, 8)]


async def test_a_stop_ends_streams_at_once(pg_dsn: str, sandbox: Sandbox) -> None:
    """At the signal all streams end properly, and those that begin later end after their history."""
    settings = settings_for(pg_dsn, sandbox.url)
    async with service_running(settings, "api") as service:
        order_id = await service.place()
        async with following(service.client, order_id) as stream:
            await stream.until(1)
            service.wiring.quiesce()
            await until(lambda: stream.ended)
        late = await followed(service.client, order_id)
        assert (stream.ids, late.ids) == ([1], [1])
