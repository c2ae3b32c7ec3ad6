"""What one PostgreSQL can do for the service, what limits it there, and what hash partitions would add.

Nothing but the service's own statements runs, from one process: no HTTP, no calls. A figure without waiting for the
disk tells how much of the time is the disk's.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import urlsplit

from sqlalchemy.ext.asyncio import AsyncEngine

from app.db import open_database
from app.orders.create import Placement, create_orders
from app.orders.journey import STEPS
from app.settings import load_settings
from app.tasks.queue import TaskQueue
from app.tasks.settlement import Settlement
from app.tasks.task import Task, TaskStatus
from benchmarks.rig import Rig, execute
from benchmarks.row import Row, compared
from benchmarks.sber_hangs import ITEMS

TABLE = "order_confirmation_task"
LANES, BATCH, TOGETHER = 8, 50, 64
"""Connections at work, rows of a claim, and orders that share a transaction, as in the service."""

PARTITIONS = 8

# A partition is a table: whoever knows its name needs no new statement. What addresses a row of the whole by task_id
# has to look into each, as no unique index without order_id spans them.
PARTITIONED = (
    f"CREATE TABLE whole (LIKE {TABLE} INCLUDING DEFAULTS, PRIMARY KEY (order_id)) PARTITION BY HASH (order_id)",
    *(
        f"CREATE TABLE part_{n} PARTITION OF whole FOR VALUES WITH (MODULUS {PARTITIONS}, REMAINDER {n}) "
        "WITH (fillfactor = 80)"
        for n in range(PARTITIONS)
    ),
    "CREATE INDEX ON whole (task_id)",
    "CREATE INDEX ON whole (next_attempt_at) WHERE status IN ('PENDING', 'IN_PROGRESS')",
)
FREE = f"ALTER TABLE {TABLE} DROP CONSTRAINT {TABLE}_order_id_fkey"
FILL = """
INSERT INTO {table} ({id}order_id, status, next_attempt_at, payload)
SELECT {n}n, 'PENDING', now() - n * interval '1 us', '{{"key": "k"}}' FROM generate_series(1, {rows}) AS n"""

Turn = Callable[[int], Awaitable[int]]
"""What a lane does again and again; returns how many rows it was about."""

SLICES = 12
"""All take turns so often in a round, so that whatever else goes on at the machine meets all of them."""


async def measure(rig: Rig, *, rounds: int, seconds: float) -> list[Row]:
    """Measure each for `seconds` in a round."""
    found: dict[str, list[float]] = {}
    parts = [f"part_{n}" for n in range(PARTITIONS)]
    for _ in range(rounds):
        async with AsyncExitStack() as stack:
            turns = {
                "intake": await stack.enter_async_context(_intake(rig, lasting=True)),
                "intake, no disk": await stack.enter_async_context(_intake(rig, lasting=False)),
                "work": await stack.enter_async_context(_work(rig, seconds, [TABLE], lasting=True)),
                "work, no disk": await stack.enter_async_context(_work(rig, seconds, [TABLE], lasting=False)),
                "as one": await stack.enter_async_context(_work(rig, seconds, ["whole"], lasting=True)),
                "each its own": await stack.enter_async_context(_work(rig, seconds, parts, lasting=True)),
            }
            for _ in range(SLICES):
                for name, turn in turns.items():
                    found.setdefault(name, []).append(await _rate(turn, seconds / SLICES))

    def row(what: str, ours: str, peer: str, theirs: str) -> Row:
        return compared("ceiling", what, peer, list(zip(found[ours], found[theirs], strict=True)), "/s")

    return [
        row("orders taken in", "intake", "without waiting for the disk", "intake, no disk"),
        row("rows claimed and settled", "work", "without waiting for the disk", "work, no disk"),
        row(f"rows through {PARTITIONS} partitions as one", "as one", "one table", "work"),
        row("rows through a partition for each lane", "each its own", "one table", "work"),
    ]


@asynccontextmanager
async def _intake(rig: Rig, *, lasting: bool) -> AsyncIterator[Turn]:
    async with _engine(rig, lasting=lasting) as (_, engine):
        queues = {step.begins: TaskQueue(step.table, engine) for step in STEPS}

        async def turn(_lane: int) -> int:
            return len(await create_orders(engine, queues, [Placement("c-42", ITEMS)] * TOGETHER))

        yield turn


@asynccontextmanager
async def _work(rig: Rig, seconds: float, tables: Sequence[str], *, lasting: bool) -> AsyncIterator[Turn]:
    """Claim and complete, each lane in one of the tables; there are more rows than can be done in `seconds`."""
    async with _engine(rig, lasting=lasting) as (dsn, engine):
        rows = round(seconds * 30_000)
        if tables == [TABLE]:
            await execute(dsn, FREE, FILL.format(table=TABLE, id="", n="", rows=rows), "VACUUM ANALYZE")
        else:
            fill = FILL.format(table="whole", id="task_id, ", n="n, ", rows=rows)
            await execute(dsn, *PARTITIONED, fill, "VACUUM ANALYZE")
        queues = [TaskQueue(table, engine) for table in tables]

        async def turn(lane: int) -> int:
            queue = queues[lane % len(queues)]
            claim = await queue.claim(BATCH, 60)
            return len(await queue.settle([_completed(task) for task in claim.tasks], _no_effects))

        yield turn


@asynccontextmanager
async def _engine(rig: Rig, *, lasting: bool) -> AsyncIterator[tuple[str, AsyncEngine]]:
    async with rig.database() as dsn:
        if not lasting:
            await execute(rig.dsn, f"ALTER DATABASE {urlsplit(dsn).path[1:]} SET synchronous_commit = off")
        async with open_database(load_settings({"ORDERS_PG__DSN": dsn}).pg, application_name="benchmark") as database:
            yield dsn, database.engine


async def _rate(turn: Turn, seconds: float) -> float:
    """Rows a second of all lanes together."""
    began = time.perf_counter()

    async def lane(number: int) -> int:
        done = 0
        while time.perf_counter() - began < seconds:
            done += await turn(number)
        return done

    done = await asyncio.gather(*(lane(number) for number in range(LANES)))
    return sum(done) / (time.perf_counter() - began)


def _completed(task: Task) -> Settlement:
    return Settlement(task, "completed", TaskStatus.COMPLETED, task.attempt)


def _no_effects(*_: object) -> None:
    """These rows move no order."""
