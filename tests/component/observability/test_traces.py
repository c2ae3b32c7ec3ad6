"""One trace for an order: from the request that made it, through attempts and calls, to the published events."""

import asyncio
import subprocess
import sys
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, format_span_id, format_trace_id
from sqlalchemy import text

from app.db import Database
from app.observability.traces import continued, exemplar
from tests.component.outbox.receiver import environ, ok, told
from tests.component.systems import hostile
from tests.service import ORDER, Sandbox, service_running, settings_for

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED, NOT_SAMPLED = f"00-{TRACE}-{CALLER}-01", f"00-{TRACE}-{CALLER}-00"

IN_ORDER = [
    "insurance.apply",
    "insurance.confirmation",
    "sber.register",
    "sber.find",
    "receipt.create",
    "receipt.find",
    "odnakassa.book",
    "odnakassa.find",
    "orderbook.record",
]


def trace_of(span: ReadableSpan) -> str:
    assert span.context is not None
    return format_trace_id(span.context.trace_id)


def named(spans: Sequence[ReadableSpan], name: str) -> list[ReadableSpan]:
    return [span for span in spans if span.name == name]


def parent(spans: Sequence[ReadableSpan], child: ReadableSpan) -> ReadableSpan:
    (found,) = [s for s in spans if s.context and child.parent and s.context.span_id == child.parent.span_id]
    return found


async def unsent(database: Database) -> int:
    async with database.engine.connect() as conn:
        return int(await conn.scalar(text("SELECT count(*) FROM outbox_event WHERE status <> 'PUBLISHED'")) or 0)


@pytest.mark.rule("OBS-2")
async def test_an_order_is_one_trace(
    spans: InMemorySpanExporter, pg_dsn: str, database: Database, sandbox: Sandbox
) -> None:
    """The caller's trace holds the request, its commit, every attempt, call and event, each under what caused it."""
    async with service_running(settings_for(pg_dsn, sandbox.url)) as service:
        placed = await service.client.post("/orders", json=ORDER, headers={"traceparent": SAMPLED})
        order_id = placed.json()["orderId"]
        await service.reach([order_id], "COMPLETED")
        async with asyncio.timeout(10):
            while await unsent(database):
                await asyncio.sleep(0.02)
    ended = [span for span in spans.get_finished_spans() if trace_of(span) == TRACE]
    (request,) = named(ended, "POST /orders")
    assert request.parent is not None
    assert format_span_id(request.parent.span_id) == CALLER

    (commit,) = named(ended, "intake commit")
    assert parent(ended, commit) is request
    (statement,) = [span for span in ended if span.parent and span.parent == commit.context]
    assert "INSERT orders, INSERT order_confirmation_task, INSERT outbox_event" in statement.name

    calls = [span for span in ended if span.name in IN_ORDER]
    assert list(dict.fromkeys(span.name for span in sorted(calls, key=lambda s: s.start_time or 0))) == IN_ORDER
    for call in calls:
        assert call.kind is SpanKind.CLIENT
        assert call.attributes is not None
        assert call.attributes["external.system"] == call.name.partition(".")[0]
        assert call.attributes["circuit_breaker.state"] == "closed"
        assert (call.attributes["attempts"], call.attributes["outcome"]) == (1, "success")
        attempt = parent(ended, call)
        assert attempt.attributes is not None
        assert attempt.name.endswith("_task attempt")
        assert attempt.attributes["order_id"] == order_id
        assert parent(ended, attempt) is request
    events = [span for span in ended if span.name.startswith("publish order.")]
    assert {span.name for span in events} >= {"publish order.accepted", "publish order.confirmed"}
    async with database.engine.connect() as conn:
        for table in ("order_confirmation_task", "orderbook_task", "outbox_event"):
            rows = await conn.scalars(text(f"SELECT traceparent FROM {table}"))
            assert {row.split("-")[1] for row in rows} == {TRACE}


