import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from app.resilience.breaker import Breaker
from app.resilience.bulkhead import Bulkhead
from app.resilience.call import Call
from app.resilience.events import BreakerState, CallEnded, Outcome, Report, harmless, ignore
from app.resilience.retry import Retry
from app.resilience.settings import PolicySettings
from app.resilience.states import HalfOpen, Open
from app.resilience.verdict import Fault

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PolicySnapshot:
    """How a policy stands now. While open, the rates are those of the window that opened it.

    `window` is how many samples the current state holds at most; `seconds_to_half_open` is None unless the breaker is
    open and not isolated.
    """

    system: str
    state: BreakerState
    isolated: bool
    window: int
    samples: int
    failure_rate: float
    slow_rate: float
    permits_in_use: int
    in_use: int
    waiting: int
    capacity: int
    seconds_to_half_open: float | None


class Policy:
    """The protection of one external system, around every call to it (WHERE-1, ISO-1).

    From the outside in: total budget, retry, circuit breaker, bulkhead, attempt timeout. `clock` is monotonic, in
    seconds; `report` receives the events of `app.resilience.events` and may raise without harm.
    """

    def __init__(
        self,
        name: str,
        settings: PolicySettings,
        clock: Callable[[], float] = time.monotonic,
        *,
        report: Report = ignore,
    ) -> None:
        self.name = name
        self._settings = settings
        self._clock = clock
        self._report = harmless(report)
        self._bulkhead = Bulkhead(name, settings.max_concurrent, settings.bulkhead, self._report)
        self._breaker = Breaker(
            name, settings.breaker, slow_after=settings.slow_after, clock=clock, report=self._report
        )
        self._retry = Retry(settings.retry, self._breaker, self._report)

    async def call(self, fn: Callable[[], Awaitable[T]], *, idempotent: bool, budget: float | None = None) -> T:
        """Call the system through `fn`, at most once unless `idempotent`.

        `budget` is how many seconds the caller has left: the call takes at most 100 ms less than that, and never more
        than the total timeout (TO-3).

        Raises CircuitOpen or BulkheadFull if the call was not made, CallTimeout if the attempt or the budget ran out,
        else what `fn` raised last.
        """
        call = Call(fn, self._settings, self._bulkhead, self._clock, budget)
        outcome: Outcome = "not_repeated"
        try:
            result = await (self._retry.call(call) if idempotent else self._breaker.call_async(call))
        except Fault as fault:
            if idempotent and fault.repeatable:
                outcome = "exhausted"
            raise
        else:
            outcome = "success" if call.attempts == 1 else "success_after_retry"
            return result
        finally:
            self._report(CallEnded(self.name, call.attempts, outcome))

    @property
    def breaker_state(self) -> BreakerState:
        return self._breaker.state_name

    def isolate(self) -> None:
        """Refuse every call, without a time limit, until `release` or `reset`."""
        self._breaker.isolate()

    def release(self) -> None:
        """End an isolation: closed, with an empty window. Without one nothing changes."""
        self._breaker.release()

    def reset(self) -> None:
        """Close the breaker with an empty window from any state, isolation included."""
        self._breaker.reset()

    def snapshot(self) -> PolicySnapshot:
        breaker, bulkhead = self._breaker, self._bulkhead
        state, window = breaker.state, breaker.state.window
        return PolicySnapshot(
            system=self.name,
            state=breaker.state_name,
            isolated=breaker.isolated,
            window=window.size,
            samples=len(window),
            failure_rate=window.failure_rate,
            slow_rate=window.slow_rate,
            permits_in_use=state.permits_in_use if isinstance(state, HalfOpen) else 0,
            in_use=bulkhead.in_use,
            waiting=bulkhead.waiting,
            capacity=bulkhead.capacity,
            seconds_to_half_open=state.seconds_left if isinstance(state, Open) and not breaker.isolated else None,
        )
