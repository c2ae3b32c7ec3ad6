"""The service as a process: settings, wiring, HTTP server, signals."""

import asyncio
import math
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import FrameType

import structlog
import uvicorn
from fastapi import FastAPI

from app.api.application import create_api
from app.settings import Settings
from app.wiring import Role, open_wiring

log = structlog.get_logger()


def create_app(settings: Settings, role: Role = "all") -> FastAPI:
    """Build the ASGI application; its lifespan opens the service and closes it."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with open_wiring(settings, role) as wiring:
            app.state.wiring = wiring
            yield

    return create_api(settings, lifespan, intake=role != "worker")


class Server(uvicorn.Server):
    """uvicorn, with the order of a shutdown made right.

    uvicorn runs the lifespan's end only after the open connections have drained, so pollers would go on claiming: here
    they stop at the signal itself. Readiness is red for `lead` seconds before the listening socket closes.
    """

    def __init__(self, config: uvicorn.Config, app: FastAPI, lead: float) -> None:
        super().__init__(config)
        self.app, self._lead = app, lead
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        wiring = getattr(self.app.state, "wiring", None)
        if wiring is None or wiring.stopping or self._loop is None:
            self.force_exit = self.should_exit
            self.should_exit = True
            return
        log.info("stopping", signal=signal.Signals(sig).name)
        self._loop.call_soon_threadsafe(wiring.quiesce)
        self._loop.call_soon_threadsafe(self._loop.call_later, self._lead, self._exit)

    def _exit(self) -> None:
        self.should_exit = True


def create_server(settings: Settings, role: Role, host: str, port: int) -> Server:
    app = create_app(settings, role)
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=math.ceil(settings.shutdown.drain),
        timeout_keep_alive=settings.api.keep_alive,
    )
    return Server(config, app, settings.shutdown.lead)


async def serve(settings: Settings, role: Role, host: str, port: int) -> None:
    """Serve until a signal ends it; raises SystemExit(3) when the service cannot start."""
    await create_server(settings, role, host, port).serve()
