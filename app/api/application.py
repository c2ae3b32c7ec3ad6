"""The HTTP application: routes, errors and limits around the wiring."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from app import VERSION
from app.api import docs, document, health, measure, ops, orders, problem_pages, problems, stream
from app.api.console import pages as console
from app.api.edge import Admission, Edge
from app.api.measure import measured
from app.api.straight import Straight
from app.observability import traces
from app.settings import Settings

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[Mapping[str, Any]]]


class Api(FastAPI):
    """FastAPI, and a straight way to each Straight operation: through the edge and the measuring, and nothing else.

    The layers that it passes by cost a third of such a request. Where spans are recorded it is not there: they make
    the request's span.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._ways: dict[tuple[str, str], ASGIApp] = {}

    def open_straight_ways(self, admission: Admission) -> None:
        """Open a way to each Straight operation that there is by now, unless spans are recorded."""
        if traces.recorded():
            return
        for route in self.routes:
            if isinstance(route, Straight):
                way = Edge(route.app, admission, measured(route.path))
                self._ways |= {(method, route.path): way for method in route.methods or ()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        way = self._ways.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if way is None:
            await super().__call__(scope, receive, send)
            return
        scope["app"] = self
        await way(scope, receive, send)


def create_api(settings: Settings, lifespan: Lifespan, *, intake: bool) -> FastAPI:
    """Build the application; `lifespan` puts the wiring into `app.state.wiring`. A worker has no `intake`."""
    app = Api(
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
    admission = Admission(settings.api.max_concurrent_requests)
    app.add_middleware(Edge, admission=admission)
    measure.install(app)
    app.open_straight_ways(admission)
    document.install(app, url=settings.api.public_url or "/", guarded=settings.auth.mode != "none")
    return app


def _add_flat(app: FastAPI, router: APIRouter) -> None:
    """Add the router's routes to the application's own: those of an included router cost twice the time to find."""
    for route in router.routes:
        assert isinstance(route, APIRoute)
        route.unique_id = route.name
        app.router.routes.append(route)
