"""Where requests come in: each gets an id, is let in or turned away, is measured, and leaves one line in the log."""

import re
from secrets import token_hex
from time import perf_counter

import structlog
from prometheus_fastapi_instrumentator import Instrumentator
from prometheus_fastapi_instrumentator.metrics import Info
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.problems import REQUEST_ID, answer, bug, unavailable

log = structlog.get_logger()

ALWAYS_ADMITTED = ("/health/", "/metrics", "/ops")
PROBES = ("/health/", "/metrics", "/ops/board", "/ops/orders/")
"""Asked for again and again by machines: neither measured nor logged, unless at DEBUG."""

ID_HEADER = b"x-request-id"
_SANE = re.compile(rb"[!-~]{1,128}")


class Edge:
    """Works on at most `limit` requests at once: others get 503 now, instead of a queue where nobody sees them.

    The gateway in front limits how many a client may send (WHERE-4). `measured` holds what is to be measured of each
    request; the instrumentator's own middleware would look every route up a second time, which alone takes longer than
    all of this but the line.
    """

    def __init__(self, app: ASGIApp, limit: int, measured: Instrumentator) -> None:
        self._app, self._limit, self._measures = app, limit, measured.instrumentations
        self._admitted = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = request_id_of(scope["headers"])
        scope["state"][REQUEST_ID] = request_id
        structlog.contextvars.bind_contextvars(request_id=request_id)
        leaving = _Leaving(send, request_id, scope["method"])
        if leaving.bodiless:  # HEAD is a GET without a body
            scope = {**scope, "method": "GET"}
        try:
            await self._admit(scope, receive, leaving.send)
        except Exception as error:
            if leaving.status:
                raise  # half an answer is out: the server logs it and ends the connection
            await (await bug(Request(scope), error))(scope, receive, leaving.send)
        finally:
            self._tell(scope, leaving)

    @property
    def full(self) -> bool:
        return self._admitted >= self._limit

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"].startswith(ALWAYS_ADMITTED):
            await self._app(scope, receive, send)
            return
        if self.full:
            refusal = unavailable(f"{self._limit} requests are being worked on, more are not taken in.")
            await answer(refusal, scope)(scope, receive, send)
            return
        self._admitted += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._admitted -= 1

    def _tell(self, scope: Scope, leaving: "_Leaving") -> None:
        """What was asked for, how it was answered and how long that took; no query and no body, which are private."""
        ended = perf_counter()
        route = getattr(scope.get("route"), "path", "none")
        told = {
            "method": leaving.method,
            "route": route,
            "status": leaving.status,
            "seconds": round(ended - leaving.began, 6),
            "caller": scope["state"].get("caller"),
        }
        if route.startswith(PROBES):
            log.debug("request", **told)
            return
        log.info("request", **told)
        if leaving.status:
            self._measure(scope, route, leaving, ended)

    def _measure(self, scope: Scope, route: str, leaving: "_Leaving", ended: float) -> None:
        info = Info(
            request=Request(scope),
            response=None,
            method=scope["method"],
            modified_handler=route,
            modified_status=f"{leaving.status // 100}xx",
            modified_duration=ended - leaving.began,
            modified_duration_without_streaming=leaving.answered - leaving.began,
        )
        for measure in self._measures:
            measure(info)


class _Leaving:
    """The way of an answer to the server: its status and time are noted, the request's id is added."""

    __slots__ = ("_header", "_send", "answered", "began", "bodiless", "method", "status")

    def __init__(self, send: Send, request_id: str, method: str) -> None:
        self._send, self._header = send, (ID_HEADER, request_id.encode())
        self.method, self.bodiless = method, method == "HEAD"
        self.began = self.answered = perf_counter()
        self.status = 0  # until an answer begins; whoever hangs up gets none

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self.answered = message["status"], perf_counter()
            message["headers"] = [*message.get("headers", ()), self._header]
            await self._send(message)
            if self.bodiless:
                await self._send({"type": "http.response.body"})
        elif not self.bodiless:
            await self._send(message)


def request_id_of(headers: list[tuple[bytes, bytes]]) -> str:
    """The id that the caller gave its request, if it is 1 to 128 visible ASCII characters, else a new one."""
    for name, value in headers:
        if name == ID_HEADER and _SANE.fullmatch(value):
            return value.decode()
    return token_hex(16)
