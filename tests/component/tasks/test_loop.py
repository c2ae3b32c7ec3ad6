"""A background loop's own life."""

import asyncio

import pytest
from prometheus_client import REGISTRY

from app.loop import Loop


async def test_rings_do_not_shorten_the_backoff() -> None:
    """A loop that keeps failing is started again less and less often, however often it is told of work."""
    starts = 0

    async def fail(_loop: Loop) -> None:
        nonlocal starts
        starts += 1
        raise ConnectionError("no database")

    loop = Loop("failing", fail, stalled_after=1)
    loop.start()
    for _ in range(100):
        loop.ring()
        await asyncio.sleep(0.01)
    assert 1 < starts <= 4
    await loop.stopped(1)


async def test_stopping_ends_a_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that waits to be started again is stopped at once."""
    monkeypatch.setattr("app.loop.RESTART_FIRST", 60.0)
    monkeypatch.setattr("app.loop.RESTART_CAP", 60.0)

    async def fail(_loop: Loop) -> None:
        raise ConnectionError("no database")

    loop = Loop("failing", fail, stalled_after=1)
    loop.start()
    await asyncio.sleep(0.05)
    async with asyncio.timeout(5):
        await loop.stopped(30)


async def test_a_loop_that_is_cut_has_ended_when_it_is_stopped() -> None:
    """What its body still does after it was cancelled is waited for: it may hold a connection of a pool that closes."""
    closed = False

    async def hold(_loop: Loop) -> None:
        nonlocal closed
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)
            closed = True

    loop = Loop("holding", hold, stalled_after=1)
    loop.start()
    await asyncio.sleep(0.01)
    await loop.stopped(0.01)
    assert closed


async def test_a_loop_that_stands_still_or_fails_is_seen_in_the_metrics() -> None:
    """One that makes no turn counts as stalled until it is stopped; each restart of one that fails is counted."""

    async def stand_still(loop: Loop) -> None:
        await asyncio.Event().wait()

    async def fail(_loop: Loop) -> None:
        raise ConnectionError("no database")

    def shown(metric: str, loop: str) -> float | None:
        return REGISTRY.get_sample_value(metric, {"loop": loop})

    still, failing = Loop("standing still", stand_still, stalled_after=0.1), Loop("restarted", fail, stalled_after=1)
    for loop in (still, failing):
        loop.start()
    await asyncio.sleep(0)
    assert [shown("loop_stalled", "standing still"), shown("loop_restarts_total", "restarted")] == [0, 0]
    await asyncio.sleep(0.5)
    assert shown("loop_stalled", "standing still") == 1
    assert shown("loop_restarts_total", "restarted") == failing.restarts > 0
    for loop in (still, failing):
        await loop.stopped(0.1)
    assert shown("loop_stalled", "standing still") == 0
