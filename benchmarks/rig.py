"""What benchmarks stand on: PostgreSQL out of the wheel, the stand-ins and the service, each a process of its own."""

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
from httpx_aiohttp import HttpxAiohttpClient

from app.embedded import EmbeddedPostgres
from benchmarks.peer import TABLES, Peers, installed
from tests.processes import Process, Processes, processes
from tests.service import ORDER, SYSTEMS, Sandbox

ONLY_CONFIRMATIONS = {
    "ORDERS_TASKS__DEFAULT__ENABLED": "false",
    "ORDERS_TASKS__ORDER_CONFIRMATION_TASK__ENABLED": "true",
}
"""For a service that leaves the steps after the confirmation to others."""


@dataclass(frozen=True)
class Rig:
    """A migrated database to copy, and running stand-ins; `directory` is gone afterwards."""

    dsn: str
    directory: Path
    stand_ins: Process
    environ: dict[str, str]
    numbers: Iterator[int]

    @contextmanager
    def service(
        self, dsn: str, module: str = "app", role: str = "all", systems: str | None = None
    ) -> Iterator[Process]:
        """A ready service, started as `python -m <module> serve`; killed at the end. One URL may be all `systems`."""
        with processes(dsn, self.directory) as run:
            run.module = module
            run.environ |= self.environ
            if systems is not None:
                run.environ |= {f"ORDERS_CLIENT__{name.upper()}__BASE_URL": systems for name in SYSTEMS}
            yield run.serve(role)

    @asynccontextmanager
    async def sandbox(self) -> AsyncIterator[Sandbox]:
        """The knobs of the stand-ins."""
        async with HttpxAiohttpClient(base_url=self.stand_ins.url) as client:
            yield Sandbox(self.stand_ins.url, client)

    @asynccontextmanager
    async def database(self) -> AsyncIterator[str]:
        """The DSN of a fresh database."""
        name = f"bench_{next(self.numbers)}"
        await execute(self.dsn, f"CREATE DATABASE {name} TEMPLATE orders")
        try:
            yield urlsplit(self.dsn)._replace(path=f"/{name}").geturl()
        finally:
            await execute(self.dsn, f"DROP DATABASE {name} WITH (FORCE)")

    @asynccontextmanager
    async def peers(self, insurer: str = "http://127.0.0.1:1") -> AsyncIterator[Peers]:
        """The peers, over a fresh database with their tables."""
        async with self.database() as dsn:
            await execute(dsn, TABLES)
            peers = Peers(installed(), dsn, insurer)
            peers.prepare()
            yield peers


@contextmanager
def open_rig() -> Iterator[Rig]:
    """Build it and take it down again. The server keeps its safe settings: a commit waits for the disk."""
    directory = Path(tempfile.mkdtemp(prefix="orders-bench-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, directory)
        server = EmbeddedPostgres(directory / "postgres")
        stack.callback(server.stop)
        dsn = server.start()
        run: Processes = stack.enter_context(processes(dsn, directory))
        run.run("migrate")
        stand_ins = run.sandbox()
        maintenance = urlsplit(dsn)._replace(path="/postgres").geturl()
        yield Rig(maintenance, directory, stand_ins, run.environ, count())


async def place_at(url: str, rate: float, seconds: float) -> list[int]:
    """Place orders at `rate` a second, however long each takes; returns their ids."""
    placing: list[asyncio.Task[int]] = []
    async with HttpxAiohttpClient(base_url=url) as client, asyncio.TaskGroup() as group:
        began = time.monotonic()
        for number in range(round(rate * seconds)):
            await asyncio.sleep(began + number / rate - time.monotonic())
            placing.append(group.create_task(_place(client)))
    return [placed.result() for placed in placing]


async def until(condition: Callable[[], Awaitable[bool]], patience: float) -> bool:
    """Whether the condition came true within `patience` seconds."""
    try:
        async with asyncio.timeout(patience):
            while not await condition():
                await asyncio.sleep(0.1)
    except TimeoutError:
        return False
    return True


async def _place(client: HttpxAiohttpClient) -> int:
    answer = await client.post("/orders", json=ORDER)
    answer.raise_for_status()
    return int(answer.json()["orderId"])


async def execute(dsn: str, *statements: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()
