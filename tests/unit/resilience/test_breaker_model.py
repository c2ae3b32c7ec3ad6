from collections.abc import Coroutine, Generator
from types import coroutine
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from app.resilience import Broken, CircuitOpen, Refused, Unavailable
from app.resilience.breaker import Breaker
from app.resilience.settings import BreakerSettings
from app.resilience.states import HalfOpen

WINDOW, MINIMUM, PERMITS, OPEN_SECONDS = 6, 3, 2, 30
FAILURES = [Unavailable("insurance", "503"), Broken("insurance", "not JSON"), TimeoutError()]
ENDS = [None, None, *FAILURES, Refused("insurance", "404"), KeyError("our bug"), KeyboardInterrupt()]


@coroutine
def parked() -> Generator[None, None, None]:
    yield


class Attempt:
    took = 0.0

    async def __call__(self) -> None:
        await parked()


class Flight:
    """A call that was admitted in the model's period `period`."""

    def __init__(self, run: Coroutine[Any, Any, None], period: int) -> None:
        self.run = run
        self.period = period


class BreakerMachine(RuleBasedStateMachine):
    """The breaker beside a model in plain lists: periods between transitions, and the samples of the present one."""

    flights: Bundle[Flight] = Bundle("flights")

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.breaker = Breaker(
            "insurance",
            BreakerSettings(window=WINDOW, minimum_calls=MINIMUM, half_open_permits=PERMITS),
            slow_after=1.0,
            clock=lambda: self.now,
        )
        self.started: list[Flight] = []
        self.period = -1
        self.isolated = False
        self.enter("closed")

    def enter(self, state: str) -> None:
        self.state, self.entered_at, self.period = state, self.now, self.period + 1
        self.samples: list[bool] = []
        self.in_flight = 0

    def model_admits(self) -> bool:
        if self.state == "open" and not self.isolated and self.now >= self.entered_at + OPEN_SECONDS:
            self.enter("half_open")
        if self.state == "half_open":
            return self.in_flight + len(self.samples) < PERMITS
        return self.state == "closed"

    def model_settles(self, end: BaseException | None) -> None:
        self.in_flight -= 1
        refused = isinstance(end, Refused)
        if end is not None and end not in FAILURES and not (refused and self.state == "closed"):
            return
        self.samples = [*self.samples, end in FAILURES][-WINDOW:]
        if self.state == "half_open":
            if self.samples[-1]:
                self.enter("open")
            elif len(self.samples) == PERMITS:
                self.enter("closed")
        elif len(self.samples) >= MINIMUM and sum(self.samples) * 2 >= len(self.samples):
            self.enter("open")

    @rule(target=flights)
    def start(self) -> Any:
        run = self.breaker.call_async(Attempt())
        if not self.model_admits():
            with pytest.raises(CircuitOpen):
                run.send(None)
            return multiple()
        run.send(None)
        self.in_flight += 1
        flight = Flight(run, self.period)
        self.started.append(flight)
        return flight

    @rule(flight=consumes(flights), end=st.sampled_from(ENDS))
    def end(self, flight: Flight, end: BaseException | None) -> None:
        with pytest.raises(type(end) if end else StopIteration):
            _ = flight.run.throw(end) if end else flight.run.send(None)
        if flight.period == self.period:
            self.model_settles(end)

    @rule(seconds=st.sampled_from([1.0, OPEN_SECONDS - 1.0, float(OPEN_SECONDS)]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def isolate(self) -> None:
        self.breaker.isolate()
        self.isolated = True
        if self.state != "open":
            self.enter("open")

    @rule()
    def release(self) -> None:
        self.breaker.release()
        if self.isolated:
            self.isolated = False
            self.enter("closed")

    @rule()
    def reset(self) -> None:
        self.breaker.reset()
        self.isolated = False
        self.enter("closed")

    @invariant()
    def agrees(self) -> None:
        state = self.breaker.state
        assert self.breaker.state_name == self.state
        if self.state != "open":
            assert len(state.window) == len(self.samples)
            assert state.window.failure_rate == (sum(self.samples) / len(self.samples) if self.samples else 0)
        if isinstance(state, HalfOpen):
            assert state.permits_in_use == self.in_flight

    def teardown(self) -> None:
        for flight in self.started:
            flight.run.close()


BreakerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None, database=None)
TestBreakerAgainstModel = pytest.mark.rule("CB-2", "CB-3", "CB-4")(BreakerMachine.TestCase)
