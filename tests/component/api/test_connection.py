"""What strangers may send: heads and bodies without measure, on real sockets; and what a page may do."""

import asyncio
import json
import re
import time
from base64 import b64encode
from hashlib import sha256
from typing import Any

import pytest

from app.api.connection import MAX_HEAD
from tests.service import ORDER, Sandbox, Service, service_running, settings_for

NAMES = b"".join(b"X-%d: a\r\n" % n for n in range(5_000))
START = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n"


async def send(service: Service, *parts: bytes, pause: float = 0) -> bytes:
    """Write the parts, as far as the service reads them, and return all that it answers until it hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", service.client.base_url.port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(pause)
        return await asyncio.wait_for(reader.read(), 10)
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def alive(service: Service) -> bool:
    return (await service.client.get("/health/live")).status_code == 200


TOO_LARGE = {
    "value": START + b"X: " + b"a" * MAX_HEAD + b"\r\n\r\n",
    "name": START + b"a" * MAX_HEAD + b": x\r\n\r\n",
    "count": START + NAMES + b"\r\n",
    "path": b"GET /" + b"a" * MAX_HEAD + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "query": b"GET /orders/1?" + b"a" * MAX_HEAD + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


async def test_a_head_too_large_is_refused(service: Service, subtests: pytest.Subtests) -> None:
    """431 as a problem, whether it is one value or many, at once or in pieces, and the connection is closed."""
    for what, head in TOO_LARGE.items():
        with subtests.test(what=what):
            pieces = [head[i : i + 5_000] for i in range(0, len(head), 5_000)]
            for answer in (await send(service, head), await send(service, *pieces)):
                status, _, rest = answer.partition(b"\r\n")
                assert status == b"HTTP/1.1 431 Request Header Fields Too Large"
                fields, _, body = rest.partition(b"\r\n\r\n")
                assert b"content-type: application/problem+json" in fields
                assert json.loads(body)["type"] == "/problems/head-too-large"
                assert f"x-request-id: {json.loads(body)['requestId']}".encode() in fields
            assert await alive(service)


async def test_a_head_without_end_is_cut(service: Service) -> None:
    """Who goes on sending is hung up on, long before memory or time run out."""
    began = time.monotonic()
    await send(service, START + b"X: ", *(b"a" * 1_000_000 for _ in range(50)))
    assert time.monotonic() - began < 10
    assert await alive(service)


TAILS = {
    "trailer": b"0\r\nX: " + b"a" * 200_000,
    "trailers": b"0\r\n" + NAMES * 3,
    "chunk-extension": b"1;" + b"a" * 200_000,
}


async def test_what_follows_a_body_is_bounded_too(service: Service, subtests: pytest.Subtests) -> None:
    """Trailers and chunk extensions are no way around the limit."""
    head = (
        b"POST /orders HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    for what, tail in TAILS.items():
        with subtests.test(what=what):
            pieces = [tail[i : i + 5_000] for i in range(0, len(tail), 5_000)]
            answer = await send(service, head, *pieces)
            assert b" 202 " not in answer
            assert await alive(service)


async def test_an_ordinary_head_is_welcome(service: Service) -> None:
    """What gateways and browsers add fits well, on a connection that is kept and used again, in any pieces."""
    request = START + b"Cookie: " + b"a" * 8_000 + b"\r\nX: " + b"b" * 16_000 + b"\r\n\r\n"
    last = request.replace(b"Host: localhost", b"Host: localhost\r\nConnection: close")
    answers = await send(service, *(request for _ in range(5)), request[:100], request[100:], last)
    assert answers.count(b'{"status":"alive"}') == 7


async def test_a_head_that_does_not_arrive_is_not_waited_for(
    pg_dsn: str, sandbox: Sandbox, subtests: pytest.Subtests
) -> None:
    """Silence, or a byte now and then, ends the connection after the keep-alive timeout."""
    settings = settings_for(pg_dsn, sandbox.url, {"ORDERS_API__KEEP_ALIVE": "1"})
    async with service_running(settings, "api") as service:
        for said in (b"", b"GET /hea", START):
            with subtests.test(said=said):
                began = time.monotonic()
                drips = [b"a"] * 100 if said else []
                assert await send(service, said, *drips, pause=0.1) == b""
                assert 0.9 <= time.monotonic() - began < 5
                assert await alive(service)


async def test_what_is_not_http_is_a_problem(service: Service, subtests: pytest.Subtests) -> None:
    """400 as a problem, and the connection is closed."""
    for said in (b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"):
        with subtests.test(said=said):
            answer = await send(service, said)
            assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
            assert b'"type":"/problems/malformed"' in answer
            assert re.search(rb"\r\nx-request-id: ([0-9a-f]{32})\r\n.*\"requestId\":\"\1\"", answer, re.DOTALL)


async def test_a_client_that_leaves_is_nobodys_bug(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    """A body that breaks off leaves neither an order nor an error in the log."""
    head = b"POST /orders HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    _, writer = await asyncio.open_connection("127.0.0.1", service.client.base_url.port)
    writer.write(head)
    await asyncio.sleep(0.1)
    writer.close()
    await asyncio.sleep(0.2)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
    assert await alive(service)


def nested(depth: int) -> list[str]:
    order = json.dumps(ORDER)
    lists = "[" * depth + "]" * depth
    objects = '{"a":' * depth + "1" + "}" * depth
    return [
        lists,
        objects,
        order.replace('"c-42"', lists),
        order.replace('"c-42"', objects),
        order.replace('"TICKET"', lists),
        order[:-1] + f', "surprise": {lists}}}',
        "[" * depth,
    ]


async def test_deep_bodies_are_refused(service: Service, subtests: pytest.Subtests) -> None:
    """100,000 levels are the client's error wherever they stand, and harm nobody."""
    for number, body in enumerate(nested(100_000)):
        with subtests.test(body=number):
            answer = await service.client.post(
                "/orders", content=body.encode(), headers={"content-type": "application/json"}
            )
            assert answer.status_code == 422
            assert answer.headers["content-type"] == "application/problem+json"
            assert len(answer.content) < 10_000
    assert await alive(service)


