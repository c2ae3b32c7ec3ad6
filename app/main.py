"""The service as a process: settings, wiring, HTTP server, signals."""

import asyncio
import gc
import math
import signal
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import FrameType
from typing import Any

import structlog
import uvicorn
from fastapi import FastAPI

from app.api.application import create_api
from app.api.connection import Connection
from app.api.links import PUBLIC_URL
from app.observability import metrics
from app.settings import Settings, ShutdownSettings
from app.wiring import Role, open_wiring

log = structlog.get_logger()

GARBAGE = 10_000
"""After so many new objects that are still there, look for garbage: nearly all of a request's goes by itself."""


def create_app(settings: Settings, role: Role = "all") -> FastAPI:
    """Build the ASGI application; its lifespan opens the service and closes it."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        async with open_wiring(settings, role) as wiring:
            app.state.wiring = wiring
            yield {PUBLIC_URL: settings.api.public_url}

    return create_api(settings, lifespan, intake=role != "worker")


class Server(uvicorn.Server):
    """uvicorn, with the order of a shutdown made right.

    uvicorn runs the lifespan's end only after the open connections have drained, so pollers would go on claiming: here
    they stop at the signal itself. Readiness is red for `lead` seconds before the listening socket closes, and all the
    rest is over, or cut short, within the budgets that follow (SHUT-CFG).
    """

    def __init__(self, config: uvicorn.Config, app: FastAPI, budgets: ShutdownSettings) -> None:
        super().__init__(config)
        self.app, self._budgets = app, budgets
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asked_at: float | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await asyncio.sleep(0)  # a SIGTERM from before this server could hear it ends the start here: nothing is open
        await super().startup(sockets)
        gc.freeze()  # what is there now stays for good: no collection needs to look through it again
        gc.set_threshold(GARBAGE)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop; a second signal ends the lead, a third one ends the process without waiting for anybody."""
        if self._loop is None or self._asked_at is not None:
            self.force_exit = self.should_exit
            self.should_exit = True
            return
        self._asked_at = time.monotonic()
        self._loop.call_soon_threadsafe(self._begin_to_stop, signal.Signals(sig).name)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain the requests, then run the lifespan's end: pollers first, pools last."""
        began = self._asked_at or time.monotonic()
        budgets = self._budgets
        try:
            async with asyncio.timeout(budgets.drain + budgets.poller + budgets.close):
                await super().shutdown(sockets)
        except TimeoutError:
            log.error("the shutdown was cut short: it took longer than its budgets")  # noqa: TRY400
        seconds = time.monotonic() - began
        metrics.shutdown.labels("total").set(seconds)
        log.info("stopped", seconds=round(seconds, 3))

    def _begin_to_stop(self, signal_name: str) -> None:
        log.info("stopping", signal=signal_name)
        wiring = getattr(self.app.state, "wiring", None)
        if wiring is None:  # still starting
            self.should_exit = True
            return
        wiring.quiesce()
        asyncio.get_running_loop().call_later(self._budgets.lead, self._exit)

    def _exit(self) -> None:
        self.should_exit = True


def create_server(settings: Settings, role: Role, host: str, port: int) -> Server:
    app = create_app(settings, role)
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=Connection,
        proxy_headers=False,  # nothing is decided by what they say
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=math.ceil(settings.shutdown.drain),
        timeout_keep_alive=settings.api.keep_alive,
        workers=1,  # said, or uvicorn would read WEB_CONCURRENCY
    )
    return Server(config, app, settings.shutdown)
