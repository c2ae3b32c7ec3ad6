"""The database: its pool, connections beside the pool, and whether it answers with the schema that the code needs."""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import asyncpg
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from opentelemetry.trace import StatusCode
from sqlalchemy import Connection, ExceptionContext, event, text
from sqlalchemy.exc import DBAPIError, DisconnectionError, ProgrammingError
from sqlalchemy.exc import TimeoutError as NoConnection
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool, NullPool

from app.embedded import EmbeddedPostgres
from app.observability import traces
from app.refused import NO_TABLE, in_words, refusals_in_words, sqlstate
from app.settings import ConfigError, PgSettings

ALEMBIC_INI = Path(__file__).resolve().parents[1] / "alembic.ini"
DIALECT = "postgresql+asyncpg://"

MIGRATION_LOCK = 7_305_180_114
"""The advisory lock that a migration holds; any number that nothing else in the database locks."""

READ_ONLY = asyncpg.ReadOnlySQLTransactionError.sqlstate

MIGRATION_LOCK_POLL = 0.2
COMMAND_MARGIN = 2.0
"""Seconds a statement may take longer here than there: PostgreSQL's own timeout should speak first."""


class Database:
    """A pool of `pg.pool.max` connections, and ways around it. Every wait ends (TO-X1).

    JSON stays text in both directions: whoever uses it knows its type and parses it once.
    """

    def __init__(self, pg: PgSettings, dsn: str, *, application_name: str) -> None:
        self._pg, self._application_name = pg, application_name
        self.dsn = dsn
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
        event.listen(self.engine.sync_engine, "checkout", _replace_if_closed)
        event.listen(self.engine.sync_engine, "handle_error", _leave_if_read_only)
        event.listen(self.engine.sync_engine, "handle_error", _hide_detail)
        if traces.recorded():
            _trace_statements(self.engine)

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
        """Open a connection for LISTEN, around the pooler if there is a way; the caller closes it."""
        return await self._connect(self.direct_dsn, self._pg.statement_timeout)

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
            async with asyncio.timeout(self._pg.ping_timeout), self.engine.connect() as connection:
                await connection.execute(text("SELECT 1"))
        except TimeoutError:
            patience = f"{self._pg.ping_timeout:g} s"
            return f"no answer within {patience}: check the host in pg.dsn and the way there, or raise pg.ping_timeout"
        except (DBAPIError, NoConnection, OSError) as error:
            return in_words(error)
        return None

    async def schema_behind(self) -> str | None:
        """What the schema lacks; None when it is as new as the code or, during a rolling update, newer."""
        *older, needed = _revisions()
        try:
            found = await _revision(self.engine)
        except ProgrammingError as error:
            return f"the schema's version cannot be read: {in_words(error)}"
        if found is None or found in older:
            return f"the schema is at {found or 'nothing'}, the code needs {needed}: run python -m app migrate"
        return None

    async def _connect(self, dsn: str, statement_timeout: float | None) -> asyncpg.Connection:
        return await asyncpg.connect(
            dsn,
            timeout=self._pg.connect_timeout,
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
        dsn = pg.dsn.get_secret_value() if pg.dsn else await stack.enter_async_context(_embedded(pg.data_dir))
        database = Database(pg, dsn, application_name=application_name)
        stack.push_async_callback(database.engine.dispose)
        yield database


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
async def _embedded(data_dir: Path) -> AsyncIterator[str]:
    server = EmbeddedPostgres(data_dir)
    try:
        yield await asyncio.to_thread(server.start)
    finally:
        await asyncio.to_thread(server.stop)


def _replace_if_closed(connection: Any, _record: object, _fairy: object) -> None:
    """Let no caller have a connection that PostgreSQL has closed meanwhile, for instance to restart.

    asyncpg has noticed by then, so this costs nothing, where asking the server at each checkout costs a round trip.
    """
    if connection.driver_connection.is_closed():
        raise DisconnectionError


def _leave_if_read_only(context: ExceptionContext) -> None:
    """Keep no connection to a server that takes no writes: it was demoted, and a new one may find its successor."""
    if getattr(context.original_exception, "sqlstate", None) == READ_ONLY:
        context.is_disconnect = True


def _hide_detail(context: ExceptionContext) -> None:
    """Forget the row that PostgreSQL quotes to explain its refusal: like parameters, it is customers' data."""
    if isinstance(refusal := context.original_exception.__cause__, asyncpg.PostgresError):
        refusal.detail = None


def _trace_statements(engine: AsyncEngine) -> None:
    """Give each statement a span of its own."""

    def begun(_conn: object, _cursor: object, statement: str, _values: object, context: Any, _many: bool) -> None:
        context.span = traces.statement_begun(statement)

    def ended(_conn: object, _cursor: object, _statement: str, _values: object, context: Any, _many: bool) -> None:
        context.span.end()

    def failed(failure: ExceptionContext) -> None:
        if (span := getattr(failure.execution_context, "span", None)) is not None:
            span.set_status(StatusCode.ERROR, type(failure.original_exception).__name__)
            span.end()

    event.listen(engine.sync_engine, "before_cursor_execute", begun)
    event.listen(engine.sync_engine, "after_cursor_execute", ended)
    event.listen(engine.sync_engine, "handle_error", failed)


def _milliseconds(seconds: float) -> str:
    return str(math.ceil(seconds * 1000))
