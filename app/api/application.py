"""The HTTP application: routes, errors and limits around the wiring."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from fastapi import FastAPI

from app import VERSION
from app.api import docs, document, health, measure, ops, orders, problem_pages, problems, stream
from app.api.console import pages as console
from app.api.edge import Edge
from app.settings import Settings

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[Mapping[str, Any]]]


def create_api(settings: Settings, lifespan: Lifespan, *, intake: bool) -> FastAPI:
    """Build the application; `lifespan` puts the wiring into `app.state.wiring`. A worker has no `intake`."""
    app = FastAPI(
        title=document.ABOUT["title"],
        version=VERSION,
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=lambda route: route.name,
        redirect_slashes=False,
        telemetry=measure.REQUEST_SPANS,
    )
    shown = (docs,) if settings.api.docs else ()
    for part in (*((orders, stream) if intake else ()), ops, console, health, problem_pages, *shown):
        app.include_router(part.router)
    problems.install(app)
    app.add_middleware(Edge, limit=settings.api.max_concurrent_requests)
    measure.install(app)
    document.install(app, url=settings.api.public_url or "/", guarded=settings.auth.mode != "none")
    return app
