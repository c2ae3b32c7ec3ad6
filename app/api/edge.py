"""Where requests come in: each gets an id, is let in or turned away, and leaves one line in the log."""

import re
from collections.abc import Callable
from http import HTTPStatus
from random import getrandbits
from time import perf_counter

import structlog
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.problems import REQUEST_ID, answer, bug, unavailable

log = structlog.get_logger()

ALWAYS_ADMITTED = ("/health/", "/metrics", "/ops")
PROBES = ("/health/", "/metrics", "/ops/board", "/ops/orders/", "/ops/tables/")
"""Asked for again and again by machines: not measured, and logged at DEBUG only, but for who is REFUSED."""

REFUSED = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}

ID_HEADER = b"x-request-id"
NOT_KEPT = (b"cache-control", b"no-store")
_SANE = re.compile(rb"[!-~]{1,128}")


class Admission:
    """How many requests are worked on at once: at most `limit`.

    The gateway in front limits how many a client may send (WHERE-4).
    """

    def __init__(self, limit: int) -> None:
        self.limit, self.admitted = limit, 0

    @property
    def full(self) -> bool:
        return self.admitted >= self.limit


Measure = Callable[[str, int, float], None]
"""Is told of each answered request: its method, the answer's status, and after how many seconds it began."""


class Edge:
    """Lets requests in while there is room: others get 503 now, instead of a queue where nobody sees them."""

    def __init__(self, app: ASGIApp, admission: Admission, measure: Measure | None = None) -> None:
        self._app, self._admission, self._measure = app, admission, measure

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

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"].startswith(ALWAYS_ADMITTED):
            await self._app(scope, receive, send)
            return
        if self._admission.full:
            refusal = unavailable(f"{self._admission.limit} requests are being worked on, more are not taken in.")
            await answer(refusal, scope)(scope, receive, send)
            return
        self._admission.admitted += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._admission.admitted -= 1

    def _tell(self, scope: Scope, leaving: "_Leaving") -> None:
        """What was asked for, how it was answered and how long that took; no query and no body, which are private."""
        if self._measure is not None and leaving.status:
            self._measure(leaving.method, leaving.status, leaving.answered - leaving.began)
        route = getattr(scope.get("route"), "path", "none")
        quiet = route.startswith(PROBES) and leaving.status not in REFUSED
        (log.debug if quiet else log.info)(
            "request",
            method=leaving.method,
            route=route,
            status=leaving.status,
            seconds=round(perf_counter() - leaving.began, 6),
            caller=scope["state"].get("caller"),
        )


class _Leaving:
    """The way of an answer to the server: its status is noted, the request's id is added.

    An answer that does not say whether it may be kept is not to be: caches would keep a 404, and orders are private.
    """

    __slots__ = ("_header", "_send", "answered", "began", "bodiless", "method", "status")

    def __init__(self, send: Send, request_id: str, method: str) -> None:
        self._send, self._header = send, (ID_HEADER, request_id.encode())
        self.method, self.bodiless = method, method == "HEAD"
        self.began = self.answered = perf_counter()
        self.status = 0  # until an answer begins; whoever hangs up gets none

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self.answered = message["status"], perf_counter()
            headers = message["headers"] = [*message.get("headers", ()), self._header]
            if not any(name == b"cache-control" for name, _ in headers):
                headers.append(NOT_KEPT)
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
    return f"{getrandbits(128):032x}"
