"""The poller's loop on a real PostgreSQL, with scripted work."""

import asyncio

import pytest
from sqlalchemy import text

from app.db import Database
from app.tasks.poller import Poller
from app.tasks.queue import Claim, TaskQueue
from app.tasks.task import Done, NotMade, NotYet, Outcome, Sent, Task
from tests.component.tasks.script import TABLE, Script, always, ended, fill, polling, rows, until
from tests.rows import Rules


@pytest.mark.rule("ASYNC-1", "RE-5")
async def test_due_rows_are_worked_on_and_settled(database: Database) -> None:
    """Every due row gets its attempt, at most as many at once as there are slots, and its end with its effect."""
    ids = await fill(database, 30)

    async def act(task: Task) -> Outcome:
        await asyncio.sleep(0.02)
        return Done(task.task_id)

    work = Script(act)
    async with polling(database, work):
        await until(lambda: ended(database))
    assert sorted(work.effects) == ids  # type: ignore[type-var]
    assert sorted(t.task_id for t in work.attempts) == ids
    assert work.most == 4


async def test_claims_no_more_than_it_has_slots_for(database: Database) -> None:
    """Rows that no slot is free for stay unclaimed, free for other replicas."""
    await fill(database, 10)
    gate = asyncio.Event()

    async def act(_task: Task) -> Outcome:
        await gate.wait()
        return Done()

    async with polling(database, Script(act)) as poller:

        async def busy() -> bool:
            return poller.in_flight == 4

        await until(busy)
        await asyncio.sleep(0.5)
        assert sum(r.retry_count > 0 for r in await rows(database)) == 4
        gate.set()
        await until(lambda: ended(database))


@pytest.mark.rule("RE-4", "RE-5")
async def test_exactly_twenty_attempts(database: Database) -> None:
    """A task whose calls never succeed is tried 20 times, not 19 or 21, and then fails once, with its effect."""
    await fill(database, 1)
    work = Script(always(NotYet("http_503: down")))

    async def hurry() -> bool:
        async with database.engine.begin() as conn:
            await conn.execute(
                text(f"UPDATE {TABLE} SET next_attempt_at = now() WHERE next_attempt_at > now() + '1 s'")
            )
        return await ended(database)

    async with polling(database, work, Rules(poll_interval=0.05, lease=1.9)):
        await until(hurry, 20)
    (row,) = await rows(database)
    assert (row.status, row.retry_count, row.last_error) == ("FAILED", 20, "http_503: down")
    assert [t.attempt for t in work.attempts] == list(range(1, 21))
    assert work.effects == [("failed", row.task_id)]


async def test_a_row_whose_workers_die_fails_without_another_call(database: Database) -> None:
    """With 20 attempts that never reported back the row fails once, says so, and is not tried a 21st time."""
    (task_id,) = await fill(database, 1, retry_count=20, lease_token=20)
    work = Script(always(Done()))
    async with polling(database, work):
        await until(lambda: ended(database))
    (row,) = await rows(database)
    assert row.status == "FAILED"
    assert row.last_error == "lost: no report came back from the last of 20 attempts"
    assert (work.attempts, work.effects) == ([], [("failed", task_id)])


async def test_attempts_count_per_phase(database: Database) -> None:
    """A task taken in at its 19th attempt is polled with a full set of attempts, and at once, without a claim."""
    await fill(database, 1, retry_count=18)

    async def act(task: Task) -> Outcome:
        return Sent("app-1") if task.status == "PENDING" else Done()

    work = Script(act)
    async with polling(database, work):
        await until(lambda: ended(database))
    assert [(t.status, t.attempt, t.external_id) for t in work.attempts] == [
        ("PENDING", 19, None),
        ("IN_PROGRESS", 1, "app-1"),
    ]
    assert (await rows(database))[0].lease_token == 3  # claimed, sent, completed


@pytest.mark.rule("CB-6")
async def test_a_call_that_was_not_made_costs_no_attempt(database: Database) -> None:
    """An open breaker defers the row to its reopening and gives the attempt back, however often."""
    await fill(database, 1)
    outcomes: list[Outcome] = [*[NotMade("circuit_open: later", 0.05)] * 25, Done()]

    async def act(_task: Task) -> Outcome:
        return outcomes.pop(0)

    work = Script(act)
    async with polling(database, work):
        await until(lambda: ended(database))
    assert [t.attempt for t in work.attempts] == [1] * 26


