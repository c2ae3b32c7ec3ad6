"""The sandbox on a port."""

import asyncio
import signal
import socket
import struct
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
import uvloop
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.sandbox.application import create_sandbox

NO_LINGER = struct.pack("ii", 1, 0)


def run(host: str, port: int) -> None:
    """Serve until SIGINT or SIGTERM; says on stdout where. Raises OSError when the address cannot be bound."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve_until_signal(host, port))


@asynccontextmanager
async def running_sandbox(host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """Serve while the context is open; gives the base URL, which answers from then on. Port 0 takes a free one."""
    listener = _listen(host, port)
    server = _Server(
        uvicorn.Config(
            create_sandbox(),
            http=_ResettableConnection,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
        )
    )
    serving = asyncio.create_task(server.serve(sockets=[listener]), name="sandbox")
    try:
        yield f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving


async def _serve_until_signal(host: str, port: int) -> None:
    stop = asyncio.Event()
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signal_number, stop.set)
    async with running_sandbox(host, port) as url:
        sys.stdout.write(f"sandbox: {url}\n")
        sys.stdout.flush()
        await stop.wait()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=2048)
    # asyncio leaves Nagle on for sockets made this way, and every answer would wait 40 ms for the caller's ACK
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


class _Server(uvicorn.Server):
    """A server that leaves signals to its caller and drops its connections when it stops."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for listener in sockets or []:
            listener.close()
        for connection in list(self.server_state.connections):
            if connection.transport is not None:
                connection.transport.abort()
        await asyncio.gather(*self.server_state.tasks, return_exceptions=True)


class _ResettableConnection(HttpToolsProtocol):
    """Gives each request `state.reset_connection()`, which answers its caller with a TCP reset."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["state"]["reset_connection"] = self._reset

    def _reset(self) -> None:
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
        self.transport.abort()
