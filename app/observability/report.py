"""Listens to what the policies report: metrics for all of it, one WARNING per breaker transition."""

import structlog
from opentelemetry.trace import get_current_span

from app.observability import metrics
from app.resilience.events import BreakerChanged, BulkheadRejected, CallEnded, Event, Retried

log = structlog.get_logger()


def report(event: Event) -> None:
    """Count an event of a policy."""
    match event:
        case BreakerChanged(system, from_state, to_state, failure_rate, isolated):
            metrics.breaker_transitions.labels(system, to_state).inc()
            log.warning(
                "breaker changed",
                system=system,
                from_state=from_state,
                to_state=to_state,
                failure_rate=round(failure_rate, 3),
                isolated=isolated,
            )
        case BulkheadRejected(system):
            metrics.bulkhead_rejected.labels(system).inc()
        case Retried(_, attempt, delay, kind):
            get_current_span().add_event("retry", {"attempt": attempt, "delay": delay, "kind": kind})
        case CallEnded(system, _, outcome):
            metrics.retry_attempts.labels(system, outcome).inc()
