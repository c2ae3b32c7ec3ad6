"""A background loop's own life."""

import asyncio

import pytest

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
