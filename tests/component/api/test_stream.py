"""GET /orders/{id}/events, on the whole service over real sockets."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from hashlib import sha256

import httpx
import pytest
from httpx_aiohttp import HttpxAiohttpClient
from prometheus_client import REGISTRY
from sqlalchemy import text
from sqlalchemy.event import listen

from app.outbox import news
from tests.component.api.following import followed, following, is_problem
from tests.component.outbox.events import statements
from tests.faults.proxy import NO_LINGER
from tests.service import ORDER, Sandbox, Service, service_running, settings_for

JOURNEY = [
    *("order.accepted", "order.confirmed", "order.payment_registered", "order.paid", "order.receipt_issued"),
    *("order.booked", "order.completed"),
]

LISTENERS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name ^@ 'orders-' AND query = 'SELECT 1'"""


async def execute(service: Service, sql: str) -> None:
    async with service.wiring.database.engine.begin() as conn:
        await conn.execute(text(sql))


async def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


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


async def test_an_order_is_followed_to_its_end(pg_dsn: str, sandbox: Sandbox) -> None:
    """Every event comes once, in sequence, as the CloudEvent that consumers get; the last one ends the stream."""
    settings = settings_for(pg_dsn, sandbox.url)
    heard = settings_for(pg_dsn, sandbox.url, {"ORDERS_API__POLL_INTERVAL": "25"})
    async with service_running(heard, "api") as service:
        order_id = await service.place()
        async with following(service.client, order_id) as stream:
            await stream.until(1)
            assert not stream.ended
            async with service_running(settings, "worker"):
                await until(lambda: stream.ended, 20)
    assert stream.types == JOURNEY
    assert stream.ids == [1, 2, 3, 4, 5, 6, 7]
    for event in stream.events:
        assert event.data["type"] == event.type
        assert (event.data["subject"], int(event.data["sequence"])) == (str(order_id), int(event.id))
        assert datetime.fromisoformat(event.data["time"])
    assert stream.events[-1].data["data"]["status"] == "COMPLETED"
    assert len({event.data["id"] for event in stream.events}) == 7


async def test_a_stream_is_made_for_clients_and_what_stands_in_between(service: Service) -> None:
    """Nothing stores or collects it, and clients whose stream ended come back one after the other."""
    order_id = await service.place()
    streams = [await followed(service.client, order_id) for _ in range(3)]
    headers = streams[0].answer.headers
    assert headers["content-type"].partition(";")[0] == "text/event-stream"
    assert (headers["cache-control"], headers["x-accel-buffering"]) == ("no-store", "no")
    pauses = {stream.retry for stream in streams}
    assert all(pause is not None and 1000 <= pause <= 2000 for pause in pauses)
    assert len(pauses) > 1


async def test_who_comes_late_gets_the_history(service: Service) -> None:
    """A finished order's stream is its whole history, or what comes after the event that the client names."""
    order_id = await service.place()
    await service.reach([order_id], "COMPLETED")
    assert (await followed(service.client, order_id)).types == JOURNEY
    assert (await followed(service.client, order_id, Last_Event_ID="4")).ids == [5, 6, 7]


async def test_who_knows_the_end_is_told_to_stop_asking(service: Service) -> None:
    """204 is what keeps an EventSource from coming again."""
    order_id = await service.place()
    await service.reach([order_id], "COMPLETED")
    answer = await service.client.get(f"/orders/{order_id}/events", headers={"Last-Event-ID": "7"})
    assert (answer.status_code, answer.content) == (204, b"")


async def test_an_operators_retry_goes_on_where_the_stream_ended(pg_dsn: str, sandbox: Sandbox) -> None:
    """A failed step ends the stream; after a retry the old end is history like the rest and ends nothing."""
    await sandbox.set("insurance", mode="error")
    settings = settings_for(pg_dsn, sandbox.url, {"ORDERS_TASKS__ORDER_CONFIRMATION_TASK__MAX_ATTEMPTS": "1"})
    async with service_running(settings) as service:
        placed = (await service.client.post("/orders", json=ORDER)).json()
        order_id = placed["orderId"]
        assert (await followed(service.client, order_id)).types == ["order.accepted", "order.step_failed"]
        await sandbox.set("insurance", mode="ok")
        retried = await service.client.post(f"/ops/tasks/order_confirmation_task/{placed['taskId']}/retry")
        assert retried.status_code == 200, retried.text
        whole = await followed(service.client, order_id)
        assert whole.types == ["order.accepted", "order.step_failed", "order.step_retried", *JOURNEY[1:]]
        assert (await followed(service.client, order_id, Last_Event_ID="2")).ids == whole.ids[2:]


