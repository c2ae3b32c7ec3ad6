"""The circuit breaker: aiobreaker's, with a window, permits, verdicts and a monotonic clock.

What aiobreaker 1.2.0 would do instead: count consecutive failures, let every concurrent call through when half-open,
take an excluded error for a success, settle a late result on whatever state is current, lose cancelled calls, raise
"open" in place of the error that trips it, and measure by the wall clock.
"""

import logging
from collections.abc import Callable
from typing import TypeVar, cast

from aiobreaker import CircuitBreaker, CircuitBreakerListener, CircuitBreakerState

from app.resilience.events import BreakerChanged, BreakerState, Report, ignore
from app.resilience.settings import BreakerSettings
from app.resilience.states import Attempt, Closed, HalfOpen, Open, State

T = TypeVar("T")

log = logging.getLogger(__name__)

STATES: dict[CircuitBreakerState, type[State]] = {
    CircuitBreakerState.CLOSED: Closed,
    CircuitBreakerState.OPEN: Open,
    CircuitBreakerState.HALF_OPEN: HalfOpen,
}


class Breaker(CircuitBreaker):  # type: ignore[misc]  # aiobreaker ships no types
    """One system's breaker. `slow_after` seconds make an answer slow; `clock` is monotonic, in seconds."""

    name: str
    state: State

    def __init__(
        self,
        system: str,
        settings: BreakerSettings,
        *,
        slow_after: float,
        clock: Callable[[], float],
        report: Report = ignore,
    ) -> None:
        self.settings = settings
        self.slow_after = slow_after
        self.clock = clock
        self.isolated = False
        super().__init__(name=system, listeners=[Announcer(report)])

    async def call_async(self, attempt: Attempt[T]) -> T:
        """Make the attempt if the state allows it. Raises CircuitOpen if not, else what the attempt raises."""
        result: T = await super().call_async(attempt)
        return result

    @property
    def state_name(self) -> BreakerState:
        return name_of(self.state)

    def isolate(self) -> None:
        """Hold the breaker open, whatever the time, until `release` or `reset`."""
        self.isolated = True
        if self.state_name != "open":
            self.open()

    def release(self) -> None:
        """End an isolation: closed, with an empty window. Without one nothing changes."""
        if self.isolated:
            self.reset()

    def reset(self) -> None:
        """Close with an empty window from any state, isolation included; calls in flight are no samples."""
        self.isolated = False
        self.close()

    def open(self) -> None:
        self._enter(CircuitBreakerState.OPEN)

    def half_open(self) -> None:
        self._enter(CircuitBreakerState.HALF_OPEN)

    def close(self) -> None:
        self._enter(CircuitBreakerState.CLOSED)

    def tell(self, what: str, *details: object) -> None:
        """Call the method `what` of every listener; one that raises is logged and breaks nothing."""
        for listener in self.listeners:
            try:
                getattr(listener, what)(self, *details)
            except Exception:
                log.exception("a listener of breaker %s failed in %s", self.name, what)

    def _enter(self, kind: CircuitBreakerState) -> None:
        left = self.state
        self._state_storage.state = kind
        self._state = self._create_new_state(kind, left)
        if left.state is not kind:
            self.tell("state_change", left, self._state)

    def _create_new_state(self, new_state: CircuitBreakerState, prev_state: State | None = None, **_: object) -> State:
        return STATES[new_state](self, prev_state)  # type: ignore[arg-type]  # only the first, closed, has no previous


class Announcer(CircuitBreakerListener):  # type: ignore[misc]
    """Turns a change of state into an event."""

    def __init__(self, report: Report) -> None:
        self._report = report

    def state_change(self, breaker: Breaker, old: State, new: State) -> None:
        rate = old.window.failure_rate
        self._report(BreakerChanged(breaker.name, name_of(old), name_of(new), rate, breaker.isolated))


def name_of(state: State) -> BreakerState:
    return cast("BreakerState", state.state.name.lower())
