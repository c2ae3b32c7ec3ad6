"""What the figures of the queues cost in tables full of rows that do not concern them."""

import json
from collections.abc import Iterator

import pytest
from sqlalchemy import TextClause, text

from app.db import open_database
from app.outbox import store
from app.tasks.queue import TaskQueue
from tests.conftest import execute, new_database, pg_settings

TABLE = "order_confirmation_task"
ROWS = 1_000_000
MOST = 10_000
PAGES_OF_ONE_LOOK = 60
"""For an index with few or no entries that count, however many rows its table has."""

FILL_TASKS = f"""
ALTER TABLE {TABLE} DROP CONSTRAINT {TABLE}_order_id_fkey, DROP CONSTRAINT {TABLE}_order_id_key;
ALTER TABLE {TABLE} SET UNLOGGED;
INSERT INTO {TABLE} (order_id, status, next_attempt_at, payload)
SELECT n, CASE WHEN n % 2 = 0 THEN 'COMPLETED' ELSE 'PENDING' END,
       CASE WHEN n % 2 = 0 THEN now() - interval '1 day' ELSE now() + interval '1 day' END, '{{}}'
FROM generate_series(1, {ROWS}) AS n;
ANALYZE {TABLE}"""

FILL_EVENTS = f"""
DO $$ DECLARE name text; BEGIN
  FOR name IN SELECT conname FROM pg_constraint WHERE conrelid = 'outbox_event'::regclass AND contype = 'f' LOOP
    EXECUTE 'ALTER TABLE outbox_event DROP CONSTRAINT ' || name;
  END LOOP; END $$;
ALTER TABLE outbox_event SET UNLOGGED;
INSERT INTO outbox_event (order_id, sequence, type, data, status, published_at)
SELECT n, 1, 'order.accepted', '{{}}', 'PUBLISHED', now() FROM generate_series(1, {ROWS}) AS n;
ANALYZE outbox_event"""


@pytest.fixture(params=["empty", "crowded"])
def filled_dsn(request: pytest.FixtureRequest, server_dsn: str, migrated: str) -> Iterator[str]:
    with new_database(server_dsn, template=migrated) as dsn:
        if request.param == "crowded":
            execute(dsn, FILL_TASKS)
            execute(dsn, FILL_EVENTS)
        yield dsn


@pytest.mark.slow
@pytest.mark.release
async def test_figures_cost_the_same_at_a_million_rows(filled_dsn: str) -> None:
    """A million finished, future and published rows add no page to the few that are read for a scrape."""
    async with open_database(pg_settings(filled_dsn), application_name="test") as database:
        for statement in (TaskQueue(TABLE, database.engine)._figures, store._FIGURES):
            async with database.engine.connect() as conn:
                await conn.execute(explain(statement), {"most": MOST})  # the first look also reads the catalogue
                plan = (await conn.scalar(explain(statement), {"most": MOST})) or "[]"
            (found,) = json.loads(plan)
            assert found["Plan"]["Shared Hit Blocks"] + found["Plan"]["Shared Read Blocks"] <= PAGES_OF_ONE_LOOK


def explain(statement: TextClause) -> TextClause:
    return text(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement.text}")
