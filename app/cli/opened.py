"""What a command opens before its work: the settings, an event loop, the database, the parts of the service."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from app.cli.output import complain

if TYPE_CHECKING:
    from app.db import Database
    from app.settings import Settings
    from app.wiring import Wiring

T = TypeVar("T")


class CannotRun(Exception):
    """The command cannot do its work here and now; the message says why and what to do."""


def load(changed: Mapping[str, object] | None = None) -> "Settings":
    """The settings, with the values `changed` on the command line; None leaves one as it is. Raises ConfigError."""
    from app.settings import load_settings

    given = {name: str(value) for name, value in (changed or {}).items() if value is not None}
    return load_settings({**os.environ, **given})


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run on uvicorn's event loop. SIGTERM cancels the work, unless a server in it takes the signals over."""

    async def stoppable() -> T:
        loop, this = asyncio.get_running_loop(), asyncio.current_task()
        assert this is not None
        cancel = this.cancel
        signal.signal(signal.SIGTERM, lambda *_: loop.call_soon_threadsafe(cancel))
        return await work

    before = signal.getsignal(signal.SIGTERM)
    try:
        from uvicorn.loops.auto import auto_loop_factory

        with asyncio.Runner(loop_factory=auto_loop_factory()) as runner:
            return runner.run(stoppable())
    finally:
        signal.signal(signal.SIGTERM, before)
        work.close()  # a signal may have come before it began


@asynccontextmanager
async def opened() -> "AsyncIterator[Wiring]":
    """The service's parts without its background loops, over a database with the right schema.

    Raises ConfigError or CannotRun.
    """
    from app.db import migrate
    from app.refused import refusals_in_words
    from app.wiring import open_wiring

    settings = load()
    require_database(settings)
    async with open_wiring(settings, "command") as wiring:
        await require_answer(wiring.database)
        if settings.pg.dsn is None:
            await migrate(wiring.database)
        elif (behind := await wiring.database.schema_behind()) is not None:
            raise CannotRun(behind)
        with refusals_in_words():
            yield wiring


def require_database(settings: "Settings") -> None:
    """Say so when a command is about to look into the embedded database, and make none for it. Raises CannotRun."""
    pg = settings.pg
    if pg.dsn is not None:
        return
    if not os.access(pg.data_dir / "PG_VERSION", os.F_OK):
        raise CannotRun(
            f"no pg.dsn is set, and there is no embedded database in {pg.data_dir}: "
            "set ORDERS_PG__DSN; or python -m app serve, or demo, makes an embedded one"
        )
    complain(f"no pg.dsn is set: this is the {pg.place}")


async def require_answer(database: "Database") -> None:
    if (problem := await database.ping()) is not None:
        raise CannotRun(f"the database cannot be reached: {problem} (ORDERS_PG__DSN)")
