"""What is measured of requests: one histogram, and spans where they go anywhere."""

from functools import cache

from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig
from prometheus_client import Histogram
from prometheus_fastapi_instrumentator import Instrumentator
from prometheus_fastapi_instrumentator.metrics import Info

from app.api.edge import PROBES, Measure
from app.observability import metrics

METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

REQUEST_SPANS: TelemetryConfig = {
    "metrics": False,  # they are Prometheus's
    "logs": False,
    "operation_spans": False,
    "auto_configure": False,
    "exclude": lambda scope: scope.get("path", "").startswith(("/metrics", "/health")),
}


def install(app: FastAPI) -> None:
    """Measure around everything: who is turned away is counted under the route that was asked for."""
    Instrumentator(excluded_handlers=[f"^({'|'.join(PROBES)})"]).add(_measure).instrument(app)


def _measure(info: Info) -> None:
    """Observe a request until its answer begins: an event stream lasts as long as its order does."""
    if not info.modified_duration_without_streaming:
        return  # no answer has begun
    method = info.method if info.method in METHODS else "OTHER"
    seconds = info.modified_duration_without_streaming
    _series(method, info.modified_handler, info.modified_status).observe(seconds)


def measured(route: str) -> Measure:
    """What measures the requests for one route where the Instrumentator, which looks for the route, is passed by."""

    def measure(method: str, status: int, seconds: float) -> None:
        _series(method, route, f"{status // 100}xx").observe(seconds)

    return measure


@cache
def _series(method: str, route: str, status: str) -> Histogram:
    """There are few of them, and to find one costs more than to observe."""
    return metrics.http_request.labels(method, route, status)