async def test_a_failing_system_shows_in_its_span(spans: InMemorySpanExporter, pg_dsn: str, sandbox: Sandbox) -> None:
    """The call's span says how often it was tried, how it ended, and that it failed; the attempt's what that meant."""
    await sandbox.set("insurance", mode="error")
    settings = settings_for(pg_dsn, sandbox.url, {"ORDERS_CLIENT__INSURANCE__BREAKER__MINIMUM_CALLS": "3"})
    async with service_running(settings) as service:
        await service.place()
        while not (calls := named(spans.get_finished_spans(), "insurance.apply")):
            await asyncio.sleep(0.02)
        while not (attempts := named(spans.get_finished_spans(), "order_confirmation_task attempt")):
            await asyncio.sleep(0.02)
    call, attempt = calls[0], attempts[0]
    assert call.attributes is not None
    assert attempt.attributes is not None
    assert (call.attributes["attempts"], call.attributes["outcome"]) == (3, "unavailable")
    assert call.status.status_code is StatusCode.ERROR
    assert [event.name for event in call.events] == ["retry", "retry"]
    assert attempt.attributes["outcome"] == "NotYet"


async def test_what_is_sent_out_carries_the_trace_on(
    spans: InMemorySpanExporter, pg_dsn: str, sandbox: Sandbox
) -> None:
    """The system gets the calling span as traceparent, not the one that came in."""
    async with (
        hostile.serve(hostile.say(hostile.response(b'{"applicationId":"a-1"}', status="202 Accepted"))) as peer,
        service_running(settings_for(pg_dsn, sandbox.url, {"ORDERS_CLIENT__INSURANCE__BASE_URL": peer.url})) as service,
        asyncio.timeout(15),
    ):
        await service.client.post("/orders", json=ORDER, headers={"traceparent": SAMPLED, "baggage": "secret=1"})
        while not (calls := named(spans.get_finished_spans(), "insurance.apply")):
            await asyncio.sleep(0.02)
    assert calls[0].context is not None
    got = next(request for request in peer.received if request.path == "/applications").headers
    assert got["traceparent"] == f"00-{TRACE}-{format_span_id(calls[0].context.span_id)}-01"
    assert "baggage" not in got


async def test_published_events_carry_the_trace_on(spans: InMemorySpanExporter, pg_dsn: str, sandbox: Sandbox) -> None:
    """A webhook gets the span of its publishing; the event itself says which request it comes from."""
    async with (
        hostile.serve(ok) as peer,
        service_running(settings_for(pg_dsn, sandbox.url, environ(peer.url))) as service,
        asyncio.timeout(15),
    ):
        await service.client.post("/orders", json=ORDER, headers={"traceparent": SAMPLED})
        await peer.has_received()
        while not (published := named(spans.get_finished_spans(), "publish order.accepted")):
            await asyncio.sleep(0.02)
    (request,) = named(spans.get_finished_spans(), "POST /orders")
    assert request.context is not None
    assert published[0].context is not None
    got = peer.received[0]
    assert got.headers["traceparent"] == f"00-{TRACE}-{format_span_id(published[0].context.span_id)}-01"
    assert told(got)["traceparent"] == f"00-{TRACE}-{format_span_id(request.context.span_id)}-01"


async def test_a_trace_that_nobody_keeps_is_not_kept_later(
    spans: InMemorySpanExporter, pg_dsn: str, sandbox: Sandbox
) -> None:
    """The decision that came with the request holds for all attempts, and for examples in metrics."""
    async with service_running(settings_for(pg_dsn, sandbox.url)) as service:
        placed = await service.client.post("/orders", json=ORDER, headers={"traceparent": NOT_SAMPLED})
        await service.reach([placed.json()["orderId"]], "COMPLETED")
    assert TRACE not in {trace_of(span) for span in spans.get_finished_spans()}
    assert exemplar(NOT_SAMPLED) is None
    assert exemplar(SAMPLED) == {"trace_id": TRACE}


