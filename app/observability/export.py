"""Sends spans to a collector, from a thread of its own. Imported only where that is asked for."""

import os
import socket
import threading

import structlog
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from app import VERSION
from app.settings import TelemetrySettings

log = structlog.get_logger()

SEND_EVERY = 1_000
"""Milliseconds that a span waits for company at most."""


class _QueryHidden(SpanProcessor):
    """A request's query names customers, whom a trace has no need to know."""

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        if "url.query" in (span.attributes or {}):
            span.set_attribute("url.query", "REDACTED")


def open_provider(settings: TelemetrySettings) -> TracerProvider:
    """A provider that sends in batches to `settings.otlp_endpoint`, and loses spans rather than memory."""
    resource = {
        "service.name": settings.service_name,
        "service.version": VERSION,
        "service.instance.id": f"{socket.gethostname()}-{os.getpid()}",
    }
    provider = TracerProvider(
        sampler=ParentBased(TraceIdRatioBased(settings.sample_ratio)),
        resource=Resource.create(resource),
        shutdown_on_exit=False,
    )
    provider.add_span_processor(_QueryHidden())
    endpoint = f"{str(settings.otlp_endpoint).rstrip('/')}/v1/traces"
    exporter = OTLPSpanExporter(endpoint, timeout=settings.export_timeout)
    provider.add_span_processor(
        BatchSpanProcessor(exporter, max_queue_size=settings.queue, schedule_delay_millis=SEND_EVERY)
    )
    return provider


def close(provider: TracerProvider, within: float) -> None:
    """Send what waits; a collector that does not take it within so many seconds does not keep the process."""
    closing = threading.Thread(target=provider.shutdown, name="last spans", daemon=True)
    closing.start()
    closing.join(within)
    if closing.is_alive():
        log.warning("spans are lost: the collector did not take them in time", seconds=within)
