"""Transactions: plain code over a plain connection, from BEGIN to COMMIT in one go."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from sqlalchemy import Connection, Dialect, TextClause
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.util import greenlet_spawn

T = TypeVar("T")


async def transact(engine: AsyncEngine, work: Callable[[Connection], T]) -> T:
    """Run `work` in a transaction: committed when `work` returns, rolled back when it raises.

    `work` awaits nothing. SQLAlchemy gives each await on a connection a greenlet of its own, and for short statements
    these cost more than the statements do: here one is enough, from the pool and back to it.
    """

    def whole() -> T:
        with engine.sync_engine.begin() as conn:
            return work(conn)

    return await greenlet_spawn(whole)


def autocommit(engine: AsyncEngine) -> AsyncEngine:
    """The engine as one whose statements each commit by themselves: BEGIN and COMMIT are round trips of their own."""
    return engine.execution_options(isolation_level="AUTOCOMMIT")


def rows(conn: Connection, statement: TextClause, values: Mapping[str, object]) -> Sequence[Any]:
    """What the statement returns, as `conn.execute(statement, values).all()`, in half the time.

    What SQLAlchemy makes anew for each execution costs as much as the driver and the network together. It is made
    where somebody listens to statements, as the spans do. Errors are SQLAlchemy's.
    """
    if conn.dispatch.before_cursor_execute:
        return conn.execute(statement, values).all()
    sql, names = _compiled(statement, conn.dialect)
    cursor = conn.connection.cursor()
    try:
        cursor.execute(sql, tuple(values[name] for name in names))
        return cursor.fetchall()
    except BaseException as error:  # noqa: BLE001 - it is raised again, and an interrupted connection is given up
        conn._handle_dbapi_exception(error, sql, None, cursor, None)  # noqa: SLF001  there is no public way to it


@lru_cache(maxsize=256)
def _compiled(statement: TextClause, dialect: Dialect) -> tuple[str, tuple[str, ...]]:
    """A statement as the driver takes it, and the names of its parameters in their order."""
    compiled = statement.compile(dialect=dialect)
    return str(compiled), tuple(compiled.positiontup or ())
