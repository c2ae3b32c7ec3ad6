import asyncio
import math
from collections.abc import Sequence
from typing import Any

import pytest

from app.resilience import (
    Broken,
    BulkheadFull,
    CircuitOpen,
    Policy,
    PolicySettings,
    Refused,
    Unavailable,
)
from app.resilience.call import attempt_number
from app.resilience.events import CallEnded, Event, Retried
from tests.unit.resilience.calls import Clock

QUICK = {"backoff": 0.001, "backoff_cap": 0.004}


class System:
    """Ends one call after the other as told, then answers; counts what it sees."""

    def __init__(self, *ends: BaseException, clock: Clock | None = None, takes: float = 0.0) -> None:
        self.ends = list(ends)
        self.seen = 0
        self.clock = clock or Clock()
        self.takes = takes

    async def answer(self) -> str:
        self.seen += 1
        self.clock.now += self.takes
        if self.ends:
            raise self.ends.pop(0)
        return "answer"


def sber(events: list[Event] | None = None, clock: Clock | None = None, **settings: Any) -> Policy:
    heard: list[Event] = [] if events is None else events
    retry = {**QUICK, **settings.pop("retry", {})}
    return Policy("sber", PolicySettings(retry=retry, **settings), clock or Clock(), report=heard.append)


def sick(count: int) -> list[Unavailable]:
    return [Unavailable("sber", f"503 #{number}", kind="http_503") for number in range(1, count + 1)]


@pytest.mark.rule("RE-1", "RE-2")
async def test_a_transient_error_is_repeated() -> None:
    """Two failures and an answer are an answer."""
    system = System(*sick(2))
    assert await sber().call(system.answer, idempotent=True) == "answer"
    assert system.seen == 3


@pytest.mark.rule("RE-3")
@pytest.mark.parametrize(("settings", "attempts"), [({}, 3), ({"attempts": 5}, 5), ({"attempts": 1}, 1)])
async def test_there_are_so_many_attempts_and_the_last_error_is_raised(settings: dict[str, int], attempts: int) -> None:
    """Three by default; the caller gets the last attempt's own error."""
    system, ends = System(), sick(9)
    system.ends = list(ends)
    with pytest.raises(Unavailable) as caught:
        await sber(retry=settings).call(system.answer, idempotent=True)
    assert (system.seen, caught.value) == (attempts, ends[attempts - 1])


@pytest.mark.rule("RE-1", "RE-X1")
async def test_a_write_without_a_key_is_never_repeated() -> None:
    """One attempt, whatever the error."""
    system = System(*sick(1))
    with pytest.raises(Unavailable):
        await sber().call(system.answer, idempotent=False)
    assert system.seen == 1


@pytest.mark.rule("RE-2", "RE-X2")
@pytest.mark.parametrize(
    "error",
    [
        Refused("sber", "404"),
        Broken("sber", "not JSON"),
        KeyError("our bug"),
        TimeoutError(),
        asyncio.CancelledError(),
        KeyboardInterrupt(),
    ],
)
async def test_what_is_not_transient_is_never_repeated(error: BaseException) -> None:
    """A 4xx, a broken contract, a bug, a cancellation: one attempt."""
    system = System(error)
    with pytest.raises(type(error)) as caught:
        await sber().call(system.answer, idempotent=True)
    assert (system.seen, caught.value) == (1, error)


@pytest.mark.rule("RE-2")
async def test_a_refusal_after_a_transient_error_ends_the_repetition() -> None:
    """The whitelist is asked after every attempt, not only after the first."""
    system = System(*sick(1), Refused("sber", "404"))
    with pytest.raises(Refused):
        await sber().call(system.answer, idempotent=True)
    assert system.seen == 2