@pytest.mark.parametrize("kept", ["", " AND sequence <> 3"])
async def test_a_history_that_is_deleted_ends_with_the_state(service: Service, kept: str) -> None:
    """Where retention took the last event, the order's state stands in its place, under the last event's id."""
    order_id = await service.place()
    await service.reach([order_id], "COMPLETED")
    await execute(service, f"DELETE FROM outbox_event WHERE order_id = {order_id}{kept}")
    stream = await followed(service.client, order_id)
    assert stream.ids == [3, 7] if kept else [7]
    state = stream.events[-1]
    assert state.type == "order.state"
    assert state.data["data"]["status"] == "COMPLETED"
    assert state.data["data"]["fiscalNumber"]
    answer = await service.client.get(f"/orders/{order_id}/events", headers={"Last-Event-ID": "7"})
    assert answer.status_code == 204


@pytest.mark.parametrize(
    "garbage", ["x", "-1", "1.5", "1.0", "+1", "0_1", "99", "2147483647", "2147483648", "9" * 400, ""]
)
async def test_an_id_that_was_never_given_is_refused(service: Service, garbage: str) -> None:
    """Last-Event-ID is the number of one of the order's events; all else is a 422 that names the header."""
    order_id = await service.place()
    answer = await service.client.get(f"/orders/{order_id}/events", headers={"Last-Event-ID": garbage})
    assert is_problem(answer, 422)
    assert [error["pointer"] for error in answer.json()["errors"]] == ["/header/Last-Event-ID"]
    assert service.wiring.news.watches == 0


async def test_an_unknown_order_has_no_stream(service: Service) -> None:
    """404 is said before anything streams, and leaves nothing watched."""
    assert is_problem(await service.client.get("/orders/999/events"), 404)
    assert is_problem(await service.client.get("/orders/x/events"), 422)
    assert service.wiring.news.watches == 0


async def test_only_whoever_may_read_an_order_follows_it(pg_dsn: str, sandbox: Sandbox) -> None:
    """Other customers' orders do not exist for a caller, and other scopes do not read."""
    keys = [
        {"name": "writer", "sha256": sha256(b"w").hexdigest(), "scopes": ["orders:write"]},
        {"name": "reader", "sha256": sha256(b"r").hexdigest(), "scopes": ["orders:read"]},
        {"name": "desk", "sha256": sha256(b"d").hexdigest(), "scopes": ["orders:read"], "customers": ["c-1"]},
    ]
    environ = {"ORDERS_AUTH__MODE": "api_key", "ORDERS_AUTH__KEYS": json.dumps(keys)}
    writer, reader, desk = ({"Authorization": f"Bearer {key}"} for key in "wrd")
    async with service_running(settings_for(pg_dsn, sandbox.url, environ)) as service:
        answer = await service.client.post("/orders", json=ORDER, headers=writer)
        path = f"/orders/{answer.json()['orderId']}/events"
        assert is_problem(await service.client.get(path), 401)
        assert is_problem(await service.client.get(path, headers=writer), 403)
        assert is_problem(await service.client.get(path, headers=desk), 404)
        assert (await service.client.get(path, headers=reader, timeout=20)).status_code == 200


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


async def test_what_happened_before_the_watch_is_not_missed(pg_dsn: str, sandbox: Sandbox) -> None:
    """Something may happen between reading an order and watching it, and nobody tells of it again."""
    unheard = {"ORDERS_PG__PGBOUNCER": "true", "ORDERS_API__POLL_INTERVAL": "25"}
    async with service_running(settings_for(pg_dsn, sandbox.url, unheard), "api") as service:
        order_id = await service.place()
        with service.wiring.news.watch(order_id, 0) as watch:
            assert [event.sequence for event in await watch.events(5)] == [1]


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


async def test_a_quiet_stream_is_kept_alive(pg_dsn: str, sandbox: Sandbox) -> None:
    """While nothing happens comments pass, which clients ignore and proxies take for life."""
    settings = settings_for(pg_dsn, sandbox.url, {"ORDERS_API__STREAM_KEEP_ALIVE": "0.05"})
    async with service_running(settings, "api") as service:
        async with following(service.client, await service.place()) as stream:
            await until(lambda: stream.comments > 3)
        assert len(stream.events) == 1


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
