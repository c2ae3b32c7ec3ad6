"""An order is placed past FastAPI's layers, and through them where spans are recorded: nobody can tell which it was."""

import asyncio
from collections.abc import AsyncIterator, Iterator, MutableMapping
from typing import Any, NamedTuple

import pytest
import structlog
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import REGISTRY

from tests.service import ORDER, Sandbox, Service, service_running, settings_for

REQUESTS: tuple[dict[str, Any], ...] = (
    {"json": ORDER},
    {"json": ORDER, "headers": {"Idempotency-Key": "k-1"}},
    {"json": ORDER, "headers": {"Idempotency-Key": "k-1"}},
    {"json": {**ORDER, "customerId": "c-43"}, "headers": {"Idempotency-Key": "k-1"}},
    {"json": ORDER, "headers": {"Idempotency-Key": "with space"}},
    {"json": ORDER, "headers": {"Sec-Fetch-Site": "cross-site"}},
    {"json": {}},
    {"content": b"{", "headers": {"Content-Type": "application/json"}},
    {"content": b"x", "headers": {"Content-Type": "text/csv"}},
    {"content": b"x" * 1_001, "headers": {"Content-Type": "application/json"}},
)
STATUSES = [202, 202, 202, 422, 400, 403, 422, 422, 415, 413]


class Seen(NamedTuple):
    """What a client, a reader of the log and a dashboard see of the requests."""

    statuses: list[int]
    headers: list[list[str]]
    bodies: list[list[str]]
    lines: list[tuple[str, str, int]]
    counted: dict[str, float]


@pytest.fixture
def lines() -> Iterator[list[MutableMapping[str, Any]]]:
    with structlog.testing.capture_logs() as found:
        yield found


async def test_both_ways_look_alike(
    pg_dsn: str,
    sandbox: Sandbox,
    lines: list[MutableMapping[str, Any]],
    request: pytest.FixtureRequest,
) -> None:
    """Answers, log lines and metrics are the same; only the long way makes a span of the request."""
    straight = await seen(pg_dsn, sandbox, lines, "k-1")
    spans: InMemorySpanExporter = request.getfixturevalue("spans")
    long = await seen(pg_dsn, sandbox, lines, "k-2")
    assert straight.statuses == STATUSES
    assert straight == long
    assert [span.name for span in spans.get_finished_spans()].count("POST /orders") == len(REQUESTS)


async def test_the_limit_of_requests_is_one_for_both_ways(pg_dsn: str, sandbox: Sandbox) -> None:
    """A request on the long way and one on the straight way fill a service that works on two."""
    limits = {"ORDERS_API__MAX_CONCURRENT_REQUESTS": "2", "ORDERS_API__MAX_STREAMS": "1"}
    body_goes_on = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield b"{"
        await body_goes_on.wait()
        yield b"}"

    async with service_running(settings_for(pg_dsn, sandbox.url, limits), "api") as service:
        order_id = await service.place()
        await working_on(service, 0)
        async with asyncio.TaskGroup() as group:
            long = group.create_task(service.client.get(f"/orders/{order_id}", headers={"Prefer": "wait=20"}))
            headers = {"Content-Type": "application/json"}
            straight = group.create_task(service.client.post("/orders", content=body(), headers=headers))
            await working_on(service, 2)
            assert (await service.client.get("/orders")).status_code == 503
            assert (await service.client.post("/orders", json=ORDER)).status_code == 503
            body_goes_on.set()
            assert (await straight).status_code == 422
            assert (await service.client.post("/orders", json=ORDER)).status_code == 202
            long.cancel()


async def seen(dsn: str, sandbox: Sandbox, lines: list[MutableMapping[str, Any]], key: str) -> Seen:
    """Send all requests to a new service; the idempotency key is another one each time."""
    lines.clear()
    before = counted()
    async with service_running(
        settings_for(dsn, sandbox.url, {"ORDERS_API__MAX_BODY_BYTES": "1000"}), "api"
    ) as service:
        answers = [await service.client.post("/orders", **named(sent, key)) for sent in REQUESTS]
        await working_on(service, 0)  # the last line is written after its answer
    return Seen(
        [answer.status_code for answer in answers],
        [sorted(answer.headers) for answer in answers],
        [sorted(answer.json()) for answer in answers],
        [(line["method"], line["route"], line["status"]) for line in lines if line["event"] == "request"],
        {status: number - before[status] for status, number in counted().items()},
    )


def named(sent: dict[str, Any], key: str) -> dict[str, Any]:
    headers = {name: key if value == "k-1" else value for name, value in sent.get("headers", {}).items()}
    return {**sent, "headers": headers}


def counted() -> dict[str, float]:
    """Requests that were measured, by class of status."""
    labels = {"method": "POST", "handler": "/orders"}
    name = "http_request_duration_seconds_count"
    return {
        status: REGISTRY.get_sample_value(name, {**labels, "status": status}) or 0 for status in ("2xx", "4xx", "5xx")
    }


async def working_on(service: Service, requests: int) -> None:
    """Return once so many requests are under way."""
    async with asyncio.timeout(10):
        while len(service.server.server_state.tasks) != requests:
            await asyncio.sleep(0.01)