@pytest.mark.rule("RE-2", "RE-X3")
async def test_delays_are_exponential_with_jitter() -> None:
    """The n-th sleep lies in [backoff, min(backoff * 2^n, cap)], and no two calls sleep alike."""
    events: list[Event] = []
    policy = sber(events, retry={"attempts": 4}, breaker={"minimum_calls": 50})
    for _ in range(10):
        await policy.call(System(*sick(3)).answer, idempotent=True)
    delays = [[event.delay for event in events if isinstance(event, Retried) and event.attempt == n] for n in (1, 2, 3)]
    for delay, highest in zip(delays, (0.002, 0.004, 0.004), strict=True):
        assert len(set(delay)) == 10
        assert all(0.001 <= seconds <= highest for seconds in delay)
    assert max(delays[1]) > 0.002


@pytest.mark.rule("RE-4", "ASYNC-2", "ASYNC-X2")
async def test_a_long_retry_after_is_left_to_the_task() -> None:
    """A system that wants to be left alone for longer than a sleep may take is not asked again in memory."""
    for announced in (0.005, 120.0, math.inf, math.nan):
        system = System(Unavailable("sber", "429", retry_after=announced))
        with pytest.raises(Unavailable) as caught:
            await sber().call(system.answer, idempotent=True)
        assert system.seen == 1
        assert caught.value.retry_after is announced


@pytest.mark.parametrize(("announced", "least"), [(0.004, 0.004), (-1.0, 0.001), (0.0, 0.001)])
async def test_a_short_retry_after_is_honoured(announced: float, least: float) -> None:
    """The delay lies within [announced, cap]."""
    events: list[Event] = []
    await sber(events).call(System(Unavailable("sber", "429", retry_after=announced)).answer, idempotent=True)
    (delay,) = [event.delay for event in events if isinstance(event, Retried)]
    assert least <= delay <= 0.004


@pytest.mark.rule("RE-3", "TO-3")
@pytest.mark.parametrize(("budget", "seen"), [(None, 3), (60.0, 3), (4.1, 2), (2.1, 1)])
async def test_no_attempt_begins_past_the_budget(budget: float | None, seen: int) -> None:
    """Attempts of 2 s each: 5 s in total hold three, and a caller's smaller budget fewer; none sleeps in vain."""
    clock, events = Clock(), list[Event]()
    system = System(*sick(5), clock=clock, takes=2.0)
    with pytest.raises(Unavailable):
        await sber(events, clock, retry={"attempts": 5}).call(system.answer, idempotent=True, budget=budget)
    assert (system.seen, len([event for event in events if isinstance(event, Retried)])) == (seen, seen - 1)


@pytest.mark.rule("RE-X4")
async def test_every_attempt_is_one_sample() -> None:
    """Three attempts of one call are three samples of the breaker, no more and no less."""
    policy = sber()
    await policy.call(System(*sick(2)).answer, idempotent=True)
    assert (policy.snapshot().samples, policy.snapshot().failure_rate) == (3, 2 / 3)


@pytest.mark.rule("RE-2")
async def test_an_open_breaker_is_not_asked_again() -> None:
    """A refusal by the breaker is final, and costs no sleep."""
    events: list[Event] = []
    policy = sber(events)
    policy.isolate()
    with pytest.raises(CircuitOpen):
        await policy.call(System().answer, idempotent=True)
    assert not [event for event in events if isinstance(event, Retried)]


@pytest.mark.rule("RE-2", "CB-3")
async def test_the_call_that_trips_the_breaker_raises_its_own_error() -> None:
    """It is not repeated against the breaker it has just opened."""
    policy = sber(breaker={"minimum_calls": 2})
    system, ends = System(), sick(2)
    system.ends = list(ends)
    with pytest.raises(Unavailable) as caught:
        await policy.call(system.answer, idempotent=True)
    assert (policy.breaker_state, system.seen, caught.value) == ("open", 2, ends[1])


@pytest.mark.rule("RE-2")
async def test_a_breaker_that_opens_during_the_sleep_does_not_hide_the_error() -> None:
    """The caller learns what happened at the system, and that the call was made."""
    cause = ValueError("the library's own error")
    events: list[Event] = []

    def isolate(event: Event) -> None:
        events.append(event)
        if isinstance(event, Retried):
            policy.isolate()

    async def fn() -> None:
        raise Unavailable("sber", "503") from cause

    policy = Policy("sber", PolicySettings(retry=QUICK), report=isolate)
    with pytest.raises(Unavailable) as caught:
        await policy.call(fn, idempotent=True)
    assert (caught.value.call_made, caught.value.__cause__) == (True, cause)
    assert events[-1] == CallEnded("sber", 1, "exhausted")


