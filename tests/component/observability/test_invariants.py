"""Broken data shows in the metrics, without anybody having asked."""

import asyncio
from collections.abc import Iterator

import pytest
from sqlalchemy import text

from app.db import Database
from app.observability import metrics
from app.orders.inspection import Inspection
from app.orders.invariants import INVARIANTS, LOCK
from app.settings import ConfigError, load_settings
from tests.component.observability.exposition import value
from tests.service import Sandbox, service_running, settings_for

OFTEN = {"ORDERS_INVARIANTS__FIRST_AFTER": "0.3", "ORDERS_INVARIANTS__INTERVAL": "0.2"}
BROKEN = "every task names its operation"
BREAK = "UPDATE receipt_creation_task SET payload = payload - 'key'"


@pytest.fixture(autouse=True)
def unseen() -> Iterator[None]:
    """As in a process that has not looked yet."""
    metrics.invariant_violations.clear()
    yield
    metrics.invariant_violations.clear()


def looks(outcome: str) -> float:
    return float(metrics.invariant_checks.labels(outcome)._value.get())


def inspection(database: Database, environ: dict[str, str] | None = None) -> Inspection:
    return Inspection(database.engine, load_settings({"ORDERS_PG__DSN": database.dsn, **(environ or {})}))


async def test_a_broken_row_shows_in_the_metrics(pg_dsn: str, database: Database, sandbox: Sandbox) -> None:
    """All invariants are zero while they hold; a row that lost its key counts under the invariant that it breaks."""
    async with service_running(settings_for(pg_dsn, sandbox.url, OFTEN)) as service, asyncio.timeout(20):
        await service.reach([await service.place()], "COMPLETED")
        while await value(service, "invariant_violations", invariant=BROKEN) is None:
            await asyncio.sleep(0.05)
        for invariant in INVARIANTS:
            assert await value(service, "invariant_violations", invariant=invariant.name) == 0
        async with database.engine.begin() as conn:
            await conn.execute(text(BREAK))
        while await value(service, "invariant_violations", invariant=BROKEN) != 1:
            await asyncio.sleep(0.05)
        assert (await value(service, "invariants_checked_timestamp_seconds") or 0) > 1_700_000_000


async def test_the_first_look_is_not_at_the_start(pg_dsn: str, sandbox: Sandbox) -> None:
    """By default a worker serves for a minute before it looks; until then it claims nothing about the data."""
    before = looks("done")
    async with service_running(settings_for(pg_dsn, sandbox.url)) as service:
        await asyncio.sleep(0.5)
        assert await value(service, "invariant_violations", invariant=BROKEN) is None
        assert service.wiring.inspection.loop.alive
    assert looks("done") == before


async def test_a_replica_that_takes_requests_only_does_not_look(pg_dsn: str, sandbox: Sandbox) -> None:
    """Looking is work, and left to workers."""
    async with service_running(settings_for(pg_dsn, sandbox.url, OFTEN), "api") as service:
        await asyncio.sleep(0.7)
        assert await value(service, "invariant_violations", invariant=BROKEN) is None
        assert not service.wiring.inspection.loop.started


async def test_one_replica_at_a_time_looks(database: Database) -> None:
    """While another holds the lock a replica leaves it alone, and what it said before stands."""
    ours = inspection(database)
    async with database.engine.begin() as other:
        await other.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
        assert await ours._look() == "left_to_another"
    assert await ours._look() == "done"


async def test_a_look_that_takes_too_long_is_given_up(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    """Its own timeout ends the statement: that is an outcome, nothing is claimed, and the session is as before."""
    hasty = inspection(database, {"ORDERS_INVARIANTS__STATEMENT_TIMEOUT": "0.2"})
    async with database.engine.begin() as other:
        await other.execute(text("LOCK TABLE orders IN ACCESS EXCLUSIVE MODE"))
        assert await hasty._look() == "failed"
    assert "due to statement timeout" in caplog.text
    assert metrics.invariant_violations._metrics == {}
    async with database.engine.connect() as conn:
        assert await conn.scalar(text("SHOW statement_timeout")) == "10s"


async def test_failing_looks_are_counted_and_end_nothing(pg_dsn: str, database: Database, sandbox: Sandbox) -> None:
    """Without a table to look at each look fails; the next ones come, and succeed once it is back."""
    async with service_running(settings_for(pg_dsn, sandbox.url, OFTEN), "worker") as service, asyncio.timeout(20):
        async with database.engine.begin() as conn:
            await conn.execute(text("ALTER TABLE booking_task RENAME TO elsewhere"))
        failed = looks("failed")
        while looks("failed") < failed + 2:
            await asyncio.sleep(0.05)
        async with database.engine.begin() as conn:
            await conn.execute(text("ALTER TABLE elsewhere RENAME TO booking_task"))
        done = looks("done")
        while looks("done") < done + 1:
            await asyncio.sleep(0.05)
        assert service.wiring.inspection.loop.restarts == 0


def test_a_timeout_beyond_that_of_every_statement_is_refused() -> None:
    """It could not be kept."""
    with pytest.raises(ConfigError, match=r"invariants.statement_timeout = 11: must be at most pg.statement_timeout"):
        load_settings({"ORDERS_INVARIANTS__STATEMENT_TIMEOUT": "11"})
