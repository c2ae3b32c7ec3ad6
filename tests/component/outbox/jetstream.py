"""A NATS server of the tests' own with JetStream, which may be killed and started again, and what its stream holds."""

import asyncio
import json
import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

from nats.aio.client import Client
from nats.js.client import JetStreamContext

from app.outbox.nats import NatsSink, open_nats
from app.settings import load_settings
from tests.processes import free_port, wait_until
from tests.tools import installed


class NatsServer:
    """A server on a port of its own; `options` are those of its command line."""

    def __init__(self, directory: Path, *options: str) -> None:
        program = installed("nats-server", "apt-get install nats-server")
        self.port = free_port()
        self.url = f"nats://127.0.0.1:{self.port}"
        address = ("-a", "127.0.0.1", "-p", str(self.port))
        self._command = [program, *address, "-js", "-sd", str(directory / "jetstream"), *options]
        self._log = directory / "nats.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as output:
            process = subprocess.Popen(self._command, stdout=output, stderr=subprocess.STDOUT)
        self._process = process

        def listens() -> bool:
            assert process.poll() is None, self._log.read_text()
            with closing(socket.socket()) as client:
                return client.connect_ex(("127.0.0.1", self.port)) == 0

        wait_until(listens, 10, "nats-server listens")

    def pause(self) -> None:
        """Let it stand still; returns once it does."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        os.waitpid(self._process.pid, os.WUNTRACED)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@contextmanager
def nats_server(directory: Path, *options: str) -> Iterator[NatsServer]:
    server = NatsServer(directory, *options)
    server.start()
    try:
        yield server
    finally:
        server.kill()


def environ(url: str, **settings: str) -> dict[str, str]:
    """The variables that send events to `url`; settings are written as in the file, with __ between levels."""
    return {
        "ORDERS_EVENTS__SINK": "nats",
        "ORDERS_EVENTS__NATS__SERVERS": json.dumps([url]),
        "ORDERS_EVENTS__NATS__READ_TIMEOUT": "6",
        "ORDERS_EVENTS__NATS__BREAKER__OPEN_SECONDS": "0.5",
        **{f"ORDERS_EVENTS__{name.upper()}": value for name, value in settings.items()},
    }


@asynccontextmanager
async def nats_to(url: str, **settings: str) -> AsyncIterator[NatsSink]:
    async with open_nats(load_settings(environ(url, **settings)).events) as sink:
        yield sink


@asynccontextmanager
async def jetstream(url: str, **options: Any) -> AsyncIterator[JetStreamContext]:
    """The tests' own way to the server."""
    client = Client()
    await client.connect(url, **options)
    try:
        yield client.jetstream()
    finally:
        await client.close()


async def create_stream(url: str, name: str = "ORDERS", **options: Any) -> None:
    async with jetstream(url, **options) as stream:
        await stream.add_stream(name=name, subjects=["orders.>"])


async def stored(url: str, **options: Any) -> list[Any]:
    """All messages of the stream, in its order."""
    async with jetstream(url, **options) as stream:
        state = (await stream.stream_info("ORDERS")).state
        return [await stream.get_msg("ORDERS", number) for number in range(1, state.messages + 1)]


@asynccontextmanager
async def between(port: int, passes: Callable[[bytes], bool]) -> AsyncIterator[str]:
    """A way to the server that is cut as soon as it says something that does not pass; yields its address."""

    async def link(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        ways = [asyncio.create_task(pump(reader, back)), asyncio.create_task(pump(there, writer, passes))]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.wait(ways)
        for side in (writer, back):
            side.transport.abort()

    server = await asyncio.start_server(link, "127.0.0.1", 0)
    async with server:
        yield f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def pump(
    source: asyncio.StreamReader, sink: asyncio.StreamWriter, passes: Callable[[bytes], bool] = lambda _: True
) -> None:
    while (said := await source.read(65_536)) and passes(said):
        sink.write(said)
        await sink.drain()
