"""The pool and the connections beside it, on a real PostgreSQL."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as NoConnection

from app.db import Database, open_database
from app.settings import PgSettings, PoolSettings, load_settings

NOWHERE = "postgresql://u@127.0.0.1:1/orders"


def settings(dsn: str, **changes: Any) -> PgSettings:
    return load_settings({"ORDERS_PG__DSN": dsn}).pg.model_copy(update=changes)


@asynccontextmanager
async def opened(dsn: str, **changes: Any) -> AsyncIterator[Database]:
    async with open_database(settings(dsn, **changes), application_name="test") as database:
        yield database


async def scalar(database: Database, sql: str, **values: Any) -> Any:
    async with database.engine.connect() as connection:
        return await connection.scalar(text(sql), values)


async def eventually(database: Database, sql: str, expected: object) -> None:
    """Wait until a query on a connection beside the pool gives what is expected."""
    connection = await database.connect_listener()
    try:
        async with asyncio.timeout(5):
            while await connection.fetchval(sql) != expected:
                await asyncio.sleep(0.02)
    finally:
        await connection.close()


@pytest.mark.rule("TO-X1")
async def test_the_pool_is_bounded_and_so_is_the_wait_for_it(pg_dsn: str) -> None:
    """Above its size the pool opens nothing more; who waits for a connection gets an error after the timeout."""
    async with opened(pg_dsn, pool=PoolSettings(max=2, acquire_timeout=0.2)) as database:
        async with database.engine.connect(), database.engine.connect():
            assert (database.pool_in_use, database.pool_size) == (2, 2)
            with pytest.raises(NoConnection):
                await scalar(database, "SELECT 1")
        assert database.pool_in_use == 0
        assert await scalar(database, "SELECT 1") == 1


async def test_connections_that_postgresql_closed_are_replaced_unnoticed(database: Database) -> None:
    """After PostgreSQL has ended all idle connections the next callers get new ones and no error."""
    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(scalar(database, "SELECT pg_sleep(0.1)"))
    kill = (
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND pid <> "
    )
    connection = await database.connect_listener()
    assert await connection.fetchval(f"{kill} pg_backend_pid()") == 5
    await connection.close()
    await eventually(database, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()", 1)
    for _ in range(5):
        assert await scalar(database, "SELECT 1") == 1


async def test_a_session_has_limits_and_a_name(database: Database) -> None:
    """Every pooled session bounds statements, locks and idle transactions, counts in UTC and says who it is."""
    shown = {
        name: await scalar(database, f"SHOW {name}")
        for name in (
            "statement_timeout",
            "lock_timeout",
            "idle_in_transaction_session_timeout",
            "TimeZone",
            "jit",
            "application_name",
        )
    }
    assert list(shown.values()) == ["10s", "5s", "30s", "UTC", "off", "test"]


async def test_behind_pgbouncer_no_limits_are_sent(pg_dsn: str) -> None:
    """PgBouncer refuses sessions that bring settings: behind it only the name is sent, around it everything."""
    around = f"{pg_dsn}{'&' if '?' in pg_dsn else '?'}sslmode=prefer"
    async with opened(pg_dsn, pgbouncer=True, direct_dsn=settings(around).dsn) as database:
        assert await scalar(database, "SHOW statement_timeout") == "0"
        assert await scalar(database, "SHOW application_name") == "test"
        listener = await database.connect_listener()
        assert await listener.fetchval("SHOW statement_timeout") == "10s"
        await listener.close()


@pytest.mark.rule("TO-X1")
async def test_a_long_statement_is_ended_by_postgresql(pg_dsn: str) -> None:
    """A statement above its timeout fails, and its connection serves the next caller."""
    async with opened(pg_dsn, statement_timeout=0.2, lock_timeout=0.1) as database:
        with pytest.raises(DBAPIError, match="statement timeout"):
            await scalar(database, "SELECT pg_sleep(30)")
        assert await scalar(database, "SELECT 1") == 1
        assert database.pool_in_use == 0


@pytest.mark.rule("TO-X1")
async def test_a_wait_for_a_lock_is_ended_by_postgresql(pg_dsn: str) -> None:
    """A statement that waits too long for another transaction's lock fails."""
    async with opened(pg_dsn, lock_timeout=0.1) as database, database.engine.begin() as holder:
        await holder.execute(text("LOCK TABLE orders"))
        with pytest.raises(DBAPIError, match="lock timeout"):
            await scalar(database, "SELECT count(*) FROM orders")


@pytest.mark.rule("TO-X1")
async def test_an_idle_transaction_is_ended_by_postgresql(pg_dsn: str) -> None:
    """A transaction that does nothing for too long loses its connection and with it its locks."""
    async with opened(pg_dsn, idle_in_transaction_timeout=0.1) as database:
        with pytest.raises(DBAPIError):  # noqa: PT012 - the last statement is the one that fails
            async with database.engine.begin() as idle:
                await idle.execute(text("LOCK TABLE orders"))
                await asyncio.sleep(0.5)
                await idle.execute(text("SELECT 1"))
        assert await scalar(database, "SELECT count(*) FROM orders") == 0


