"""GET /orders/{id}/events, on the whole service over real sockets."""

import json
from datetime import datetime
from hashlib import sha256

import pytest
from sqlalchemy import text

from tests.component.api.following import JOURNEY, followed, following, is_problem, until
from tests.service import ORDER, Sandbox, Service, service_running, settings_for


async def execute(service: Service, sql: str) -> None:
    async with service.wiring.database.engine.begin() as conn:
        await conn.execute(text(sql))


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


NEVER_GIVEN = ["x", "-1", "1.5", "1.0", "+1", "0_1", "99", "2147483647", "2147483648", "9" * 400, ""]


async def test_an_id_that_was_never_given_is_refused(service: Service, subtests: pytest.Subtests) -> None:
    """Last-Event-ID is the number of one of the order's events; all else is a 422 that names the header."""
    order_id = await service.place()
    for garbage in NEVER_GIVEN:
        with subtests.test(garbage=garbage[:20]):
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


async def test_what_happened_before_the_watch_is_not_missed(pg_dsn: str, sandbox: Sandbox) -> None:
    """Something may happen between reading an order and watching it, and nobody tells of it again."""
    unheard = {"ORDERS_PG__PGBOUNCER": "true", "ORDERS_API__POLL_INTERVAL": "25"}
    async with service_running(settings_for(pg_dsn, sandbox.url, unheard), "api") as service:
        order_id = await service.place()
        with service.wiring.news.watch(order_id, 0) as watch:
            assert [event.sequence for event in await watch.events(5)] == [1]


async def test_a_quiet_stream_is_kept_alive(pg_dsn: str, sandbox: Sandbox) -> None:
    """While nothing happens comments pass, which clients ignore and proxies take for life."""
    settings = settings_for(pg_dsn, sandbox.url, {"ORDERS_API__STREAM_KEEP_ALIVE": "0.05"})
    async with service_running(settings, "api") as service:
        async with following(service.client, await service.place()) as stream:
            await until(lambda: stream.comments > 3)
        assert len(stream.events) == 1
