"""What a claim costs in a table full of finished and future rows, and while an old snapshot keeps dead rows alive."""

import asyncio
import time
from contextlib import suppress
from statistics import median

import asyncpg

from app.db import open_database
from app.settings import load_settings
from app.tasks.queue import TaskQueue
from app.tasks.settlement import settle
from app.tasks.task import Done, NotMade
from benchmarks.rig import Rig, execute
from benchmarks.row import Row, compared

TABLE = "order_confirmation_task"
RULES = load_settings().tasks[TABLE]
DUE, BATCH, CLAIMS, RATE = 1000, 10, 50, 500

# The claim reads neither the order nor the log; without them the millions are there in a minute.
BARE = (
    f"ALTER TABLE {TABLE} DROP CONSTRAINT {TABLE}_order_id_fkey, DROP CONSTRAINT {TABLE}_order_id_key",
    f"ALTER TABLE {TABLE} SET UNLOGGED",
)
FILL = """
INSERT INTO {table} (order_id, status, next_attempt_at, payload)
SELECT n, '{status}', now() + {due} + n * interval '1 us', '{{"key": "k"}}' FROM generate_series(1, {rows}) AS n"""


async def measure(rig: Rig, *, rounds: int, finished: int, held: float) -> list[Row]:
    async with rig.database() as small, rig.database() as crowded:
        await execute(small, *BARE, _rows("PENDING", "-interval '1 h'", DUE), f"VACUUM ANALYZE {TABLE}")
        await execute(
            crowded,
            *BARE,
            _rows("COMPLETED", "-interval '1 day'", finished),
            _rows("PENDING", "interval '1 day'", finished // 5),
            _rows("PENDING", "-interval '1 h'", DUE),
            f"VACUUM ANALYZE {TABLE}",
        )
        pairs = [(await _cost(crowded), await _cost(small)) for _ in range(3 * rounds)]
        peer = f"{DUE:,} due rows alone"
        what = f"among {finished:,} finished and {finished // 5:,} future rows"
        rows = [compared("claim", what, peer, pairs, "ms", more_is_better=False, goal=1 / 1.2)]
        before = await _cost(small)
        after = await _under_a_snapshot(small, held)
        what, peer = f"after {held:.0f} s of load under an open snapshot", "before"
        return [*rows, compared("claim", what, peer, [(after, before)], "ms", more_is_better=False, goal=0.5)]


def _rows(status: str, due: str, rows: int) -> str:
    return FILL.format(table=TABLE, status=status, due=due, rows=rows)


async def _cost(dsn: str) -> float:
    """Milliseconds that a claim takes, the median of many; each is given back."""
    async with open_database(load_settings({"ORDERS_PG__DSN": dsn}).pg, application_name="benchmark") as database:
        queue = TaskQueue(TABLE, database.engine)
        costs = []
        for _ in range(CLAIMS):
            began = time.perf_counter()
            claim = await queue.claim(BATCH, 30.0)
            costs.append(1000 * (time.perf_counter() - began))
            await queue.settle([settle(task, NotMade("a benchmark"), RULES) for task in claim.tasks], _nothing)
        return median(costs)


def _nothing(*_: object) -> None:
    """Settled rows without effects have none to apply."""


async def _under_a_snapshot(dsn: str, seconds: float) -> float:
    """Work off new rows, RATE a second, for so long, while a transaction keeps every dead row from being removed."""
    holder = await asyncpg.connect(dsn)
    await holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    await holder.execute("SELECT count(*) FROM orders")
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while True:
                pause = asyncio.create_task(asyncio.sleep(DUE / RATE))
                await execute(dsn, _rows("PENDING", "interval '0'", DUE))
                await _work_off(dsn)
                await pause
    cost = await _cost(dsn)
    await holder.close()
    return cost


async def _work_off(dsn: str) -> None:
    async with open_database(load_settings({"ORDERS_PG__DSN": dsn}).pg, application_name="benchmark") as database:
        queue = TaskQueue(TABLE, database.engine)
        for _ in range(DUE // 50):
            claim = await queue.claim(50, 30.0)
            await queue.settle([settle(task, Done(), RULES) for task in claim.tasks], _nothing)