def sources(policy: str) -> dict[str, list[str]]:
    return {rule.split()[0]: rule.split()[1:] for rule in policy.split(";")}


async def test_the_documentation_may_do_what_it_needs_only(service: Service) -> None:
    """The page's own scripts run, others do not; it may not be framed, nor taken for something else."""
    page = await service.client.get("/docs")
    policy = sources(page.headers["content-security-policy"])
    inline = re.findall(r"<script>(.*?)</script>", page.text, re.DOTALL)
    assert inline
    for script in inline:
        assert f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" in policy["script-src"]
    for loaded in re.findall(r'(?:src|href)="(https?://[^/"]+|(?=/))', page.text):
        assert (loaded or "'self'") in policy["script-src"]
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == ["'none'"]
    assert "'unsafe-inline'" not in policy["script-src"]
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["x-frame-options"] == "DENY"


async def test_the_documentation_can_be_left_out(pg_dsn: str, sandbox: Sandbox, subtests: pytest.Subtests) -> None:
    """Where `api.docs` is false there is neither page nor document."""
    environ: dict[str, Any] = {"ORDERS_API__DOCS": "false"}
    async with service_running(settings_for(pg_dsn, sandbox.url, environ), "api") as service:
        for path in ("/docs", "/openapi.json", "/redoc"):
            with subtests.test(path=path):
                assert (await service.client.get(path)).status_code == 404


async def test_a_stream_over_http_1_0_ends_with_its_connection(service: Service) -> None:
    """That version knows no chunks: the events come as they are, and an answer with a length keeps it."""
    order_id = await service.place()
    await service.reach([order_id], "COMPLETED")
    head, _, events = (await send(service, f"GET /orders/{order_id}/events HTTP/1.0\r\n\r\n".encode())).partition(
        b"\r\n\r\n"
    )
    assert b"transfer-encoding" not in head
    assert b"\r\nconnection: close" in head
    assert events.startswith(b"retry: ")
    assert [line for line in events.splitlines() if line.startswith(b"id: ")] == [b"id: %d" % n for n in range(1, 8)]
    assert events.endswith(b"\n\n")
    sized = await send(service, f"GET /orders/{order_id} HTTP/1.0\r\n\r\n".encode())
    assert b"\r\ncontent-length: %d\r\n" % len(sized.partition(b"\r\n\r\n")[2]) in sized


async def test_a_client_that_reads_nothing_is_nobodys_bug(
    pg_dsn: str, sandbox: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    """When the service stops, answers that nobody takes are given up without an error in the log."""
    settings = settings_for(pg_dsn, sandbox.url, {"ORDERS_SHUTDOWN__DRAIN": "1"})
    async with service_running(settings, "api") as service:
        _, writer = await asyncio.open_connection("127.0.0.1", service.client.base_url.port, limit=1)
        writer.write(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200)
        await asyncio.sleep(0.5)
    writer.transport.abort()
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
