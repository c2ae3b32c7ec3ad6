"""GET /orders/{id} for clients that come again: entity tags, and waiting for news instead of asking for it."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from fastapi import Request
from sqlalchemy import text

from app.api.prefer import wait_wanted
from app.settings import Settings
from tests.component.api.following import is_problem
from tests.service import Sandbox, Service, service_running, settings_for


@pytest.fixture
def settings(pg_dsn: str, sandbox: Sandbox) -> Settings:
    return settings_for(pg_dsn, sandbox.url)


@pytest.fixture
async def still(settings: Settings) -> AsyncIterator[Service]:
    """A service without a worker: its orders stay where they are."""
    async with service_running(settings, "api") as service:
        yield service


async def write(service: Service, sql: str) -> None:
    async with service.wiring.database.engine.begin() as conn:
        await conn.execute(text(sql))


async def test_who_has_the_order_as_it_is_gets_304(still: Service) -> None:
    """The answer to a tag that still holds is empty, and has the headers that the order would have come with."""
    path = f"/orders/{await still.place()}"
    whole = await still.client.get(path)
    assert whole.headers["etag"].startswith('"')
    assert whole.headers["cache-control"] == "private, no-cache"
    again = await still.client.get(path, headers={"If-None-Match": whole.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    for name in ("etag", "cache-control"):
        assert again.headers[name] == whole.headers[name]
    assert int(again.headers["retry-after"]) >= 1
    assert "content-type" not in again.headers


TAGS = [
    ("*", 304),
    ("W/{tag}", 304),
    ('"other", W/"another",{tag}', 304),
    ('"with,comma" , {tag} , ""', 304),
    ('"other"', 200),
    ("W/*", 200),
    ("{tag}x", 200),
    ('"with space", {tag}', 200),
    ("x{tag}", 200),
    ('"other" {tag}', 200),
    ('{tag}, "other', 200),
    ("*, {tag}", 200),
    (", ,\t{tag},", 304),
    ("{bare}", 200),
    ("", 200),
    ('"{bare}', 200),
    ("\x80\xff", 200),
]


async def test_tags_are_compared_as_http_says(still: Service, subtests: pytest.Subtests) -> None:
    """Any of a list, weak or strong, is enough; what is no tag names nothing."""
    path = f"/orders/{await still.place()}"
    tag = (await still.client.get(path)).headers["etag"]
    for named, status in TAGS:
        with subtests.test(named=named):
            value = named.format(tag=tag, bare=tag.strip('"')).encode("latin-1")
            assert (await still.client.get(path, headers=[(b"If-None-Match", value)])).status_code == status


async def test_several_lines_are_one_list(still: Service) -> None:
    """A client or proxy may send the header twice."""
    path = f"/orders/{await still.place()}"
    tag = (await still.client.get(path)).headers["etag"]
    lines = [("If-None-Match", '"other"'), ("If-None-Match", tag)]
    assert (await still.client.get(path, headers=lines)).status_code == 304


async def test_a_list_is_not_kept(still: Service) -> None:
    """A list has no tag, and no cache may answer with it."""
    listed = await still.client.get("/orders", headers={"If-None-Match": "*"})
    assert (listed.status_code, listed.headers["cache-control"]) == (200, "no-store")


async def test_a_tag_is_for_what_exists(still: Service) -> None:
    """`*` makes no order out of nothing, and a tag opens nothing."""
    assert is_problem(await still.client.get("/orders/999", headers={"If-None-Match": "*"}), 404)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE orders SET status = 'CONFIRMED', version = 2",
        "UPDATE order_confirmation_task SET retry_count = 3",
        "UPDATE order_confirmation_task SET last_error = 'timeout: of 3 s'",
        "DELETE FROM order_confirmation_task",
    ],
)
async def test_whatever_changes_the_answer_changes_the_tag(still: Service, change: str) -> None:
    """An attempt more or a step less is another answer; the seconds that pass are none."""
    path = f"/orders/{await still.place()}"
    tag = (await still.client.get(path)).headers["etag"]
    await asyncio.sleep(1.1)
    known = {"If-None-Match": tag}
    assert (await still.client.get(path, headers=known)).status_code == 304
    await write(still, change)
    changed = await still.client.get(path, headers=known)
    assert changed.status_code == 200
    assert changed.headers["etag"] != tag


async def test_a_wait_ends_with_the_order(still: Service, settings: Settings) -> None:
    """Without a tag the answer comes when the order is final, however many moves that takes."""
    path = f"/orders/{await still.place()}"
    waiting = asyncio.create_task(still.client.get(path, headers={"Prefer": "wait=30"}, timeout=40))
    async with asyncio.timeout(20):
        while not still.wiring.news.watches:
            await asyncio.sleep(0.01)
        assert still.wiring.database.pool_in_use <= 1
        async with service_running(settings, "worker"):
            answer = await waiting
    assert answer.json()["status"] == "COMPLETED"
    assert answer.headers["preference-applied"] == "wait=30"
    assert "retry-after" not in answer.headers
    assert still.wiring.news.watches == 0


async def test_a_wait_ends_with_the_next_move_of_what_is_known(still: Service) -> None:
    """With a tag the answer comes as soon as the order has moved from there."""
    order_id = await still.place()
    path = f"/orders/{order_id}"
    known = {"Prefer": "wait=30", "If-None-Match": (await still.client.get(path)).headers["etag"]}
    waiting = asyncio.create_task(still.client.get(path, headers=known, timeout=40))
    async with asyncio.timeout(20):
        while not still.wiring.news.watches:
            await asyncio.sleep(0.01)
        await still.client.post(f"{path}/cancel")
        answer = await waiting
    assert (answer.status_code, answer.json()["status"]) == (200, "CANCELLED")
    assert (await still.client.get(path, headers={"If-None-Match": "*"})).status_code == 304


async def test_nobody_waits_for_what_is_already_there(service: Service) -> None:
    """A final order, and one that is no longer what the client knows, are answered at once."""
    order_id = await service.place()
    await service.reach([order_id], "COMPLETED")
    for named in ({}, {"If-None-Match": '"old"'}, {"If-None-Match": "*"}):
        async with asyncio.timeout(10):
            answer = await service.client.get(f"/orders/{order_id}", headers={"Prefer": "wait=30", **named})
        assert answer.status_code == (304 if "*" in named.values() else 200)
        assert answer.headers["preference-applied"] == "wait=30"


@pytest.mark.rule("ASYNC-X1")
async def test_a_wait_has_an_end(pg_dsn: str, sandbox: Sandbox, subtests: pytest.Subtests) -> None:
    """It lasts as long as the client wishes and no longer than `api.max_wait`; then the order is shown as it is."""
    async with service_running(settings_for(pg_dsn, sandbox.url, {"ORDERS_API__MAX_WAIT": "1"}), "api") as service:
        for wanted, applied in (("1", "1"), ("3600", "1"), ("0", "0")):
            with subtests.test(wanted=wanted):
                path = f"/orders/{await service.place()}"
                began = time.monotonic()
                answer = await service.client.get(path, headers={"Prefer": f"wait={wanted}"}, timeout=20)
                assert time.monotonic() - began >= int(applied)
                assert (answer.status_code, answer.json()["status"]) == (200, "ACCEPTED")
                assert answer.headers["preference-applied"] == f"wait={applied}"
                known = {"Prefer": f"wait={wanted}", "If-None-Match": answer.headers["etag"]}
                assert (await service.client.get(path, headers=known, timeout=20)).status_code == 304


async def test_where_too_many_wait_the_answer_comes_at_once(pg_dsn: str, sandbox: Sandbox) -> None:
    """A preference may be passed over: without a free place there is the order, and no Preference-Applied."""
    async with service_running(settings_for(pg_dsn, sandbox.url, {"ORDERS_API__MAX_STREAMS": "1"}), "api") as service:
        order_id = await service.place()
        with service.wiring.news.watch(order_id, 1):
            answer = await service.client.get(f"/orders/{order_id}", headers={"Prefer": "wait=30"}, timeout=10)
    assert answer.status_code == 200
    assert "preference-applied" not in answer.headers


@pytest.mark.parametrize("more", [0, 1, 3], ids=["alone", "one behind", "three behind"])
async def test_nobody_waits_for_a_client_that_has_left(still: Service, more: int) -> None:
    """Its place is free at once, and not when its time is up, also if it has asked for more on the same connection."""
    url, order_id = still.client.base_url, await still.place()
    _, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(f"GET /orders/{order_id} HTTP/1.1\r\nHost: localhost\r\nPrefer: wait=30\r\n\r\n".encode())
    async with asyncio.timeout(10):
        while not still.wiring.news.watches:
            await asyncio.sleep(0.01)
        writer.write(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n" * more)
        await asyncio.sleep(0.1)
        writer.transport.abort()
        while still.wiring.news.watches:
            await asyncio.sleep(0.01)


async def test_a_stop_ends_waits_at_once(still: Service) -> None:
    """Who waits gets the order as it is when the service begins to stop."""
    path = f"/orders/{await still.place()}"
    waiting = asyncio.create_task(still.client.get(path, headers={"Prefer": "wait=30"}, timeout=40))
    async with asyncio.timeout(10):
        while not still.wiring.news.watches:
            await asyncio.sleep(0.01)
        still.wiring.quiesce()
        assert (await waiting).json()["status"] == "ACCEPTED"


@pytest.mark.parametrize(
    ("lines", "wait"),
    [
        ([], None),
        (["wait=5"], 5),
        (["WAIT = 5"], 5),
        (['wait="5"'], 5),
        (["respond-async, wait=5; strict"], 5),
        (["return=minimal", "wait=5"], 5),
        (["wait=5, wait=7"], 5),
        (["wait=999999999"], 30),
        (["wait=9999999999999"], None),
        (["wait", "wait=", "wait=-1", "wait=1.5", 'wait="5', "await=5", "wait=٥"], None),
    ],
)
def test_preferences_are_read_as_their_rfc_says(lines: list[str], wait: int | None) -> None:
    """The first `wait` counts, whatever stands around it; nonsense is no preference, and never an error."""
    headers = [(b"prefer", line.encode()) for line in lines]
    assert wait_wanted(Request({"type": "http", "headers": headers}), 30) == wait