async def test_orders_of_one_commit_are_linked(spans: InMemorySpanExporter, pg_dsn: str, sandbox: Sandbox) -> None:
    """A commit for several orders belongs to the trace of the first and links to the requests of the others."""
    async with service_running(settings_for(pg_dsn, sandbox.url), "api") as service:
        await asyncio.gather(*(service.place() for _ in range(20)))
    ended = spans.get_finished_spans()
    requests = {span.context.span_id for span in named(ended, "POST /orders") if span.context}
    commits = named(ended, "intake commit")
    assert len(commits) < 20
    told = [link.context.span_id for commit in commits for link in commit.links]
    told += [commit.parent.span_id for commit in commits if commit.parent]
    assert sorted(told) == sorted(requests)


async def test_polling_for_work_leaves_no_spans(spans: InMemorySpanExporter, pg_dsn: str, sandbox: Sandbox) -> None:
    """Claims, figures, probes and scrapes are nobody's story."""
    async with service_running(settings_for(pg_dsn, sandbox.url)) as service:
        for path in ("/metrics", "/health/ready", "/health/live"):
            await service.client.get(path)
        for poller in service.wiring.pollers.values():
            poller.claiming.ring()
        await asyncio.sleep(0.3)
    assert [span.name for span in spans.get_finished_spans()] == []


async def test_spans_hold_no_data_of_the_customer(spans: InMemorySpanExporter, pg_dsn: str, sandbox: Sandbox) -> None:
    """Neither what the client sent nor what a system answered stands in any span."""
    secret = "S3CR3T-DATA"
    item = {"sku": secret, "quantity": 1, "price": {"amount": "1.00", "currency": "RUB"}}
    answer = hostile.response(f'{{"applicationId": ["{secret}"]}}'.encode(), status="202 Accepted")
    async with (
        hostile.serve(hostile.say(answer)) as peer,
        service_running(settings_for(pg_dsn, sandbox.url, {"ORDERS_CLIENT__INSURANCE__BASE_URL": peer.url})) as service,
        asyncio.timeout(15),
    ):
        await service.place(customerId=secret, items=[item])
        while not named(spans.get_finished_spans(), "order_confirmation_task attempt"):
            await asyncio.sleep(0.02)
    (call,) = named(spans.get_finished_spans(), "insurance.apply")[:1]
    assert call.status.status_code is StatusCode.ERROR
    assert [span.name for span in spans.get_finished_spans() if secret in span.to_json()] == []


def test_a_span_that_fails_tells_the_kind_of_error_alone(spans: InMemorySpanExporter) -> None:
    """Its message may quote what nobody but the customer should see."""
    with pytest.raises(ValueError, match="S3CR3T"), continued("work", SAMPLED, {}):
        raise ValueError("S3CR3T")
    (span,) = spans.get_finished_spans()
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "ValueError")
    assert "S3CR3T" not in span.to_json()


def test_without_an_exporter_the_sdk_is_not_even_loaded() -> None:
    """The default costs neither memory nor time: no module of the SDK is imported by the service."""
    script = "import sys, app.main; print([name for name in sys.modules if name.startswith('opentelemetry.sdk')])"
    assert subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout == "[]\n"


async def test_without_an_exporter_there_is_no_span(pg_dsn: str, database: Database, sandbox: Sandbox) -> None:
    """A caller's traceparent is then not followed, and none is stored or sent."""
    async with (
        hostile.serve(hostile.say(hostile.response(b'{"applicationId":"a-1"}', status="202 Accepted"))) as peer,
        service_running(settings_for(pg_dsn, sandbox.url, {"ORDERS_CLIENT__INSURANCE__BASE_URL": peer.url})) as service,
        asyncio.timeout(15),
    ):
        await service.client.post("/orders", json=ORDER, headers={"traceparent": SAMPLED})
        while not peer.received:
            await asyncio.sleep(0.02)
    assert "traceparent" not in peer.received[0].headers
    async with database.engine.connect() as conn:
        assert await conn.scalar(text("SELECT traceparent FROM order_confirmation_task")) is None
