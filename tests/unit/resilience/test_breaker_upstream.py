import hashlib
import inspect
import logging
import time
from importlib.metadata import version
from typing import Any

import aiobreaker
import pytest
from aiobreaker import CircuitBreaker, CircuitBreakerListener
from aiobreaker.state import CircuitClosedState, CircuitHalfOpenState, CircuitOpenState

from app.resilience import Policy, PolicySettings, Unavailable
from app.resilience.breaker import STATES, Breaker
from app.resilience.settings import BreakerSettings
from tests.unit.resilience.calls import Clock

SOURCES = {
    "circuitbreaker": "15090eda4b59d89d",
    "listener": "b3fa3d234f99dd04",
    "state": "4fc7052d983da7cd",
}


class Attempt:
    took = 0.0

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    async def __call__(self) -> str:
        if self.error:
            raise self.error
        return "answer"


def state(of: Policy | Breaker) -> str:
    return of.breaker_state if isinstance(of, Policy) else of.state_name


async def fail() -> None:
    raise Unavailable("insurance", "503")


async def answer() -> str:
    return "answer"


async def opened_and_closed_again() -> None:
    """Walk through all three states."""
    clock = Clock()
    policy = Policy("insurance", PolicySettings(), clock)
    for _ in range(10):
        with pytest.raises(Unavailable):
            await policy.call(fail, idempotent=False)
    assert state(policy) == "open"
    clock.now += 30
    await policy.call(answer, idempotent=False)
    assert state(policy) == "half_open"
    await policy.call(answer, idempotent=False)
    await policy.call(answer, idempotent=False)
    assert state(policy) == "closed"


@pytest.mark.rule("CB-X2")
def test_the_breaker_is_the_librarys() -> None:
    """Breaker and states extend aiobreaker's classes, one for each of its states."""
    assert issubclass(Breaker, CircuitBreaker)
    assert [state.value for state in STATES] == [CircuitClosedState, CircuitOpenState, CircuitHalfOpenState]
    assert all(issubclass(ours, theirs.value) for theirs, ours in STATES.items())


@pytest.mark.rule("CB-X2")
def test_what_we_override_is_the_code_we_read() -> None:
    """Another aiobreaker must be read before it is used: its classes are overridden below their public surface."""
    assert version("aiobreaker") == "1.2.0"
    modules = {name: inspect.getsource(getattr(aiobreaker, name)) for name in SOURCES}
    assert {name: hashlib.sha256(source.encode()).hexdigest()[:16] for name, source in modules.items()} == SOURCES


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "UTC", "Pacific/Pago_Pago"])
async def test_the_time_zone_has_no_effect(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same 30 s pass 14 hours east and 11 hours west of UTC."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", zone)
        time.tzset()
        await opened_and_closed_again()
    time.tzset()


async def test_the_wall_clock_is_never_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Moving it by an hour has no effect, since a breaker that asks for it would fail here."""

    class Untouchable:
        def __getattr__(self, name: str) -> Any:
            pytest.fail(f"datetime.{name} was used")

    monkeypatch.setattr("aiobreaker.circuitbreaker.datetime", Untouchable())
    monkeypatch.setattr("aiobreaker.state.datetime", Untouchable())
    monkeypatch.setattr(time, "time", lambda: pytest.fail("time.time was used"))
    await opened_and_closed_again()


async def test_a_listener_that_raises_breaks_no_call(caplog: pytest.LogCaptureFixture) -> None:
    """Calls end as they would without it, transitions are complete, and the log says what happened."""

    class Clumsy(CircuitBreakerListener):  # type: ignore[misc]
        def stumble(self, *_: object) -> None:
            raise ValueError("clumsy")

        before_call = success = failure = state_change = stumble

    breaker = Breaker("insurance", BreakerSettings(minimum_calls=2), slow_after=1.0, clock=Clock())
    breaker.add_listener(Clumsy())
    assert await breaker.call_async(Attempt()) == "answer"
    with pytest.raises(Unavailable):
        await breaker.call_async(Attempt(Unavailable("insurance", "503")))
    assert state(breaker) == "open"
    breaker.reset()
    assert state(breaker) == "closed"
    assert {record.message for record in caplog.records if record.levelno == logging.ERROR} == {
        f"a listener of breaker insurance failed in {what}"
        for what in ("before_call", "success", "failure", "state_change")
    }


async def test_the_librarys_listeners_are_served() -> None:
    """A listener hears of calls, of both their ends, and of transitions, in that order."""
    heard: list[str] = []

    class Attentive(CircuitBreakerListener):  # type: ignore[misc]
        def before_call(self, *_: object) -> None:
            heard.append("before_call")

        def success(self, *_: object) -> None:
            heard.append("success")

        def failure(self, *_: object) -> None:
            heard.append("failure")

        def state_change(self, _: Breaker, old: Any, new: Any) -> None:
            heard.append(f"{old.state.name} to {new.state.name}")

    breaker = Breaker("insurance", BreakerSettings(minimum_calls=2), slow_after=1.0, clock=Clock())
    breaker.add_listener(Attentive())
    await breaker.call_async(Attempt())
    with pytest.raises(Unavailable):
        await breaker.call_async(Attempt(Unavailable("insurance", "503")))
    assert heard == ["before_call", "success", "before_call", "CLOSED to OPEN", "failure"]


async def test_a_listener_may_move_the_breaker() -> None:
    """Listeners are told of a move when it is complete, so that one may isolate on it."""

    class Cautious(CircuitBreakerListener):  # type: ignore[misc]
        def state_change(self, breaker: Breaker, _: Any, new: Any) -> None:
            assert breaker.state is new
            if breaker.state_name == "closed":
                breaker.isolate()

    breaker = Breaker("insurance", BreakerSettings(), slow_after=1.0, clock=Clock())
    breaker.add_listener(Cautious())
    breaker.open()
    breaker.reset()
    assert (breaker.state_name, breaker.isolated) == ("open", True)
