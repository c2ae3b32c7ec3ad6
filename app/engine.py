"""The engine's rules: what its rows are, which connections it keeps, what errors may tell, what is traced."""

from typing import Any

import asyncpg
from opentelemetry.trace import StatusCode
from sqlalchemy import ExceptionContext, event
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.ext.asyncio import AsyncEngine

from app.observability import traces

READ_ONLY = asyncpg.ReadOnlySQLTransactionError.sqlstate
OUTDATED = (asyncpg.InvalidCachedStatementError, asyncpg.InternalServerError)


class Row(asyncpg.Record):  # type: ignore[misc]  # asyncpg has no types
    """A row of a result: a tuple, and each column by its name, unless a mapping has a method of that name."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def apply_rules(engine: AsyncEngine) -> None:
    """Let the engine keep these rules from now on."""
    event.listen(engine.sync_engine, "checkout", _replace_if_closed)
    event.listen(engine.sync_engine, "handle_error", _leave_if_read_only)
    event.listen(engine.sync_engine, "handle_error", _leave_if_outdated)
    event.listen(engine.sync_engine, "handle_error", _hide_detail)
    if traces.recorded():
        _trace_statements(engine)


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


def _leave_if_outdated(context: ExceptionContext) -> None:
    """Keep no connection that has prepared statements, or learnt types, of a schema that was migrated since."""
    if isinstance(context.original_exception.__cause__, OUTDATED):
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