@pytest.mark.rule("SHUT-SCHED")
async def test_draining_finishes_what_it_can_and_gives_back_the_rest(database: Database) -> None:
    """At the stop nothing more is claimed, short attempts end, long ones are cut and their rows due now, uncounted."""
    ids = await fill(database, 6)

    async def act(task: Task) -> Outcome:
        await asyncio.sleep(0.2 if task.task_id in ids[:2] else 60)
        return Done()

    work = Script(act)
    async with polling(database, work, slots=4) as poller:

        async def busy() -> bool:
            return poller.in_flight == 4

        await until(busy)
        poller.stop_claiming()
        await poller.drain(1)
    result = await rows(database)
    assert len(work.attempts) == 4
    assert [r.status for r in result] == ["COMPLETED"] * 2 + ["PENDING"] * 4
    assert [r.retry_count for r in result[2:]] == [0] * 4
    assert all(r.due_in <= 0 for r in result[2:])


@pytest.mark.rule("SHUT-SCHED")
async def test_rows_claimed_ahead_are_given_back(database: Database) -> None:
    """While attempts are quick more rows are claimed than have a slot; the stop gives them back, due now, uncounted."""
    await fill(database, 200)

    class Distant(TaskQueue):
        async def claim(self, batch: int, lease: float) -> Claim:
            claimed = await super().claim(batch, lease)
            await asyncio.sleep(0.05)
            return claimed

    async def act(_task: Task) -> Outcome:
        if len(work.attempts) > 100:
            await asyncio.sleep(60)
        return Done()

    work = Script(act)
    poller = Poller(Distant(TABLE, database.engine), work, Rules(), slots=4, stalled_after=2)
    poller.start()

    async def ahead() -> bool:
        leased = [r for r in await rows(database) if r.status == "PENDING" and r.due_in > 0]
        return len(work.attempts) == 104 and len(leased) > 4

    await until(ahead)
    await poller.drain(0.5)
    unfinished = [r for r in await rows(database) if r.status == "PENDING"]
    assert len(unfinished) == 100
    assert {r.retry_count for r in unfinished} == {0}
    assert all(r.due_in <= 0 for r in unfinished)


async def test_slow_attempts_claim_nothing_ahead(database: Database) -> None:
    """After a burst of quick attempts too: what is claimed follows the pace at which slots become free."""
    ids = await fill(database, 40)

    async def act(task: Task) -> Outcome:
        await asyncio.sleep(0 if task.task_id < ids[20] else 0.3)
        return Done()

    async with polling(database, Script(act)) as poller:

        async def slow() -> bool:
            return poller.in_flight == 4 and len([r for r in await rows(database) if r.due_in > 0]) == 4

        await until(slow)


async def test_cancelling_an_attempt_gives_it_back(database: Database) -> None:
    """Whoever cancels an attempt leaves the row due now with its attempts untouched."""
    await fill(database, 1)
    started = asyncio.Event()

    async def act(_task: Task) -> Outcome:
        if started.is_set():
            return Done()
        started.set()
        await asyncio.sleep(60)
        raise AssertionError

    work = Script(act)
    async with polling(database, work) as poller:
        await started.wait()
        for attempt in tuple(poller._attempts):
            attempt.cancel()
        await until(lambda: ended(database))
    assert [t.attempt for t in work.attempts] == [1, 1]


async def test_sleeps_no_longer_than_until_the_next_row(database: Database) -> None:
    """A row that falls due in 200 ms is started then, though the poll comes only every 30 s."""
    await fill(database, 1, next_attempt_at="now() + interval '200 ms'")
    async with polling(database, Script(always(Done())), Rules(poll_interval=30)):
        await until(lambda: ended(database), 3)


async def test_a_ring_starts_new_rows_at_once(database: Database) -> None:
    """A poller that sleeps for 30 s claims at once when it is told of new rows."""
    async with polling(database, Script(always(Done())), Rules(poll_interval=30)) as poller:
        await asyncio.sleep(0.3)
        await fill(database, 1)
        poller.claiming.ring()
        await until(lambda: ended(database), 3)


async def test_an_attempt_never_outlives_its_lease(database: Database) -> None:
    """The budget of an attempt ends before its lease, so no other worker calls for the same row meanwhile."""
    await fill(database, 1)
    budgets = []

    class Hasty(Script):
        async def attempt(self, task: Task, budget: float) -> Outcome:
            budgets.append(budget)
            return Done()

    async with polling(database, Hasty(always(Done())), Rules(lease=10)):
        await until(lambda: ended(database))
    assert 8.5 < budgets[0] <= 9
