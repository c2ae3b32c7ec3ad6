"""What every request and every answer have in common: an id, a line in the log, methods that are understood."""

import asyncio
import re
from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
import structlog
from prometheus_client import REGISTRY

from app.api.console.pages import SCRIPT
from app.api.edge import Admission
from tests.service import ORDER, Sandbox, Service, service_running, settings_for

Line = MutableMapping[str, Any]
MADE = re.compile(r"[0-9a-f]{32}")


@pytest.fixture
def lines() -> Iterator[list[Line]]:
    """What is logged, with what belongs to the context."""
    with structlog.testing.capture_logs([structlog.contextvars.merge_contextvars]) as found:
        yield found


def requests(lines: list[Line]) -> list[Line]:
    return [line for line in lines if line["event"] == "request"]


ANSWERS = [
    ("POST", "/orders", ORDER, 202),
    ("GET", "/orders/999", None, 404),
    ("GET", "/nowhere", None, 404),
    ("DELETE", "/orders", None, 405),
    ("POST", "/orders/999/cancel", None, 404),
    ("POST", "/orders", {}, 422),
    ("GET", "/health/live", None, 200),
]


async def test_every_answer_names_its_request(service: Service, subtests: pytest.Subtests) -> None:
    """The caller's id comes back, in the header and in the problem; without one a new one is made each time."""
    for method, path, body, status in ANSWERS:
        with subtests.test(method=method, path=path, status=status):
            named = await service.client.request(method, path, json=body, headers={"X-Request-ID": "shop-17/a"})
            assert (named.status_code, named.headers["x-request-id"]) == (status, "shop-17/a")
            unnamed = [await service.client.request(method, path, json=body) for _ in range(2)]
            assert all(MADE.fullmatch(answer.headers["x-request-id"]) for answer in unnamed)
            assert unnamed[0].headers["x-request-id"] != unnamed[1].headers["x-request-id"]
            for answer in (named, *unnamed):
                if status >= 400:
                    assert answer.json()["requestId"] == answer.headers["x-request-id"]


async def test_a_body_too_large_names_its_request(pg_dsn: str, sandbox: Sandbox) -> None:
    """413 has the id as well, though its body is not read to the end."""
    async with service_running(
        settings_for(pg_dsn, sandbox.url, {"ORDERS_API__MAX_BODY_BYTES": "9"}), "api"
    ) as service:
        answer = await service.client.post("/orders", json=ORDER, headers={"X-Request-ID": "r-3"})
        assert (answer.status_code, answer.json()["requestId"], answer.headers["x-request-id"]) == (413, "r-3", "r-3")


async def test_an_id_that_is_not_sane_is_replaced(service: Service, subtests: pytest.Subtests) -> None:
    """Ids of strangers end up in logs: too long ones, blanks and other letters get no further."""
    for sent in ("", "a" * 129, "two words", "caf\xe9", "tab\there"):
        with subtests.test(sent=sent[:20]):
            answer = await service.client.get("/orders/1", headers=[(b"X-Request-ID", sent.encode("latin-1"))])
            assert MADE.fullmatch(answer.headers["x-request-id"])


