"""Sessions that change with every transaction: nothing may be left in one, and nothing may be looked for in one."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from app import db
from app.db import Database, open_database
from app.settings import PgSettings, load_settings
from app.tasks.queue import TaskQueue
from tests.conftest import execute
from tests.pgbouncer.bouncer import SESSIONS, bouncing
from tests.processes import processes
from tests.service import ORDER, service_running

Environ = dict[str, str]

TABLE = "order_confirmation_task"

LOCKS_LEFT = """
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""
OLD = "created_at = now() - interval '2 h', updated_at = now() - interval '1 h'"
ASLEEP = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"


def pg(environ: Environ) -> PgSettings:
    return load_settings(environ).pg


async def value(database: Database, sql: str) -> int:
    async with database.engine.connect() as conn:
        return int(await conn.scalar(text(sql)) or 0)


@pytest.mark.parametrize("max_prepared_statements", [0, 200])
async def test_statements_do_not_depend_on_their_session(pooled: Environ, max_prepared_statements: int) -> None:
    """Clients that share sessions repeat the same statements in them, fail in between, and leave none prepared."""
    sessions, left = set(), set()

    async def ask(database: Database, n: int) -> None:
        async with database.engine.begin() as conn:
            await conn.execute(text("SELECT pg_sleep(0.01)"))
            assert await conn.scalar(text("SELECT CAST(:n AS jsonb)"), {"n": str(n)}) == str(n)
            assert list(await conn.scalars(text("SELECT unnest(CAST(:n AS bigint[]))"), {"n": [n, 1]})) == [n, 1]
            sessions.add(await conn.scalar(text("SELECT pg_backend_pid()")))
            left.add(await conn.scalar(text("SELECT count(*) FROM pg_prepared_statements")))
        with pytest.raises(DBAPIError, match="division by zero"):
            async with database.engine.begin() as conn:
                await conn.execute(text("SELECT 1 / CAST(:n AS int)"), {"n": 0})

    async with open_database(pg(pooled), application_name="test") as database:
        for _ in range(3):
            await asyncio.gather(*(ask(database, n) for n in range(40)))
    assert 1 < len(sessions) <= SESSIONS
    assert left == {0}


async def test_fifty_equal_requests_make_one_order(database: Database, pooled: Environ) -> None:
    """A key's lock goes with its transaction: no session keeps it for whoever comes next."""
    async with service_running(load_settings(pooled), "api") as service:
        for key in ("k-1", "k-2"):
            posts = (service.client.post("/orders", json=ORDER, headers={"Idempotency-Key": key}) for _ in range(50))
            answers = await asyncio.gather(*posts)
            assert {answer.status_code for answer in answers} <= {202, 409}
            assert len({answer.text for answer in answers if answer.status_code == 202}) == 1
        assert await value(database, "SELECT count(*) FROM orders") == 2
        assert await value(database, LOCKS_LEFT) == 0


async def test_replicas_take_turns_at_deleting(database: Database, pooled: Environ) -> None:
    """The lock of a batch of old rows goes with it: two replicas delete all of them, each once."""

    async def total(sweep: AsyncGenerator[int, None]) -> int:
        return sum([deleted async for deleted in sweep])

    async with (
        service_running(load_settings(pooled), "api") as service,
        open_database(pg(pooled), application_name="other") as other,
    ):
        await asyncio.gather(*(service.place() for _ in range(50)))
        execute(database.dsn, f"UPDATE {TABLE} SET status = 'COMPLETED', {OLD}")
        engines = [service.wiring.database.engine, other.engine]
        totals = await asyncio.gather(*(total(TaskQueue(TABLE, e).delete_completed(60, 5)) for e in engines))
        assert sum(totals) == 50
        assert await value(database, LOCKS_LEFT) == 0


@pytest.mark.rule("TO-X1")
async def test_limits_come_from_the_role(pg_dsn: str, pooled: Environ) -> None:
    """What the service cannot say to a session that is not its own, the role that logs in brings along."""
    name = pg_dsn.rpartition("/")[2].partition("?")[0]
    execute(pg_dsn, f"ALTER ROLE CURRENT_USER IN DATABASE {name} SET statement_timeout = '200ms'")
    async with open_database(pg(pooled), application_name="test") as database:
        with pytest.raises(DBAPIError, match="statement timeout"):
            await value(database, "SELECT pg_sleep(30)")
        assert await value(database, "SELECT 1") == 1


@pytest.mark.rule("TO-X1")
async def test_without_them_the_service_ends_its_statements_itself(
    database: Database, pooled: Environ, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A statement above its time is given up here and ended there, through PgBouncer, and so is a cancelled one."""
    monkeypatch.setattr(db, "COMMAND_MARGIN", 0.1)
    impatient = pooled | {
        "ORDERS_PG__STATEMENT_TIMEOUT": "0.2",
        "ORDERS_PG__LOCK_TIMEOUT": "0.1",
        "ORDERS_INVARIANTS__STATEMENT_TIMEOUT": "0.2",
    }
    async with open_database(pg(impatient), application_name="test") as shared:
        with pytest.raises(TimeoutError):
            await value(shared, "SELECT pg_sleep(30)")
        await asleep(database, 0)
    async with open_database(pg(pooled), application_name="test") as shared:
        task = asyncio.create_task(value(shared, "SELECT pg_sleep(30)"))
        await asleep(database, 1)
        task.cancel()
        await asyncio.wait({task})
        await asleep(database, 0)
        assert await value(shared, "SELECT 1") == 1


async def asleep(database: Database, expected: int) -> None:
    """Wait until PostgreSQL executes so many pg_sleep."""
    async with asyncio.timeout(5):
        while await value(database, ASLEEP) != expected:
            await asyncio.sleep(0.02)


@pytest.mark.slow
def test_migrations_go_around(empty_dsn: str, tmp_path: Path) -> None:
    """A session holds their lock: without a way to one they are refused, and the message says what to set."""
    with bouncing(empty_dsn, tmp_path, max_prepared_statements=0) as dsn, processes(dsn, tmp_path) as run:
        run.environ |= {"ORDERS_PG__PGBOUNCER": "true"}
        refused = run.run("migrate", check=False)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "pg.direct_dsn: needed to migrate" in refused.stderr
        run.environ |= {"ORDERS_PG__DIRECT_DSN": empty_dsn}
        assert run.run("migrate").stdout.startswith("applied ")
