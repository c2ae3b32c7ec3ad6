"""The schema: how it comes to be, and that it agrees with the code."""

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from app.db import MIGRATION_LOCK, Database, migrate, open_database
from app.orders.order import OrderStatus
from app.settings import ConfigError, load_settings
from app.tasks.task import ACTIVE, TaskStatus

ROOT = Path(__file__).parents[2]
REVISIONS = sorted(path.name[:4] for path in (ROOT / "migrations/versions").glob("[0-9]*.py"))
TASK_TABLES = list(load_settings({}).tasks)

MIGRATE = """
import asyncio, json
from app.db import migrate, open_database
from app.settings import load_settings

async def main():
    async with open_database(load_settings().pg, application_name="replica") as database:
        print(json.dumps(await migrate(database)))

asyncio.run(main())
"""


@pytest.fixture
async def empty(empty_dsn: str) -> AsyncIterator[Database]:
    async with open_database(load_settings({"ORDERS_PG__DSN": empty_dsn}).pg, application_name="test") as database:
        yield database


async def rows(database: Database, sql: str, **values: Any) -> list[Any]:
    async with database.engine.connect() as connection:
        return list(await connection.execute(text(sql), values))


async def checked(database: Database, table: str, column: str) -> set[str]:
    """The values that a column's CHECK allows."""
    (found,) = await rows(
        database,
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint "
        "WHERE conrelid = CAST(CAST(:table AS text) AS regclass) AND conname = :name",
        table=table,
        name=f"{table}_{column}_check",
    )
    return set(re.findall(r"'(\w+)'", found[0]))


async def test_the_schema_comes_out_of_nothing_and_only_once(empty: Database) -> None:
    """The first run applies every revision, a second one applies none and changes nothing."""
    behind = await empty.schema_behind()
    assert behind is not None
    assert behind.startswith(f"the schema is at nothing, the code needs {REVISIONS[-1]}")
    assert await migrate(empty) == REVISIONS
    assert await empty.schema_behind() is None
    tables = await rows(
        empty, "SELECT oid, relname FROM pg_class WHERE relnamespace = 'public'::regnamespace ORDER BY 1"
    )
    assert await migrate(empty) == []
    assert tables == await rows(
        empty, "SELECT oid, relname FROM pg_class WHERE relnamespace = 'public'::regnamespace ORDER BY 1"
    )


@pytest.mark.slow
async def test_five_replicas_migrate_at_once(empty_dsn: str, empty: Database) -> None:
    """Of five processes that migrate one empty database at once all succeed, and one applies the revisions."""
    environ = {**os.environ, "ORDERS_PG__DSN": empty_dsn}
    environ.pop("ORDERS_CONFIG", None)
    replicas = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-W", "error", "-c", MIGRATE, cwd=ROOT, env=environ, stdout=asyncio.subprocess.PIPE
        )
        for _ in range(5)
    ]
    outputs = [(await replica.communicate())[0] for replica in replicas]
    assert [replica.returncode for replica in replicas] == [0] * 5
    assert sorted(json.loads(output) for output in outputs) == [[], [], [], [], REVISIONS]
    assert await empty.schema_behind() is None


async def test_a_migration_waits_for_the_one_under_way(empty: Database) -> None:
    """While another session holds the migration lock nothing is applied; when that session dies, it is."""
    holder = await empty.connect_listener()
    await holder.execute("SELECT pg_advisory_lock($1)", MIGRATION_LOCK)
    waiting = asyncio.create_task(migrate(empty))
    await asyncio.sleep(0.5)
    assert not waiting.done()
    assert await empty.schema_behind() is not None
    holder.terminate()
    assert await waiting == REVISIONS


async def test_migrations_go_around_the_pooler(empty_dsn: str) -> None:
    """They use the direct DSN, and refuse to run through PgBouncer, which would lose their lock."""
    nowhere = "postgresql://u@127.0.0.1:1/nowhere"
    around = load_settings(
        {"ORDERS_PG__DSN": nowhere, "ORDERS_PG__PGBOUNCER": "true", "ORDERS_PG__DIRECT_DSN": empty_dsn}
    )
    async with open_database(around.pg, application_name="test") as database:
        assert await migrate(database) == REVISIONS
    through = load_settings({"ORDERS_PG__DSN": nowhere, "ORDERS_PG__PGBOUNCER": "true"})
    async with open_database(through.pg, application_name="test") as database:
        with pytest.raises(ConfigError, match=r"pg\.direct_dsn"):
            await migrate(database)


async def test_a_newer_schema_is_not_behind(database: Database) -> None:
    """A replica of the old version stays ready while a rolling update has already migrated."""
    async with database.engine.begin() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    assert await database.schema_behind() is None


async def test_an_older_release_leaves_a_newer_schema_alone(database: Database) -> None:
    """After a release was taken back, its predecessor's migration has nothing to do, and fails nobody's rollout."""
    async with database.engine.begin() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    assert await migrate(database) == []
    assert await database.schema_behind() is None


