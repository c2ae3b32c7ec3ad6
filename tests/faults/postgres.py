"""A PostgreSQL of the tests' own, which may be stopped, killed and started again."""

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from app.embedded import EmbeddedPostgres
from tests.conftest import execute

Mode = Literal["fast", "immediate"]


class OwnPostgres:
    """A server out of the wheel. What it has confirmed it keeps whatever its stop: only the machine may not crash."""

    def __init__(self, directory: Path) -> None:
        self._server = EmbeddedPostgres(directory / "postgres")
        self.dsn = self._server.start()
        execute(self.dsn, "ALTER SYSTEM SET fsync = off")
        execute(self.dsn, "SELECT pg_reload_conf()")

    async def stop(self, mode: Mode) -> None:
        """Stop as an operator does, or as a crash does."""
        await asyncio.to_thread(self._server.control, "stop", "-m", mode)

    async def start(self) -> None:
        await asyncio.to_thread(self._server._launch)

    async def restart(self, mode: Mode) -> None:
        await asyncio.to_thread(self._server.control, "restart", "-m", mode)

    def close(self) -> None:
        self._server.stop()


@contextmanager
def own_postgres() -> Iterator[OwnPostgres]:
    directory = Path(tempfile.mkdtemp(prefix="orders-faults-"))
    server = OwnPostgres(directory)
    try:
        yield server
    finally:
        server.close()
        shutil.rmtree(directory)
