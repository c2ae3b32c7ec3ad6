import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Generic, TypeVar

from app.resilience.bulkhead import Bulkhead
from app.resilience.errors import CallTimeout
from app.resilience.settings import PolicySettings
from app.resilience.verdict import Verdict

T = TypeVar("T")

BUDGET_MARGIN = 0.1  # TO-3: what the caller keeps to turn the outcome into its own answer

attempt_number: ContextVar[int] = ContextVar("attempt_number")
"""The number of the attempt that runs, from 1; meant to be read inside `fn`."""


class Call(Generic[T]):
    """One call with its budget; awaiting it makes one attempt: a bulkhead slot, then `fn` under a deadline.

    `attempts` is how often `fn` was called, `took` how many seconds it had the last time, queueing excluded.
    """

    def __init__(
        self,
        fn: Callable[[], Awaitable[T]],
        settings: PolicySettings,
        bulkhead: Bulkhead,
        clock: Callable[[], float],
        budget: float | None,
    ) -> None:
        self.attempts = 0
        self.took = 0.0
        self._fn = fn
        self._settings = settings
        self._bulkhead = bulkhead
        self._clock = clock
        seconds = settings.total_timeout if budget is None else min(settings.total_timeout, budget - BUDGET_MARGIN)
        self._ends = clock() + seconds

    def left(self) -> float:
        """Seconds until the budget is spent."""
        return self._ends - self._clock()

    async def __call__(self) -> T:
        return await self._bulkhead.call(self._attempt, within=self.left())

    async def _attempt(self) -> T:
        limit = min(self._settings.attempt_timeout, self.left())
        if limit <= 0:
            raise self._spent()
        self.attempts += 1
        attempt_number.set(self.attempts)
        started = self._clock()
        try:
            async with asyncio.timeout(limit) as deadline:
                return await self._fn()
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise self._overdue(limit) from error
        finally:
            self.took = self._clock() - started

    def _spent(self) -> CallTimeout:
        return CallTimeout(
            self._bulkhead.system,
            "the budget was spent before the call was made",
            limit="budget",
            call_made=False,
            verdict=Verdict.NEUTRAL,
        )

    def _overdue(self, limit: float) -> CallTimeout:
        """Blame the system, unless the budget cut the attempt before its answer would even have been slow.

        A caller in such a hurry learns nothing about the system, and must not open the breaker for the others.
        """
        system = self._bulkhead.system
        if limit == self._settings.attempt_timeout:
            return CallTimeout(system, f"no answer within {limit:.3f} s", limit="attempt")
        verdict = Verdict.NEUTRAL if limit < self._settings.slow_after else Verdict.FAILURE
        return CallTimeout(system, f"no answer within the budget's last {limit:.3f} s", limit="budget", verdict=verdict)
