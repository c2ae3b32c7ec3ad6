"""The HTTP application: routes, errors and limits around the wiring."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute

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
        redirect_slashes=False,
        telemetry=measure.REQUEST_SPANS,
    )
    shown = (docs,) if settings.api.docs else ()
    for part in (*((orders, stream) if intake else ()), ops, console, health, problem_pages, *shown):
        _add_flat(app, part.router)
    problems.install(app)
    app.add_middleware(Edge, limit=settings.api.max_concurrent_requests)
    measure.install(app)
    document.install(app, url=settings.api.public_url or "/", guarded=settings.auth.mode != "none")
    return app


def _add_flat(app: FastAPI, router: APIRouter) -> None:
    """Add the router's routes to the application's own: those of an included router cost twice the time to find."""
    for route in router.routes:
        assert isinstance(route, APIRoute)
        route.unique_id = route.name
        app.router.routes.append(route)
