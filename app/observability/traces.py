"""W3C trace context: one trace for an order, from the request that made it to the last call made for it.

Without an exporter (`telemetry.otlp_endpoint`) no tracer provider is set, and nothing here makes a span.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, lru_cache

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN, Link, Span, SpanKind, StatusCode, TraceFlags, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from app.settings import TelemetrySettings

_tracer = trace.get_tracer("app")
_w3c = TraceContextTextMapPropagator()

_WRITES = re.compile(r"\b(?:(INSERT) INTO (\w+)|(UPDATE) (\w+) (?:AS \w+ )?SET|(DELETE) FROM (\w+))")
_READS = re.compile(r"\b(SELECT)\b(?:.*?\bFROM (\w+))?", re.DOTALL)


@contextmanager
def exporting(settings: TelemetrySettings) -> Iterator[None]:
    """Let this process record spans, if `settings` say where they go; at the end what waits is sent."""
    if settings.otlp_endpoint is None:
        yield
        return
    from app.observability.export import close, open_provider  # noqa: PLC0415 - without an exporter nothing is loaded

    provider = open_provider(settings)
    trace.set_tracer_provider(provider)
    recorded.cache_clear()
    try:
        yield
    finally:
        close(provider, settings.flush)


@cache
def recorded() -> bool:
    """Whether spans go anywhere in this process; OpenTelemetry reads the environment whenever it is asked."""
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def current_traceparent() -> str | None:
    """The current span as a `traceparent` header value; None outside a trace."""
    return carry({}).get("traceparent")


def carry(headers: dict[str, str]) -> dict[str, str]:
    """Add the current span to the headers of a call that is made under it, and return them."""
    _w3c.inject(headers)
    return headers


@contextmanager
def continued(
    name: str,
    traceparent: str | None,
    attributes: Mapping[str, AttributeValue],
    *,
    kind: SpanKind = SpanKind.INTERNAL,
    links: Iterable[str | None] = (),
) -> Iterator[Span]:
    """A span in the trace of `traceparent`, whose span may have ended long ago; without one, in a trace of its own.

    `links` are the traceparents of others that it is also about. An error's message may hold data and is left out.
    """
    if not recorded():
        yield INVALID_SPAN
        return
    others = [Link(get_current_span(_context(link)).get_span_context()) for link in links if link]
    with _tracer.start_as_current_span(
        name, _context(traceparent), kind, attributes, others, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield span
        except BaseException as error:
            span.set_status(StatusCode.ERROR, type(error).__name__)
            raise


@contextmanager
def called(name: str, attributes: Mapping[str, AttributeValue]) -> Iterator[Span]:
    """A span for a call to a system, part of what is current; whoever calls says how it ended."""
    if not recorded():
        yield INVALID_SPAN
        return
    with _tracer.start_as_current_span(
        name, None, SpanKind.CLIENT, attributes, record_exception=False, set_status_on_exception=False
    ) as span:
        yield span


def statement_begun(statement: str) -> Span:
    """A span for a statement that is part of something traced; what only looks for work makes none."""
    if not get_current_span().is_recording():
        return INVALID_SPAN
    name, attributes = _described(statement)
    return _tracer.start_span(name, kind=SpanKind.CLIENT, attributes=attributes)


def current_exemplar() -> dict[str, str] | None:
    """The current trace as a histogram's example, if it is kept."""
    context = get_current_span().get_span_context()
    return {"trace_id": trace.format_trace_id(context.trace_id)} if context.trace_flags.sampled else None


def exemplar(traceparent: str | None) -> dict[str, str] | None:
    """The trace of `traceparent` as a histogram's example, if it is kept."""
    if traceparent is None or not int(traceparent[-2:], 16) & TraceFlags.SAMPLED:
        return None
    return trace_of(traceparent)


def trace_of(traceparent: str | None) -> dict[str, str]:
    """The field of a log line that is about this trace, but not written under a span of it."""
    return {"trace_id": traceparent.split("-")[1]} if traceparent else {}


def _context(traceparent: str | None) -> Context:
    return _w3c.extract({"traceparent": traceparent} if traceparent else {}, Context())


@lru_cache(maxsize=256)
def _described(statement: str) -> tuple[str, dict[str, str]]:
    """A statement's span: all that it writes, or else what it reads. Its text holds placeholders, never values."""
    found = _WRITES.findall(statement) or _READS.findall(statement)[:1]
    name = ", ".join(" ".join(filter(None, words)) for words in found)
    return name or "statement", {"db.system.name": "postgresql", "db.query.text": " ".join(statement.split())}
