"""The HTTP application: routes, errors and limits around the wiring."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from fastapi import FastAPI
from prometheus_fastapi_instrumentator import Instrumentator
from prometheus_fastapi_instrumentator.metrics import latency
from pydantic.json_schema import models_json_schema

from app import VERSION
from app.api import docs, health, ops, orders, problems
from app.api.admission import Admission
from app.api.schemas import NewOrder
from app.settings import Settings

UNSEEN = (problems.Problem, NewOrder)
"""Types of the API that FastAPI does not find by itself: errors, and bodies that we read."""

REQUESTS = latency(buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5))
"""`http_request_duration_seconds` by method, route and status class: enough for rates, errors and latency."""

REF = "#/components/schemas/{model}"

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


def create_api(settings: Settings, lifespan: Lifespan, *, intake: bool) -> FastAPI:
    """Build the application; `lifespan` puts the wiring into `app.state.wiring`. A worker has no `intake`."""
    app = FastAPI(
        title="Orders",
        version=VERSION,
        description="Takes orders in and brings each to its end, however slow or flaky the systems it needs are.",
        lifespan=lifespan,
        openapi_url=docs.DOCUMENT if settings.api.docs else None,
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=lambda route: route.name,
        redirect_slashes=False,
    )
    for part in (orders, ops, health) if intake else (ops, health):
        app.include_router(part.router)
    if settings.api.docs:
        docs.install(app)
    problems.install(app)
    app.add_middleware(Admission, limit=settings.api.max_concurrent_requests)
    assert REQUESTS is not None
    Instrumentator(excluded_handlers=["/metrics", "/health"]).add(REQUESTS).instrument(app)
    _tell_the_truth_about_errors(app)
    return app


def _tell_the_truth_about_errors(app: FastAPI) -> None:
    """FastAPI documents 422 as its own format whatever the handlers answer; put the problem in its place."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = generate()
            parts = schema["components"]["schemas"]
            for unused in ("HTTPValidationError", "ValidationError"):
                parts.pop(unused, None)
            parts |= models_json_schema([(m, "validation") for m in UNSEEN], ref_template=REF)[1]["$defs"]
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # the documented way to extend it
