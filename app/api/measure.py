"""What is measured of requests: one histogram, and spans where they go anywhere."""

from fastapi.telemetry import TelemetryConfig
from prometheus_fastapi_instrumentator.metrics import Info

from app.observability import metrics

METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

REQUEST_SPANS: TelemetryConfig = {
    "metrics": False,  # they are Prometheus's
    "logs": False,
    "operation_spans": False,
    "auto_configure": False,
    "exclude": lambda scope: scope.get("path", "").startswith(("/metrics", "/health")),
}


def measure(info: Info) -> None:
    """Observe a request until its answer begins: an event stream lasts as long as its order does."""
    method = info.method if info.method in METHODS else "OTHER"
    labels = (method, info.modified_handler, info.modified_status)
    metrics.http_request.labels(*labels).observe(info.modified_duration_without_streaming)
