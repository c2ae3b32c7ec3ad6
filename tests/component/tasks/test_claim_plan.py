"""What a claim costs in a table full of rows that do not concern it."""

import json
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest
from sqlalchemy import text

from app.db import Database, open_database
from app.tasks.queue import TaskQueue
from tests.conftest import new_database, pg_settings, run

TABLE = "order_confirmation_task"
FINISHED = FUTURE = 1_000_000
DUE = 1000
BATCH = 50

# Statistics are what a test makes of them, and two million rows are there within seconds: the claim neither reads the
# order's id nor the log.
BARE = f"""
ALTER TABLE {TABLE} SET (autovacuum_enabled = off);
ALTER TABLE {TABLE} DROP CONSTRAINT {TABLE}_order_id_fkey, DROP CONSTRAINT {TABLE}_order_id_key;
ALTER TABLE {TABLE} SET UNLOGGED"""

FILL = f"""
INSERT INTO {TABLE} (order_id, status, next_attempt_at, payload)
SELECT n, CASE WHEN n % 2 = 0 THEN 'COMPLETED' ELSE 'PENDING' END,
       CASE WHEN n % 2 = 0 THEN now() - interval '1 day' ELSE now() + interval '1 day' END + n * interval '1 ms', '{{}}'
FROM generate_series(1, {FINISHED + FUTURE}) AS n"""

FALL_DUE = f"UPDATE {TABLE} SET next_attempt_at = now() - interval '1 s' WHERE task_id < {2 * DUE} AND task_id % 2 = 1"
LIE_AHEAD = (
    f"UPDATE {TABLE} SET next_attempt_at = now() + interval '1 day' WHERE task_id < {2 * DUE} AND task_id % 2 = 1"
)


@pytest.fixture
def crowded_dsn(server_dsn: str, migrated: str) -> Iterator[str]:
    """A database whose task table holds a million finished and a million future rows, and no statistics."""
    with new_database(server_dsn, template=migrated) as dsn:
        run(execute(dsn, BARE, FILL))
        yield dsn


async def execute(dsn: str, *statements: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


async def explained(database: Database, mode: str) -> dict[str, Any]:
    """What the claim does, according to EXPLAIN ANALYZE of the very statement; it is rolled back."""
    claim = TaskQueue(TABLE, database.engine)._claim
    async with database.engine.connect() as conn:
        await conn.execute(text(f"SET LOCAL plan_cache_mode = {mode}"))
        explain = text(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {claim.text}")
        found = await conn.scalar(explain, {"batch": BATCH, "lease": 30.0, "since": None})
        await conn.rollback()
    return dict(json.loads(found)[0]["Plan"])


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", []):
        yield from nodes(below)


@pytest.mark.slow
async def test_a_claim_costs_the_same_in_a_crowded_table(crowded_dsn: str, subtests: pytest.Subtests) -> None:
    """Whatever the planner believes, the claim walks ix_oct_due, sorts nothing and touches only the rows it takes."""
    stages = (
        ("never analysed, nothing due", (), 0),
        ("never analysed", (FALL_DUE,), BATCH),
        ("analysed", (f"ANALYZE {TABLE}",), BATCH),
        ("analysed before they fell due", (LIE_AHEAD, f"ANALYZE {TABLE}", FALL_DUE), BATCH),
    )
    async with open_database(pg_settings(crowded_dsn), application_name="test") as database:
        for stage, statements, taken in stages:
            await execute(crowded_dsn, *statements)
            for mode in ("force_custom_plan", "force_generic_plan"):
                with subtests.test(stage=stage, mode=mode):
                    plan = await explained(database, mode)
                    kinds = [node["Node Type"] for node in nodes(plan)]
                    scans = [node for node in nodes(plan) if "Relation Name" in node and "Scan" in node["Node Type"]]
                    assert {scan.get("Index Name") for scan in scans} == {"ix_oct_due", f"{TABLE}_pkey"}
                    assert not [kind for kind in kinds if "Sort" in kind or "Bitmap" in kind or "Seq" in kind]
                    found = [scan["Actual Rows"] * scan["Actual Loops"] for scan in scans]
                    assert found == [taken, taken, 0 if taken else 1]  # what falls due next matters if nothing is due
                    assert [scan.get("Rows Removed by Filter", 0) for scan in scans] == [0, 0, 0]
                    # a row is found, locked, written again, and entered into two indexes, each three pages deep
                    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] <= 20 + 20 * taken
