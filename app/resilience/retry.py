from contextlib import suppress
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_random_exponential

from app.resilience.breaker import Breaker
from app.resilience.call import Call
from app.resilience.events import Report, Retried, ignore
from app.resilience.settings import RetrySettings
from app.resilience.verdict import Fault, Verdict

T = TypeVar("T")


class Retry:
    """Repeats idempotent calls through the breaker, after transient errors and within the budget (RE-1, RE-2)."""

    def __init__(self, settings: RetrySettings, breaker: Breaker, report: Report = ignore) -> None:
        self._settings = settings
        self._breaker = breaker
        self._report = report
        self._backoff = wait_random_exponential(
            multiplier=2 * settings.backoff, min=settings.backoff, max=settings.backoff_cap
        )

    async def call(self, call: Call[T]) -> T:
        """Attempt the call until it succeeds, fails for good, or attempts, budget or breaker forbid another attempt.

        Raises the last error that tells what happened at the system: a refusal by the breaker or the bulkhead is
        raised only if it met the first attempt. Its `call_made` speaks for all attempts.
        """
        try:
            return await self._breaker.call_async(call)
        except Fault as fault:
            first = fault
        return await self._repeat(call, first)

    async def _repeat(self, call: Call[T], first: Fault) -> T:
        """Let tenacity go on from the first attempt's fault: calls that need no repetition do not pay for it."""
        last, replayed = first, False

        async def attempt() -> T:
            nonlocal last, replayed
            if not replayed:
                replayed = True
                raise first
            try:
                return await self._breaker.call_async(call)
            except Fault as fault:
                if fault.call_made or fault.verdict is not Verdict.NEUTRAL:
                    fault.call_made |= last.call_made
                    last = fault
                raise

        def is_over(state: RetryCallState) -> bool:
            return state.attempt_number >= self._settings.attempts or state.upcoming_sleep >= call.left()

        retrying = AsyncRetrying(
            retry=retry_if_exception(self._is_worth_repeating),
            wait=self._delay,
            stop=is_over,
            before_sleep=self._announce,
            reraise=True,
        )
        with suppress(Fault):
            return await retrying(attempt)
        raise last

    def _is_worth_repeating(self, error: BaseException) -> bool:
        return (
            isinstance(error, Fault)
            and error.repeatable
            and (error.retry_after or 0.0) <= self._settings.backoff_cap
            and self._breaker.state_name != "open"
        )

    def _delay(self, state: RetryCallState) -> float:
        return max(self._backoff(state), fault_of(state).retry_after or 0.0)

    def _announce(self, state: RetryCallState) -> None:
        self._report(Retried(self._breaker.name, state.attempt_number, state.upcoming_sleep, fault_of(state).kind))


def fault_of(state: RetryCallState) -> Fault:
    fault = state.outcome.exception() if state.outcome else None
    assert isinstance(fault, Fault)
    return fault
