"""W3C trace context: carried from the request that made a task to the calls made for it."""

from opentelemetry.trace import format_span_id, format_trace_id, get_current_span


def current_traceparent() -> str | None:
    """The current span as a `traceparent` header value; None outside a recorded trace."""
    context = get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return f"00-{format_trace_id(context.trace_id)}-{format_span_id(context.span_id)}-{context.trace_flags:02x}"
