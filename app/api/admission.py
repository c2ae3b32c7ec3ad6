"""How many requests are worked on at once; the gateway in front limits how many a client may send (WHERE-4)."""

from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.problems import answer, unavailable

ALWAYS_ADMITTED = ("/health/", "/metrics", "/ops/systems")


class Admission:
    """Refuses requests above `limit` with 503 at once, instead of letting them queue where nobody sees it."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app, self._limit = app, limit
        self._admitted = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(ALWAYS_ADMITTED):
            await self._app(scope, receive, send)
            return
        if self._admitted >= self._limit:
            refusal = unavailable(f"{self._limit} requests are being worked on, more are not taken in.")
            await answer(refusal)(scope, receive, send)
            return
        self._admitted += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._admitted -= 1
