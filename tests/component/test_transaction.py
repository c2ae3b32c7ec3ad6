"""Transactions in one go, and statements that pass SQLAlchemy's own way by: nobody can tell them from the long way."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.event import listen
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from app.db import Database
from app.transaction import autocommit, rows, transact

NUMBERS = text("SELECT n AS number, CAST(:word AS text) AS word FROM generate_series(1, :most) AS n")
ORDER = text("""
INSERT INTO orders (id, customer_id, items, status) OVERRIDING SYSTEM VALUE
VALUES (:id, 'c', '[]', 'PAID') RETURNING id""")
COUNT = text("SELECT count(*) AS found FROM orders")
GROWING = text("SELECT * FROM growing")
SLEEP = text("SELECT pg_sleep(:seconds)")
END = text("SELECT pg_terminate_backend(pg_backend_pid())")
BUSY = text("SELECT count(*) AS busy FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%' AND state = 'active'")


def short(conn: Connection, statement: Any, values: dict[str, object]) -> list[Any]:
    return list(rows(conn, statement, values))


def long(conn: Connection, statement: Any, values: dict[str, object]) -> list[Any]:
    return list(conn.execute(statement, values))


async def found(database: Database) -> int:
    (row,) = await transact(database.engine, lambda conn: rows(conn, COUNT, {}))
    return int(row.found)


@pytest.mark.parametrize("way", [short, long])
async def test_rows_are_tuples_with_names(database: Database, way: Callable[..., list[Any]]) -> None:
    first, second = await transact(database.engine, lambda conn: way(conn, NUMBERS, {"most": 2, "word": "ё"}))
    assert tuple(first) == (1, "ё")
    assert (second.number, second.word, second[0], *second[1:]) == (2, "ё", 2, "ё")
    with pytest.raises(AttributeError):
        _ = second.nothing


async def test_whoever_listens_to_statements_hears_them(database: Database) -> None:
    heard: list[str] = []
    listen(database.engine.sync_engine, "before_cursor_execute", lambda *said: heard.append(said[2]))
    (row,) = await transact(database.engine, lambda conn: rows(conn, COUNT, {}))
    assert (row.found, heard) == (0, [COUNT.text])


@pytest.mark.parametrize("way", [short, long])
async def test_a_refusal_is_sqlalchemys_and_undoes_the_transaction(
    database: Database, way: Callable[..., list[Any]]
) -> None:
    """It tells nothing of the values, which are customers' data."""

    def twice(conn: Connection) -> None:
        for _ in range(2):
            way(conn, ORDER, {"id": 4711})

    with pytest.raises(IntegrityError) as refusal:
        await transact(database.engine, twice)
    assert "orders_pkey" in str(refusal.value)
    assert "4711" not in str(refusal.value)
    assert await found(database) == 0


@pytest.mark.parametrize(("engine", "kept"), [(autocommit, 1), (lambda engine: engine, 0)])
async def test_what_stays_when_work_fails(
    database: Database, engine: Callable[[AsyncEngine], AsyncEngine], kept: int
) -> None:
    """Nothing of a transaction, but each statement that committed by itself."""

    def fails_after_one(conn: Connection) -> None:
        rows(conn, ORDER, {"id": 1})
        raise LookupError

    with pytest.raises(LookupError):
        await transact(engine(database.engine), fails_after_one)
    assert await found(database) == kept


async def test_a_connection_that_is_lost_is_replaced(database: Database) -> None:
    """Whoever was using it gets the error, and the next one a connection that works."""

    def ends_itself(conn: Connection) -> None:
        rows(conn, ORDER, {"id": 1})
        rows(conn, END, {})

    with pytest.raises(DBAPIError) as lost:
        await transact(database.engine, ends_itself)
    assert lost.value.connection_invalidated
    assert await found(database) == 0


@pytest.mark.parametrize("way", [short, long])
async def test_a_migration_costs_one_error_at_most(database: Database, way: Callable[..., list[Any]]) -> None:
    """What a connection has prepared does not fit a table that has changed: it is prepared anew."""

    def read(conn: Connection) -> list[Any]:
        return way(conn, GROWING, {})

    await transact(database.engine, lambda conn: conn.execute(text("CREATE TABLE growing (a int)")))
    try:
        connections = [transact(database.engine, read) for _ in range(3)]
        await asyncio.gather(*connections)
        await transact(database.engine, lambda conn: conn.execute(text("ALTER TABLE growing ADD COLUMN b int")))
        with suppress(DBAPIError):
            await transact(database.engine, read)
        assert await asyncio.gather(*(transact(database.engine, read) for _ in range(3))) == [[], [], []]
    finally:
        await transact(database.engine, lambda conn: conn.execute(text("DROP TABLE growing")))


@pytest.mark.parametrize("cancelled", [1, 2])
async def test_whoever_is_cancelled_leaves_nothing_behind(database: Database, cancelled: int) -> None:
    """The pool has its places back, also if the clearing up is cancelled in turn: then PostgreSQL ends by itself."""
    await found(database)
    waiting = [
        asyncio.create_task(transact(database.engine, lambda conn: rows(conn, SLEEP, {"seconds": 2}))) for _ in range(5)
    ]
    await until_busy(database, 5)
    for _ in range(cancelled):
        for task in waiting:
            task.cancel()
        await asyncio.sleep(0)
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(end) for end in ended} == {asyncio.CancelledError}
    assert database.pool_in_use == 0
    await until_busy(database, 0)


async def until_busy(database: Database, number: int) -> None:
    """Return once so many statements sleep in PostgreSQL."""
    async with asyncio.timeout(10):
        while (await transact(database.engine, lambda conn: rows(conn, BUSY, {})))[0].busy != number:
            await asyncio.sleep(0.01)