async def test_the_database_knows_every_order_status(database: Database) -> None:
    """The orders table accepts exactly the statuses of the code."""
    assert await checked(database, "orders", "status") == set(OrderStatus)


async def test_the_database_knows_every_task_status(database: Database, subtests: pytest.Subtests) -> None:
    """Each task table accepts exactly the statuses of the code."""
    for table in TASK_TABLES:
        with subtests.test(table=table):
            assert await checked(database, table, "status") == set(TaskStatus)


@pytest.mark.rule("RE-5")
@pytest.mark.parametrize("table", TASK_TABLES)
async def test_a_task_table_has_its_columns(database: Database, table: str) -> None:
    """Every task table has the same columns, and one row for each order at most."""
    found = await rows(
        database,
        "SELECT column_name, data_type, is_nullable FROM information_schema.columns WHERE table_name = :table "
        "ORDER BY ordinal_position",
        table=table,
    )
    instant = "timestamp with time zone"
    assert [tuple(row) for row in found] == [
        ("task_id", "bigint", "NO"),
        ("order_id", "bigint", "NO"),
        ("external_id", "text", "YES"),
        ("status", "text", "NO"),
        ("retry_count", "integer", "NO"),
        ("next_attempt_at", instant, "NO"),
        ("last_error", "text", "YES"),
        ("payload", "jsonb", "NO"),
        ("created_at", instant, "NO"),
        ("updated_at", instant, "NO"),
        ("lease_token", "bigint", "NO"),
        ("traceparent", "text", "YES"),
    ]
    insert = (
        f"INSERT INTO {table} (order_id, status, next_attempt_at, payload) VALUES (:order, 'PENDING', now(), '{{}}')"
    )
    async with database.engine.begin() as connection:
        order = await connection.scalar(
            text("INSERT INTO orders (customer_id, items, status) VALUES ('c', '[]', 'ACCEPTED') RETURNING id")
        )
        await connection.execute(text(insert), {"order": order})
    with pytest.raises(IntegrityError, match="order_id"):
        async with database.engine.begin() as connection:
            await connection.execute(text(insert), {"order": order})


@pytest.mark.parametrize("table", TASK_TABLES)
async def test_due_rows_have_an_index_of_their_own(database: Database, table: str) -> None:
    """The index that a claim reads holds the rows of active status and no others; another one the failed rows."""
    found = await rows(
        database,
        "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = :table AND indexdef LIKE '%WHERE%' ORDER BY 2",
        table=table,
    )
    failed, due = sorted(found, key=lambda index: "next_attempt_at" in index.indexdef)
    assert "(next_attempt_at) WHERE" in due.indexdef
    assert set(re.findall(r"'(\w+)'", due.indexdef)) == set(ACTIVE)
    assert (failed.indexname, "(task_id) WHERE (status = 'FAILED'" in failed.indexdef) == (f"ix_{table}_failed", True)
    if table == "order_confirmation_task":
        assert due.indexname == "ix_oct_due"


IMPOSSIBLE = [
    ("orders (customer_id, items, status)", "('', '[]', 'ACCEPTED')"),
    ("orders (customer_id, items, status)", f"('{'c' * 65}', '[]', 'ACCEPTED')"),
    ("orders (customer_id, items, status)", "('c', '[]', 'LOST')"),
    ("orders (customer_id, items, status, version)", "('c', '[]', 'ACCEPTED', 0)"),
    ("payment_task (order_id, status, next_attempt_at, payload)", "(1, 'PENDING', now(), '{}')"),
    ("outbox_event (order_id, sequence, type, data)", "(1, 1, 'order.paid', '{}')"),
]


async def test_the_database_refuses_what_the_code_must_not_write(database: Database, subtests: pytest.Subtests) -> None:
    """A status, a version, a customer or an order that cannot be is refused by the database itself."""
    for table, values in IMPOSSIBLE:
        with subtests.test(table=table, values=values[:40]), pytest.raises(IntegrityError):
            async with database.engine.begin() as connection:
                await connection.execute(text(f"INSERT INTO {table} VALUES {values}"))


async def test_an_order_has_each_event_once(database: Database) -> None:
    """Two events of one order cannot have the same sequence number, and a new event waits to be published."""
    event = "INSERT INTO outbox_event (order_id, sequence, type, data) VALUES (:order, 1, 't', '{}') RETURNING status"
    async with database.engine.begin() as connection:
        order = await connection.scalar(
            text("INSERT INTO orders (customer_id, items, status) VALUES ('c', '[]', 'ACCEPTED') RETURNING id")
        )
        assert await connection.scalar(text(event), {"order": order}) == "PENDING"
    with pytest.raises(IntegrityError, match="sequence"):
        async with database.engine.begin() as connection:
            await connection.execute(text(event), {"order": order})
    assert await checked(database, "outbox_event", "status") == {"PENDING", "PUBLISHED", "PARKED"}
