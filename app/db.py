"""The database: its pool, connections beside the pool, and whether it answers with the schema that the code needs."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import asyncpg
import structlog
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool, NullPool

from app.embedded import EmbeddedPostgres
from app.engine import Row, apply_rules
from app.loop import Loop
from app.refused import NO_TABLE, UNANSWERED, DatabaseRefused, in_words, refusals_in_words, sqlstate
from app.settings import ConfigError, PgSettings

T = TypeVar("T")

log = structlog.get_logger()

ALEMBIC_INI = Path(__file__).resolve().parents[1] / "alembic.ini"
DIALECT = "postgresql+asyncpg://"

MIGRATION_LOCK = 7_305_180_114
"""The advisory lock that a migration holds; any number that nothing else in the database locks."""

MIGRATION_LOCK_POLL = 0.2

EMBEDDED_WATCH = 2.0
"""Seconds between two looks whether the embedded PostgreSQL is there."""

CLOSE_TIMEOUT = 2.0
"""Seconds in which the pool's connections are to be closed."""

COMMAND_MARGIN = 2.0
"""Seconds a statement may take longer here than there: PostgreSQL's own timeout should speak first."""


class Database:
    """A pool of `pg.pool.max` connections, and ways around it. Every wait ends (TO-X1).

    JSON stays text in both directions: whoever uses it knows its type and parses it once.
    """

    def __init__(
        self, pg: PgSettings, dsn: str, *, application_name: str, embedded: EmbeddedPostgres | None = None
    ) -> None:
        self._pg, self._application_name = pg, application_name
        self.dsn, self._embedded = dsn, embedded
        self.direct_dsn = pg.direct_dsn.get_secret_value() if pg.direct_dsn else dsn
        self.engine = create_async_engine(
            DIALECT,
            async_creator=lambda: self._connect(self.dsn, pg.statement_timeout),
            pool_size=pg.pool.max,
            max_overflow=0,
            pool_timeout=pg.pool.acquire_timeout,
            pool_use_lifo=True,
            json_deserializer=str,
            hide_parameters=True,  # they are customers' data, and errors are logged
        )
        apply_rules(self.engine)

    @property
    def pool_size(self) -> int:
        return self._pg.pool.max

    @property
    def pool_in_use(self) -> int:
        pool = self.engine.pool
        assert isinstance(pool, AsyncAdaptedQueuePool)
        return pool.checkedout()

    @property
    def pool_waiting(self) -> int:
        """How many wait for a connection of the pool."""
        pool = self.engine.pool
        assert isinstance(pool, AsyncAdaptedQueuePool)
        return len(pool._pool._queue._getters)  # type: ignore[attr-defined]  # noqa: SLF001  there is no public count

    async def connect_listener(self) -> asyncpg.Connection:
        """Open a connection for LISTEN, around the pooler if there is a way; the caller closes it.

        Every process has one, and its name tells the others how many more the process may open.
        """
        connection = await self._connect(self.direct_dsn, self._pg.statement_timeout)
        try:
            await connection.execute(f"SET application_name = '{self._application_name} pool={self._pg.pool.max}'")
        except BaseException:
            connection.terminate()
            raise
        return connection

    @property
    def has_own_sessions(self) -> bool:
        """Whether there is a way to a session that stays one's own: LISTEN and a migration's lock need one."""
        return not self._shares_sessions(self.direct_dsn)

    def migration_engine(self) -> AsyncEngine:
        """An engine without pool or statement timeout. Raises ConfigError when PgBouncer is in its way."""
        if not self.has_own_sessions:
            raise ConfigError(
                ["pg.direct_dsn: needed to migrate when pg.pgbouncer is true. Set it to bypass PgBouncer"]
            )
        return create_async_engine(
            DIALECT, async_creator=lambda: self._connect(self.direct_dsn, None), poolclass=NullPool
        )

    async def ping(self) -> str | None:
        """Why the database does not answer within `pg.ping_timeout` seconds; None when it does."""
        try:
            await self._answer(_hello(self.engine))
        except DatabaseRefused as refusal:
            return str(refusal)
        return None

    async def schema_behind(self) -> str | None:
        """What the schema lacks; None when it is as new as the code or, during a rolling update, newer.

        Like `ping` it takes `pg.ping_timeout` seconds at most.
        """
        *older, needed = _revisions()
        try:
            found = await self._answer(_revision(self.engine))
        except DatabaseRefused as refusal:
            return f"the schema's version cannot be read: {refusal}"
        if found is None or found in older:
            return f"the schema is at {found or 'nothing'}, the code needs {needed}: run python -m app migrate"
        return None

    async def watch_embedded(self, loop: Loop) -> None:
        """Start the embedded PostgreSQL again whenever it has died. What it had confirmed is there again."""
        while self._embedded is not None and not loop.stopping:
            loop.beat()
            if await asyncio.to_thread(self._embedded.revive):
                log.error("the embedded PostgreSQL had died and was started again", data_dir=str(self._pg.data_dir))
            await loop.rest(EMBEDDED_WATCH)

    async def _answer(self, question: Awaitable[T]) -> T:
        """The answer to a short question, within `pg.ping_timeout` seconds. Raises DatabaseRefused."""
        try:
            async with asyncio.timeout(self._pg.ping_timeout):
                return await question
        except TimeoutError as error:
            patience = f"{self._pg.ping_timeout:g} s"
            cure = "check the host in pg.dsn and the way there, or raise pg.ping_timeout"
            raise DatabaseRefused(f"no answer within {patience}: {cure}") from error
        except UNANSWERED as error:
            if self._embedded is not None and isinstance(error, OSError):
                raise DatabaseRefused(f"the {self._pg.place} is down: the service starts it again") from error
            raise DatabaseRefused(in_words(error)) from error

    async def _connect(self, dsn: str, statement_timeout: float | None) -> asyncpg.Connection:
        return await asyncpg.connect(
            dsn,
            timeout=self._pg.connect_timeout,
            record_class=Row,
            command_timeout=None if statement_timeout is None else statement_timeout + COMMAND_MARGIN,
            **self._session(dsn, statement_timeout),
        )

    def _shares_sessions(self, dsn: str) -> bool:
        """Whether PgBouncer gives every transaction whichever session is free, with what others left in it."""
        return self._pg.pgbouncer and dsn == self.dsn

    def _session(self, dsn: str, statement_timeout: float | None) -> dict[str, Any]:
        """A session's limits. PgBouncer refuses to carry them: behind it they belong to the database role.

        Nor does every PgBouncer carry named statements. Without asyncpg's cache all are unnamed and are sent along with
        each execution, in the same packet.
        """
        name = {"application_name": self._application_name}
        if self._shares_sessions(dsn):
            return {"server_settings": name, "statement_cache_size": 0}
        limits = {
            "statement_timeout": _milliseconds(statement_timeout or 0),
            "lock_timeout": _milliseconds(self._pg.lock_timeout),
            "idle_in_transaction_session_timeout": _milliseconds(self._pg.idle_in_transaction_timeout),
            "timezone": "UTC",
            "jit": "off",
        }
        return {"server_settings": name | limits}


