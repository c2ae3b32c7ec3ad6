"""The three states of the breaker, each aiobreaker's own class with our way of counting."""

from typing import TYPE_CHECKING, Protocol, TypeVar

from aiobreaker.state import CircuitBreakerBaseState, CircuitClosedState, CircuitHalfOpenState, CircuitOpenState

from app.resilience.errors import CircuitOpen
from app.resilience.verdict import Refused, Verdict, verdict_on
from app.resilience.window import Window

if TYPE_CHECKING:
    from app.resilience.breaker import Breaker

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Attempt(Protocol[T_co]):
    """What the breaker guards; `took` is how many seconds of it the system had."""

    took: float

    async def __call__(self) -> T_co: ...


class Admitting(CircuitBreakerBaseState):  # type: ignore[misc]  # aiobreaker ships no types
    """A state that lets calls through; each settles on the state that admitted it, and is dropped if that is gone."""

    _breaker: "Breaker"
    window: Window

    async def call_async(self, attempt: Attempt[T]) -> T:
        self.before_call(attempt)
        try:
            self._breaker.tell("before_call", attempt)
            result = await attempt()
        except BaseException as error:
            self.settle(attempt, error)
            raise
        self.settle(attempt, None)
        return result

    def settle(self, attempt: Attempt[object], error: BaseException | None) -> None:
        verdict = verdict_on(error)
        if verdict is Verdict.NEUTRAL or self._breaker.state is not self:
            return
        failed = verdict is Verdict.FAILURE
        self.window.add(failed=failed, slow=attempt.took > self._breaker.slow_after)
        if failed:
            self.on_failure(error)
            self._breaker.tell("failure", error)
        else:
            self.on_success()
            self._breaker.tell("success")


class Closed(Admitting, CircuitClosedState):  # type: ignore[misc]
    """Opens on the sample that brings a rate to its limit, whichever way that sample went (CB-3, CB-5)."""

    def __init__(self, breaker: "Breaker", previous: "State | None" = None) -> None:
        super().__init__(breaker, previous)
        self.window = Window(breaker.settings.window)

    def on_failure(self, _error: BaseException | None) -> None:
        self._evaluate()

    def on_success(self) -> None:
        self._evaluate()

    def _evaluate(self) -> None:
        settings, window = self._breaker.settings, self.window
        if len(window) < settings.minimum_calls:
            return
        slow_limit = settings.slow_call_rate
        if window.failure_rate >= settings.failure_rate or (slow_limit is not None and window.slow_rate >= slow_limit):
            self._breaker.open()


class Open(CircuitOpenState):  # type: ignore[misc]
    """Lets nothing through until its time is over; the first call from then on, inclusive, half-opens (CB-4)."""

    _breaker: "Breaker"
    window: Window

    def __init__(self, breaker: "Breaker", previous: "State") -> None:
        super().__init__(breaker, previous)
        self.window = previous.window
        self._half_opens_at = breaker.clock() + breaker.settings.open_seconds

    @property
    def seconds_left(self) -> float:
        return max(0.0, self._half_opens_at - self._breaker.clock())

    def before_call(self, _attempt: Attempt[object]) -> None:
        name, left = self._breaker.name, self.seconds_left
        if self._breaker.isolated:
            raise CircuitOpen(name, "isolated by an operator", retry_after=self._breaker.settings.open_seconds)
        if left > 0:
            raise CircuitOpen(name, f"circuit breaker open for another {left:.1f} s", retry_after=left)


class HalfOpen(Admitting, CircuitHalfOpenState):  # type: ignore[misc]
    """Lets exactly so many trials through: all succeed and it closes, the first to fail opens it again (CB-4)."""

    def __init__(self, breaker: "Breaker", previous: "State") -> None:
        super().__init__(breaker, previous)
        self.window = Window(breaker.settings.half_open_permits)
        self.permits_in_use = 0

    def before_call(self, _attempt: Attempt[object]) -> None:
        if self.permits_in_use + len(self.window) >= self.window.size:
            # by then the trials in flight are answered, or known to be slow
            soon = self._breaker.slow_after
            raise CircuitOpen(self._breaker.name, "circuit breaker half-open, trials in flight", retry_after=soon)
        self.permits_in_use += 1

    def settle(self, attempt: Attempt[object], error: BaseException | None) -> None:
        self.permits_in_use -= 1
        if not isinstance(error, Refused):
            super().settle(attempt, error)

    def on_failure(self, _error: BaseException | None) -> None:
        self._breaker.open()

    def on_success(self) -> None:
        if len(self.window) == self.window.size:
            self._breaker.close()


State = Closed | Open | HalfOpen
