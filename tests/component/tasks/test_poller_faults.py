"""What goes wrong around a poller: bugs, effects that cannot be applied, loops that die, a database that is away."""

import asyncio
import logging
from typing import Any

import pytest
from prometheus_client import REGISTRY

from app.db import Database
from app.tasks.poller import Poller
from app.tasks.queue import TaskQueue
from app.tasks.task import Done, GivenUp, Lease, Outcome, Task
from tests.component.tasks.script import TABLE, Script, always, ended, fill, polling, rows, until
from tests.rows import Rules


async def test_a_bug_in_one_row_harms_no_other(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    """An attempt that raises counts as an attempt of its row; the others of its batch run normally."""
    ids = await fill(database, 10)

    async def act(task: Task) -> Outcome:
        if task.task_id == ids[2]:
            raise KeyError("surprise")
        return Done()

    async with polling(database, Script(act)):

        async def others() -> bool:
            return [r.status for r in await rows(database)].count("COMPLETED") == 9

        await until(others)
    bad = (await rows(database))[2]
    assert (bad.status, bad.retry_count, bad.last_error) == ("PENDING", 1, "bug: KeyError in our own code")


async def test_an_effect_that_cannot_be_applied_fails_only_its_row(database: Database) -> None:
    """When one row's effect raises, its batch is settled row by row, and the row fails visibly instead of looping."""
    ids = await fill(database, 4)

    async def act(task: Task) -> Outcome:
        return Done("impossible" if task.task_id == ids[1] else task.task_id)

    work = Script(act)
    async with polling(database, work):
        await until(lambda: ended(database))
    assert [r.status for r in await rows(database)] == ["COMPLETED", "FAILED", "COMPLETED", "COMPLETED"]
    assert "cannot be applied" in (await rows(database))[1].last_error
    assert set(work.effects) == {ids[0], ids[2], ids[3], ("failed", ids[1])}


@pytest.mark.parametrize("where", ["claim", "settle"])
async def test_a_killed_loop_is_started_again(database: Database, where: str) -> None:
    """Killing a loop's task makes it not alive for a moment; it comes back by itself and works on."""
    work = Script(always(Done()))
    async with polling(database, work, Rules(poll_interval=0.2)) as poller:
        loop = poller.claiming if where == "claim" else poller.settling
        for _ in range(3):
            await asyncio.sleep(0.05)
            victim = loop._running
            assert victim is not None
            victim.cancel()
            await asyncio.wait({victim})
            assert not loop.alive
            await fill(database, 2)
            await until(lambda: ended(database))
            assert loop.alive


async def test_survives_a_database_that_fails_for_a_while(database: Database) -> None:
    """Claims that fail again and again do not end the poller; it resumes when they succeed."""
    queue = TaskQueue(TABLE, database.engine)
    claim, failures = queue.claim, 0

    async def failing(batch: int, lease: float) -> Any:
        nonlocal failures
        if failures < 5:
            failures += 1
            raise ConnectionRefusedError("no database")
        return await claim(batch, lease)

    queue.claim = failing  # type: ignore[method-assign]
    await fill(database, 3)
    poller = Poller(queue, Script(always(Done())), Rules(), slots=4, stalled_after=2)
    poller.start()
    await until(lambda: ended(database), 20)
    await poller.drain(0.5)
    assert failures == 5


async def test_a_settle_is_repeated_until_the_database_is_back(database: Database) -> None:
    """A result is not thrown away because the database is gone for a moment: no attempt is burnt, no call repeated."""
    await fill(database, 3)
    work = Script(always(Done("effect")))
    queue = TaskQueue(TABLE, database.engine)
    settle, failures = queue.settle, 0

    async def failing(*args: Any) -> set[Lease]:
        nonlocal failures
        if failures < 8:
            failures += 1
            raise ConnectionResetError("the database went away")
        return await settle(*args)

    queue.settle = failing  # type: ignore[method-assign, assignment]
    poller = Poller(queue, work, Rules(), slots=4, stalled_after=5)
    poller.start()
    await until(lambda: ended(database), 20)
    await poller.drain(0.5)
    assert failures == 8
    assert len(work.attempts) == 3
    assert work.effects == ["effect"] * 3


@pytest.mark.rule("RE-5")
async def test_a_failed_task_is_logged_as_an_error(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    """An operator is told once: one ERROR line with the task, its order and the reason, and a metric to alert on."""
    (task_id,) = await fill(database, 1)
    labels = {"task": TABLE, "outcome": "failed"}
    before = REGISTRY.get_sample_value("tasks_settled_total", labels) or 0
    with caplog.at_level(logging.ERROR):
        async with polling(database, Script(always(GivenUp("refused: no")))):
            await until(lambda: ended(database))
    (row,) = await rows(database)
    assert row.last_error == "refused: no"
    (line,) = [record.msg for record in caplog.records if record.levelno == logging.ERROR]
    assert isinstance(line, dict)
    assert {
        "table": TABLE,
        "task_id": task_id,
        "order_id": row.order_id,
        "reason": "refused: no",
    }.items() <= line.items()
    assert REGISTRY.get_sample_value("tasks_settled_total", labels) == before + 1
