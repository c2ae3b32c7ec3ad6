"""What the protection costs a call that succeeds: the policy, and tenacity with aiobreaker wired by hand."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

from aiobreaker import CircuitBreaker
from tenacity import AsyncRetrying, stop_after_attempt, wait_random_exponential

from app.observability.report import report
from app.resilience import Policy
from app.settings import load_settings
from benchmarks.rig import Rig
from benchmarks.row import Row, compared

CALLS = 2000

Call = Callable[[], Awaitable[None]]


async def answer() -> None:
    """A system that answers at once."""


def by_hand() -> Call:
    """The same protection as it is usually put together: retry, breaker, semaphore, timeout."""
    breaker, slots = CircuitBreaker(fail_max=5, timeout_duration=timedelta(seconds=30)), asyncio.Semaphore(8)

    async def attempt() -> None:
        async with slots, asyncio.timeout(3):
            await answer()

    async def call() -> None:
        async with asyncio.timeout(5):
            retrying = AsyncRetrying(
                stop=stop_after_attempt(3), wait=wait_random_exponential(multiplier=0.1), reraise=True
            )
            await retrying(breaker.call_async, attempt)

    return call


async def measure(_rig: Rig, *, rounds: int) -> list[Row]:
    policy = Policy("insurance", load_settings().client["insurance"], report=report)

    async def ours() -> None:
        await policy.call(answer, idempotent=True, budget=20)

    theirs = by_hand()
    pairs = [(await _cost(ours), await _cost(theirs)) for _ in range(3 * rounds)]
    peer = "tenacity + aiobreaker by hand"
    return [compared("policy", "a call, beside its answer", peer, pairs, "µs", more_is_better=False, goal=1.0)]


async def _cost(call: Call) -> float:
    """Microseconds of CPU for one call."""
    began = time.process_time()
    for _ in range(CALLS):
        await call()
    return (time.process_time() - began) / CALLS * 1e6