@asynccontextmanager
async def open_database(pg: PgSettings, *, application_name: str) -> AsyncIterator[Database]:
    """Open the pool, which connects when it is first used; without `pg.dsn` also start the embedded PostgreSQL."""
    async with AsyncExitStack() as stack:
        if pg.dsn:
            database = Database(pg, pg.dsn.get_secret_value(), application_name=application_name)
        else:
            embedded, dsn = await stack.enter_async_context(_embedded(pg.data_dir))
            database = Database(pg, dsn, application_name=application_name, embedded=embedded)
        stack.push_async_callback(_dispose, database.engine)
        yield database


async def _dispose(engine: AsyncEngine) -> None:
    """Close the pool; a server that has gone silent is not waited for, and finds out by itself."""
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT):
            await engine.dispose()
    except TimeoutError:
        log.warning("the database did not answer while its connections were closed")


async def migrate(database: Database) -> list[str]:
    """Bring the schema up to date; returns the revisions applied. Of several at once, one applies and the others wait.

    They poll for the lock: a statement that waits for it would hold a snapshot, which an index built concurrently
    waits for in turn.
    """
    engine = database.migration_engine()
    with refusals_in_words():
        return await _migrate(engine)


async def _migrate(engine: AsyncEngine) -> list[str]:
    async with engine.connect() as connection:
        while not await connection.scalar(text("SELECT pg_try_advisory_lock(:lock)"), {"lock": MIGRATION_LOCK}):
            await connection.commit()
            await asyncio.sleep(MIGRATION_LOCK_POLL)
        await connection.commit()
        if await _revision(engine) not in {None, *_revisions()}:
            return []  # a newer release has migrated already, and this one is on its way out
        return await connection.run_sync(_upgrade)


async def _hello(engine: AsyncEngine) -> None:
    async with engine.connect() as connection:
        await connection.execute(text("SELECT 1"))


async def _revision(engine: AsyncEngine) -> str | None:
    """The schema's revision; None when there is none yet."""
    try:
        async with engine.connect() as connection:
            revision: str | None = await connection.scalar(text("SELECT version_num FROM alembic_version"))
            return revision
    except ProgrammingError as error:
        if sqlstate(error) != NO_TABLE:
            raise
    return None


def _upgrade(connection: Connection) -> list[str]:
    connection.commit()  # each revision has a transaction of its own
    applied: list[str] = []
    config = Config(ALEMBIC_INI)
    config.attributes.update(connection=connection, applied=applied)
    command.upgrade(config, "head")
    return applied


@cache
def _revisions() -> list[str]:
    """All revisions of the schema, the oldest first."""
    return [step.revision for step in ScriptDirectory.from_config(Config(ALEMBIC_INI)).walk_revisions()][::-1]


@asynccontextmanager
async def _embedded(data_dir: Path) -> AsyncIterator[tuple[EmbeddedPostgres, str]]:
    server = EmbeddedPostgres(data_dir)
    try:
        yield server, await asyncio.to_thread(server.start)
    finally:
        await asyncio.to_thread(server.stop)


def _milliseconds(seconds: float) -> str:
    return str(math.ceil(seconds * 1000))