async def test_a_cancelled_statement_keeps_neither_connection_nor_locks(pg_dsn: str) -> None:
    """A task cancelled inside a statement gives its connection back, and PostgreSQL gives up what it had locked."""
    async with opened(pg_dsn, pool=PoolSettings(max=2, acquire_timeout=1)) as database:

        async def lock_and_wait() -> None:
            async with database.engine.begin() as connection:
                await connection.execute(text("LOCK TABLE orders"))
                await connection.execute(text("SELECT pg_sleep(30)"))

        for _ in range(5):
            task = asyncio.create_task(lock_and_wait())
            await eventually(database, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'", 1)
            task.cancel()
            await asyncio.wait({task})
            await eventually(database, "SELECT count(*) FROM pg_locks WHERE relation = 'orders'::regclass", 0)
        assert database.pool_in_use == 0
        assert await scalar(database, "SELECT count(*) FROM orders") == 0


async def test_json_stays_text(database: Database) -> None:
    """JSON goes in and comes out as text, also in arrays: nothing is parsed that nobody looks at."""
    sent = "SELECT ARRAY(SELECT unnest(CAST(:values AS jsonb[])))"
    assert await scalar(database, sent, values=['{"a": 1}', "[]"]) == ['{"a": 1}', "[]"]
    assert await scalar(database, """SELECT CAST('{"a": "ж"}' AS json)""") == '{"a": "ж"}'


async def test_a_listener_is_outside_of_the_pool(database: Database) -> None:
    """LISTEN has a connection of its own, which hears what a pooled transaction says at commit."""
    heard: asyncio.Queue[object] = asyncio.Queue()
    listener = await database.connect_listener()
    await listener.add_listener("news", lambda *args: heard.put_nowait(args[3]))
    assert database.pool_in_use == 0
    async with database.engine.begin() as connection:
        await connection.execute(text("SELECT pg_notify('news', 'hello')"))
    assert await asyncio.wait_for(heard.get(), 5) == "hello"
    await listener.close()


async def test_the_listener_takes_the_direct_way(pg_dsn: str) -> None:
    """With a direct DSN the listener does not go where the pool goes."""
    async with opened(NOWHERE, direct_dsn=settings(pg_dsn).dsn) as database:
        listener = await database.connect_listener()
        assert await listener.fetchval("SELECT 1") == 1
        await listener.close()
        assert await database.ping() is not None


async def test_a_ping_tells_nothing_while_all_is_well(database: Database) -> None:
    """A database that answers has no problem."""
    assert await database.ping() is None


async def test_a_ping_tells_that_nobody_is_there() -> None:
    """Where no PostgreSQL listens, the ping says so instead of raising."""
    async with opened(NOWHERE) as database:
        problem = await database.ping()
    assert problem is not None
    assert problem.startswith("Connection refused: start PostgreSQL there")


@pytest.mark.rule("TO-X1")
async def test_a_ping_has_a_deadline() -> None:
    """A server that accepts and never answers holds a ping for its timeout and no longer."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        dsn = f"postgresql://u@127.0.0.1:{silent.getsockname()[1]}/orders"
        async with opened(dsn, ping_timeout=0.2, connect_timeout=600) as database, asyncio.timeout(30):
            assert str(await database.ping()).startswith("no answer within 0.2 s: ")
            assert database.pool_in_use == 0


async def test_a_look_at_the_schema_has_a_deadline_and_an_answer(pg_dsn: str, database: Database) -> None:
    """While a migration holds the version's table, and when nobody is there, what is wrong is said in words."""
    async with database.engine.begin() as other, opened(pg_dsn, ping_timeout=0.3) as hasty:
        await other.execute(text("LOCK TABLE alembic_version IN ACCESS EXCLUSIVE MODE"))
        async with asyncio.timeout(3):
            behind = await hasty.schema_behind()
    assert behind is not None
    assert behind.startswith("the schema's version cannot be read: no answer within 0.3 s")
    async with opened("postgresql://h@127.0.0.1:1/d") as nowhere:
        assert "cannot be read: Connection refused" in str(await nowhere.schema_behind())


async def test_a_ping_that_finds_no_free_connection_leaves_the_pool_whole(pg_dsn: str) -> None:
    """Pings at an exhausted pool end at their deadline; afterwards the pool has all its places."""
    async with opened(pg_dsn, ping_timeout=0.1, pool=PoolSettings(max=1, acquire_timeout=5)) as database:
        async with database.engine.connect():
            for _ in range(5):
                assert str(await database.ping()).startswith("no answer within 0.1 s: ")
        assert await database.ping() is None
        assert database.pool_in_use == 0


async def test_closing_the_database_closes_its_connections(pg_dsn: str, database: Database) -> None:
    """When the database is closed PostgreSQL has no session of it any more (SHUT-DB)."""
    async with opened(pg_dsn) as closing:
        await scalar(closing, "SELECT 1")
    await eventually(database, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()", 1)


async def test_a_wrong_password_is_an_error_and_no_hang(pg_dsn: str) -> None:
    """A session that PostgreSQL refuses fails at once, with PostgreSQL's words."""
    async with opened(pg_dsn.replace("/test_", "/missing_")) as database:
        with pytest.raises(asyncpg.InvalidCatalogNameError):
            await database.connect_listener()
        with pytest.raises(DBAPIError, match="does not exist"):
            await scalar(database, "SELECT 1")
