"""Spans on their way to a collector, as bytes over a socket."""

import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace import TracerProvider

from app import VERSION
from app.observability.export import close, open_provider
from app.settings import ConfigError, TelemetrySettings, load_settings
from tests.component.observability.collector import Collector, collecting
from tests.processes import processes, wait_until
from tests.service import ORDER


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


def telemetry(endpoint: str, **changed: str) -> TelemetrySettings:
    keys = {"otlp_endpoint": endpoint, **changed}
    return load_settings({f"ORDERS_TELEMETRY__{key.upper()}": value for key, value in keys.items()}).telemetry


def spun(provider: TracerProvider, count: int) -> None:
    tracer = provider.get_tracer("test")
    for number in range(count):
        tracer.start_span(f"span {number}").end()


def test_spans_arrive_with_who_has_sent_them(collector: Collector) -> None:
    """The collector gets every span under /v1/traces, with the service's name, version and instance."""
    settings = telemetry(collector.url, service_name="orders-eu")
    provider = open_provider(settings)
    spun(provider, 1500)
    close(provider, 5)
    assert collector.paths == {"/v1/traces"}
    assert sorted(span.name for span in collector.spans) == sorted(f"span {n}" for n in range(1500))
    for sender in collector.resources:
        assert (sender["service.name"], sender["service.version"]) == ("orders-eu", VERSION)
        assert sender["service.instance.id"]


def test_a_query_stays_here(collector: Collector) -> None:
    """Whose orders somebody asked for is not told to the collector."""
    provider = open_provider(telemetry(collector.url))
    asked = {"url.path": "/orders", "url.query": "customerId=c-42"}
    provider.get_tracer("test").start_span("GET /orders", attributes=asked).end()
    close(provider, 5)
    (span,) = collector.spans
    sent = {each.key: each.value.string_value for each in span.attributes}
    assert sent == {"url.path": "/orders", "url.query": "REDACTED"}


@pytest.mark.parametrize(("ratio", "fewest", "most"), [("0", 0, 0), ("0.5", 300, 700), ("1", 1000, 1000)])
def test_a_share_of_the_traces_is_kept(collector: Collector, ratio: str, fewest: int, most: int) -> None:
    """`telemetry.sample_ratio` of the traces that begin here is sent."""
    provider = open_provider(telemetry(collector.url, sample_ratio=ratio))
    spun(provider, 1000)
    close(provider, 5)
    assert fewest <= len(collector.spans) <= most


def test_a_collector_that_hangs_costs_spans_and_nothing_else(collector: Collector) -> None:
    """Whoever makes spans never waits, what waits has a limit, and the end comes when its time is up."""
    collector.open.clear()
    provider = open_provider(telemetry(collector.url, queue="512"))
    spun(provider, 5000)
    *_, processor = provider._active_span_processor._span_processors
    assert len(processor._batch_processor._queue) <= 512  # type: ignore[attr-defined]
    began = time.monotonic()
    close(provider, 0.3)
    assert 0.2 < time.monotonic() - began < 3


def test_a_flush_that_does_not_fit_into_the_grace_period_is_refused() -> None:
    """The orchestrator would kill the process in the midst of it."""
    with pytest.raises(ConfigError, match=r"telemetry.flush = 4: must fit into shutdown.grace_period = 30"):
        telemetry("http://127.0.0.1:4318", flush="4")
    assert load_settings({"ORDERS_TELEMETRY__FLUSH": "4"}).telemetry.otlp_endpoint is None


@pytest.mark.slow
def test_the_service_sends_its_traces(pg_dsn: str, tmp_path: Path, collector: Collector) -> None:
    """A process that is told of a collector sends whole traces, the last of them when it ends."""
    with processes(pg_dsn, tmp_path) as run:
        run.environ |= {"ORDERS_TELEMETRY__OTLP_ENDPOINT": collector.url, "ORDERS_SHUTDOWN__LEAD": "0"}
        run.sandbox()
        service = run.serve()
        placed = httpx.post(f"{service.url}/orders", json=ORDER, trust_env=False).json()

        def completed() -> bool:
            order = httpx.get(f"{service.url}/orders/{placed['orderId']}", trust_env=False).json()
            return bool(order["status"] == "COMPLETED")

        wait_until(completed, 30, "the order is completed")
        service.terminate()
    by_name: dict[str, list[Span]] = {}
    for span in collector.spans:
        by_name.setdefault(span.name, []).append(span)
    (request,) = by_name["POST /orders"]
    for name in ("intake commit", "insurance.apply", "orderbook.record", "booking_task attempt"):
        assert {span.trace_id for span in by_name[name]} == {request.trace_id}
    assert {sender["service.name"] for sender in collector.resources} == {"orders"}


@pytest.mark.slow
def test_a_service_ends_in_time_without_its_collector(pg_dsn: str, tmp_path: Path, collector: Collector) -> None:
    """A collector that takes nothing keeps the process for `telemetry.flush` seconds, and a line says what is lost."""
    collector.open.clear()
    with processes(pg_dsn, tmp_path) as run:
        run.environ |= {"ORDERS_TELEMETRY__OTLP_ENDPOINT": collector.url, "ORDERS_SHUTDOWN__LEAD": "0"}
        run.environ |= {"ORDERS_TELEMETRY__FLUSH": "0.5", "ORDERS_SHUTDOWN__POLLER": "0.5"}
        run.sandbox()
        service = run.serve()
        httpx.post(f"{service.url}/orders", json=ORDER, trust_env=False).raise_for_status()
        assert service.terminate(within=10) == 0
        assert "spans are lost" in service.log.read_text()
