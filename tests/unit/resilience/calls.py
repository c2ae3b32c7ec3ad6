"""Calls through a policy whose ends a test decides, on a clock that it moves."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from app.resilience import CircuitOpen, Policy, PolicySettings, Refused, Unavailable

SICK = Unavailable("insurance", "503")
NO = Refused("insurance", "404")


class Clock:
    """Stands still unless it is moved; seconds."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def insurance(clock: Clock, **breaker: Any) -> Policy:
    return Policy("insurance", PolicySettings(max_concurrent=100, breaker=breaker), clock)


def state(policy: Policy) -> str:
    return policy.breaker_state


def ending(error: BaseException | None) -> Callable[[], Awaitable[str]]:
    async def fn() -> str:
        if error:
            raise error
        return "answer"

    return fn


async def ask(policy: Policy, error: BaseException | None = None, times: int = 1) -> None:
    """Make calls one by one that end in `error`, which each of them must raise itself."""
    for _ in range(times):
        if error is None:
            assert await policy.call(ending(None), idempotent=False) == "answer"
        else:
            with pytest.raises(type(error)) as caught:
                await policy.call(ending(error), idempotent=False)
            assert caught.value is error


async def refused(policy: Policy) -> CircuitOpen:
    """Make a call that must not reach the system."""
    with pytest.raises(CircuitOpen) as caught:
        await policy.call(pytest.fail, idempotent=False)
    return caught.value


class Held:
    """A call that stays in flight until it is told how to end."""

    def __init__(self, policy: Policy) -> None:
        self._end: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(policy.call(self._fn, idempotent=False))

    async def _fn(self) -> str:
        return await self._end

    async def end(self, error: Exception | None = None) -> None:
        if error:
            self._end.set_exception(error)
        else:
            self._end.set_result("answer")
        await asyncio.wait([self.task])
        assert self.task.exception() is error


async def hold(policy: Policy, count: int) -> list[Held]:
    held = [Held(policy) for _ in range(count)]
    await asyncio.sleep(0)
    return held


async def half_opened(clock: Clock, **breaker: Any) -> Policy:
    """A policy whose next call is its first trial."""
    policy = insurance(clock, **breaker)
    await ask(policy, SICK, times=10)
    clock.now += 30
    return policy