async def test_a_full_bulkhead_is_not_waited_for_twice() -> None:
    """A refusal by the bulkhead is final: repeating it would only add to the crowd."""
    policy = sber(max_concurrent=1, bulkhead={"wait": 0})
    free = asyncio.Event()
    holder = asyncio.create_task(policy.call(free.wait, idempotent=True))
    await asyncio.sleep(0)
    with pytest.raises(BulkheadFull):
        await policy.call(System().answer, idempotent=True)
    free.set()
    await holder


@pytest.mark.parametrize(("made", "expected"), [([True, False, False], True), ([False, False, False], False)])
async def test_the_error_speaks_for_all_attempts(made: Sequence[bool], expected: bool) -> None:
    """A call that was made once was made, though later attempts could not even connect."""
    system = System(*(Unavailable("sber", "?", call_made=call_made) for call_made in made))
    with pytest.raises(Unavailable) as caught:
        await sber().call(system.answer, idempotent=True)
    assert caught.value.call_made is expected


async def test_concurrent_calls_count_their_own_attempts() -> None:
    """100 calls that fail twice each take three attempts each, and know the number of the one that runs."""
    seen: dict[int, list[int]] = {number: [] for number in range(100)}

    async def call(number: int) -> None:
        async def fn() -> None:
            seen[number].append(attempt_number.get())
            await asyncio.sleep(0)
            if len(seen[number]) < 3:
                raise Unavailable("sber", "503")

        await policy.call(fn, idempotent=True)

    policy = sber(max_concurrent=100, breaker={"window": 500, "minimum_calls": 500})
    await asyncio.gather(*map(call, seen))
    assert list(seen.values()) == [[1, 2, 3]] * 100


async def test_a_cancelled_sleep_ends_the_call() -> None:
    """A caller that leaves between two attempts causes no further one."""
    asleep = asyncio.Event()

    def report(event: Event) -> None:
        if isinstance(event, Retried):
            asleep.set()

    policy, system = Policy("sber", PolicySettings(), report=report), System(*sick(3))
    task = asyncio.create_task(policy.call(system.answer, idempotent=True))
    await asleep.wait()
    task.cancel()
    await asyncio.wait([task])
    assert (task.cancelled(), system.seen, policy.snapshot().in_use) == (True, 1, 0)


@pytest.mark.rule("OBS-1")
@pytest.mark.parametrize(
    ("ends", "idempotent", "ended"),
    [
        ([], True, CallEnded("sber", 1, "success")),
        ([], False, CallEnded("sber", 1, "success")),
        (sick(1), True, CallEnded("sber", 2, "success_after_retry")),
        (sick(3), True, CallEnded("sber", 3, "exhausted")),
        (sick(1), False, CallEnded("sber", 1, "not_repeated")),
        ([Refused("sber", "404")], True, CallEnded("sber", 1, "not_repeated")),
        ([KeyError("our bug")], True, CallEnded("sber", 1, "not_repeated")),
    ],
)
async def test_every_call_reports_how_it_ended(ends: list[Exception], idempotent: bool, ended: CallEnded) -> None:
    """One event per call, with its attempts and one of four outcomes."""
    events: list[Event] = []
    await asyncio.gather(sber(events).call(System(*ends).answer, idempotent=idempotent), return_exceptions=True)
    assert [event for event in events if isinstance(event, CallEnded)] == [ended]


@pytest.mark.rule("OBS-1")
async def test_every_repetition_is_reported() -> None:
    """The event names the attempt that failed and the kind of its error."""
    events: list[Event] = []
    await sber(events).call(System(*sick(2)).answer, idempotent=True)
    retried = [event for event in events if isinstance(event, Retried)]
    assert [(event.system, event.attempt, event.kind) for event in retried] == [
        ("sber", 1, "http_503"),
        ("sber", 2, "http_503"),
    ]