async def test_a_bug_is_answered_and_logged_once(
    service: Service, lines: list[Line], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """500 as a problem with the request's id, one traceback under that id, and no word of it in the answer."""

    async def broken(_placement: object) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(service.wiring.intake, "place", broken)
    answer = await service.client.post("/orders", json=ORDER, headers={"X-Request-ID": "r-1"})
    assert (answer.status_code, answer.json()["type"]) == (500, "/problems/internal-error")
    assert answer.json()["requestId"] == answer.headers["x-request-id"] == "r-1"
    assert "secret" not in answer.text
    (traceback,) = [line for line in lines if line["log_level"] == "error"]
    assert traceback["request_id"] == "r-1"
    assert isinstance(traceback["exc_info"], ZeroDivisionError)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
    assert requests(lines)[0]["status"] == 500


async def test_one_line_for_each_request(service: Service, lines: list[Line]) -> None:
    """Method, route, status, seconds, id and caller; neither ids of orders nor queries nor bodies."""
    order_id = await service.place()
    await service.client.get(f"/orders/{order_id}")
    await service.client.get("/orders", params={"customerId": "c-42"})
    await service.client.get("/nowhere/17")
    await service.client.head("/orders/999")
    found = requests(lines)
    assert [(line["method"], line["route"], line["status"], line["caller"]) for line in found] == [
        ("POST", "/orders", 202, "anonymous"),
        ("GET", "/orders/{order_id}", 200, "anonymous"),
        ("GET", "/orders", 200, "anonymous"),
        ("GET", "none", 404, None),
        ("HEAD", "/orders/{order_id}", 404, "anonymous"),
    ]
    assert all(0 < line["seconds"] < 10 and MADE.fullmatch(line["request_id"]) for line in found)
    assert {line["log_level"] for line in found} == {"info"}
    assert "c-42" not in str(found)


async def test_probes_are_not_logged(service: Service, lines: list[Line]) -> None:
    """Health and metrics are asked for all day: their lines are for DEBUG."""
    for path in ("/health/live", "/health/ready", "/metrics"):
        await service.client.get(path)
    assert [line["log_level"] for line in requests(lines)] == ["debug"] * 3


async def test_requests_are_measured_by_their_route(
    pg_dsn: str, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once each, by method, route and class of status, those turned away for load as well; probes are not."""
    expected = {
        ("POST", "/orders", "2xx"): 1,
        ("POST", "/orders", "4xx"): 1,
        ("POST", "/orders", "5xx"): 1,
        ("HEAD", "/orders/{order_id}", "2xx"): 1,
        ("GET", "none", "4xx"): 1,
        ("OTHER", "none", "4xx"): 1,
        ("GET", "/docs", "2xx"): 1,
        ("GET", "/openapi.json", "2xx"): 1,
        ("GET", "/health/live", "2xx"): 0,
        ("GET", "/metrics", "2xx"): 0,
    }
    before = {labels: measured(labels) for labels in expected}
    async with service_running(settings_for(pg_dsn, sandbox.url), "api") as service:
        order_id = await service.place()
        await service.client.post("/orders", json={})
        await service.client.head(f"/orders/{order_id}")
        for path in ("/nowhere/1", "/docs", "/openapi.json", "/health/live", "/metrics"):
            await service.client.get(path)
        await service.client.request("PROPFIND", "/nowhere")
        monkeypatch.setattr(Admission, "full", property(lambda _admission: True))
        await service.client.post("/orders", json=ORDER)
    assert {labels: measured(labels) - before[labels] for labels in expected} == expected


def measured(labels: tuple[str, str, str]) -> float:
    named = dict(zip(("method", "handler", "status"), labels, strict=True))
    return REGISTRY.get_sample_value("http_request_duration_seconds_count", named) or 0


async def test_what_does_not_say_so_is_not_to_be_kept(service: Service) -> None:
    """A cache may keep a 404 that says nothing, and no cache keeps orders or what operators see."""
    order_id = await service.place()
    for path in ("/nowhere", "/orders/999", "/orders", "/ops/tasks", "/ops/systems", "/ops/board", "/metrics", "/docs"):
        assert (await service.client.get(path)).headers.get_list("cache-control") == ["no-store"]
    assert (await service.client.delete("/orders")).headers["cache-control"] == "no-store"
    assert (await service.client.get(f"/orders/{order_id}")).headers.get_list("cache-control") == ["private, no-cache"]
    assert "immutable" in (await service.client.get(SCRIPT.url)).headers["cache-control"]


async def test_a_refused_request_has_its_line_too(
    pg_dsn: str, sandbox: Sandbox, lines: list[Line], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is turned away because too many are there gets an id, and is seen in the log."""
    async with service_running(settings_for(pg_dsn, sandbox.url), "api") as service:
        monkeypatch.setattr(Admission, "full", property(lambda _admission: True))
        answer = await service.client.get("/orders", headers={"X-Request-ID": "r-2"})
    assert (answer.status_code, answer.json()["requestId"], answer.headers["x-request-id"]) == (503, "r-2", "r-2")
    assert [(line["status"], line["request_id"]) for line in requests(lines)] == [(503, "r-2")]


async def test_head_is_get_without_its_body(service: Service, subtests: pytest.Subtests) -> None:
    """The same status and headers, and no body."""
    for path in ("/health/live", "/health/ready", "/metrics", "/orders", "/docs", "/problems"):
        with subtests.test(path=path):
            got, head = await service.client.get(path), await service.client.head(path)
            assert (head.status_code, head.content) == (got.status_code, b"")
            assert head.headers["content-type"] == got.headers["content-type"]


async def test_head_of_an_order(service: Service) -> None:
    """An order can be asked after without its body, also on a connection that is used again."""
    order_id = await service.place()
    for _ in range(3):
        head = await service.client.head(f"/orders/{order_id}")
        assert (head.status_code, head.content) == (200, b"")
        assert int(head.headers["content-length"]) > 0
    missing = await service.client.head("/orders/999999")
    assert (missing.status_code, missing.content) == (404, b"")


async def test_head_of_a_stream_ends(pg_dsn: str, sandbox: Sandbox, lines: list[Line]) -> None:
    """A HEAD has no body to wait for: the stream behind it ends as well, long before its order does."""
    async with service_running(settings_for(pg_dsn, sandbox.url), "api") as service:
        order_id = await service.place()
        async with asyncio.timeout(5):
            head = await service.client.head(f"/orders/{order_id}/events")
            while not any(line["method"] == "HEAD" for line in requests(lines)):
                await asyncio.sleep(0.01)
    assert head.headers["content-type"].startswith("text/event-stream")


METHODS = [
    ("/orders", "HEAD, GET, POST, OPTIONS"),
    ("/orders/1", "HEAD, GET, OPTIONS"),
    ("/orders/1/cancel", "POST, OPTIONS"),
    ("/health/live", "HEAD, GET, OPTIONS"),
    ("/docs", "HEAD, GET, OPTIONS"),
]


async def test_a_wrong_method_is_told_the_right_ones(service: Service, subtests: pytest.Subtests) -> None:
    """405 with all methods of the address in Allow, and OPTIONS asks for them."""
    for path, allowed in METHODS:
        with subtests.test(path=path):
            wrong = await service.client.delete(path)
            assert (wrong.status_code, wrong.headers["allow"]) == (405, allowed)
            assert allowed in wrong.json()["detail"]
            options = await service.client.options(path)
            assert (options.status_code, options.headers["allow"], options.content) == (204, allowed, b"")


async def test_a_slash_too_much(service: Service) -> None:
    """A 404 that says what to leave out, where that helps."""
    helped = await service.client.get("/orders/")
    assert (helped.status_code, "without the slash" in helped.json()["detail"]) == (404, True)
    for path in ("/", "/nowhere/"):
        assert "slash" not in (await service.client.get(path)).json()["detail"]
    assert (await service.client.options("/nowhere")).status_code == 404


async def test_browsers_are_served_json(service: Service) -> None:
    """What a caller would rather have changes nothing: an API route answers with JSON, an error with a problem."""
    accept = {"Accept": "text/html"}
    assert (await service.client.get("/orders", headers=accept)).headers["content-type"] == "application/json"
    missing = await service.client.get("/orders/1", headers=accept)
    assert missing.headers["content-type"] == "application/problem+json"
