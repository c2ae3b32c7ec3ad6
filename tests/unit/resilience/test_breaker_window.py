import asyncio

import pytest

from app.resilience import Broken, Policy, PolicySettings, Unavailable
from tests.unit.resilience.calls import NO, SICK, Clock, ask, hold, insurance, state


@pytest.mark.rule("CB-2")
async def test_no_verdict_before_ten_calls() -> None:
    """Nine failures out of nine leave it closed, the tenth opens it."""
    policy = insurance(Clock())
    await ask(policy, SICK, times=9)
    assert state(policy) == "closed"
    await ask(policy, SICK)
    assert state(policy) == "open"


@pytest.mark.rule("CB-3")
async def test_it_opens_at_half_of_the_window() -> None:
    """24 failures in 49 calls leave it closed, the 25th in 50 opens it."""
    policy = insurance(Clock())
    await ask(policy, times=25)
    await ask(policy, SICK, times=24)
    assert state(policy) == "closed"
    await ask(policy, SICK)
    assert state(policy) == "open"


@pytest.mark.rule("CB-2")
async def test_old_samples_leave_the_window() -> None:
    """Only the last 50 calls count: earlier successes do not outweigh present failures."""
    policy = insurance(Clock())
    await ask(policy, times=200)
    await ask(policy, SICK, times=24)
    assert state(policy) == "closed"
    await ask(policy, SICK)
    assert state(policy) == "open"


@pytest.mark.rule("CB-2", "CB-5")
async def test_old_failures_leave_the_window() -> None:
    """After 50 quick successes nothing is left of the slow failures before them."""
    clock = Clock()

    async def slow_failure() -> None:
        clock.now += 2
        raise SICK

    policy = insurance(clock)
    await ask(policy, times=20)
    for _ in range(10):
        with pytest.raises(Unavailable):
            await policy.call(slow_failure, idempotent=False)
    assert (policy.snapshot().failure_rate, policy.snapshot().slow_rate) == (1 / 3, 1 / 3)
    await ask(policy, times=50)
    snapshot = policy.snapshot()
    assert (snapshot.samples, snapshot.failure_rate, snapshot.slow_rate) == (50, 0, 0)


@pytest.mark.rule("CB-3")
async def test_payments_open_at_three_of_ten() -> None:
    """With a rate of 30 %, 2 failures in 9 leave it closed and the third in 10 opens it."""
    policy = insurance(Clock(), failure_rate=0.3)
    await ask(policy, times=7)
    await ask(policy, SICK, times=2)
    assert state(policy) == "closed"
    await ask(policy, SICK)
    assert state(policy) == "open"


@pytest.mark.rule("CB-2", "CB-3")
async def test_a_success_can_complete_the_minimum() -> None:
    """The rate is looked at on every sample: nine failures and a success are a rate of 90 %."""
    policy = insurance(Clock())
    await ask(policy, SICK, times=9)
    await ask(policy)
    assert state(policy) == "open"


@pytest.mark.rule("CB-3")
async def test_a_broken_contract_is_a_failure() -> None:
    """Unreadable answers open it as errors do."""
    policy = insurance(Clock())
    await ask(policy, Broken("insurance", "not JSON"), times=10)
    assert state(policy) == "open"


@pytest.mark.rule("CB-3", "RE-X2")
async def test_refusals_of_the_system_keep_it_closed() -> None:
    """50 times 404 is an answering system: a success as long as it is closed."""
    policy = insurance(Clock())
    await ask(policy, NO, times=50)
    snapshot = policy.snapshot()
    assert (snapshot.state, snapshot.samples, snapshot.failure_rate) == ("closed", 50, 0)


@pytest.mark.rule("CB-3")
@pytest.mark.parametrize("error", [KeyError("our bug"), asyncio.CancelledError(), KeyboardInterrupt()])
async def test_what_says_nothing_about_the_system_is_no_sample(error: BaseException) -> None:
    """20 cancelled calls or programming errors leave the window as it was."""
    policy = insurance(Clock())
    await ask(policy, error, times=20)
    assert (state(policy), policy.snapshot().samples) == ("closed", 0)


async def test_clients_that_disconnect_leave_no_samples() -> None:
    """20 tasks cancelled in the middle of their calls change nothing."""
    policy = insurance(Clock())
    calls = await hold(policy, 20)
    for call in calls:
        call.task.cancel()
    await asyncio.wait([call.task for call in calls])
    assert all(call.task.cancelled() for call in calls)
    snapshot = policy.snapshot()
    assert (snapshot.state, snapshot.samples, snapshot.in_use) == ("closed", 0, 0)


@pytest.mark.rule("CB-5")
async def test_slow_answers_open_it_if_asked_to() -> None:
    """With a slow rate of 80 %, eight of ten answers beyond half the read timeout open it."""
    clock = Clock()

    async def slow(seconds: float) -> None:
        async def fn() -> None:
            clock.now += seconds

        await policy.call(fn, idempotent=False)

    policy = insurance(clock, slow_call_rate=0.8)
    for _ in range(3):
        await slow(1.5)
    for _ in range(11):
        await slow(1.625)
    assert (state(policy), policy.snapshot().slow_rate) == ("closed", 11 / 14)
    await slow(1.625)
    assert state(policy) == "open"

    policy = insurance(clock)
    for _ in range(50):
        await slow(1.625)
    assert state(policy) == "closed"


@pytest.mark.rule("CB-5")
async def test_own_queueing_is_not_slowness() -> None:
    """A call that waited for its slot, and then was answered quickly, is not slow."""
    clock = Clock()
    settings = PolicySettings(max_concurrent=1, breaker={"slow_call_rate": 1.0, "minimum_calls": 1, "window": 1})
    policy = Policy("insurance", settings, clock)
    first, second, third = await hold(policy, 3)
    assert policy.snapshot().waiting == 2
    for call in (first, second):
        clock.now += 1
        await call.end()
    await third.end()
    assert state(policy) == "closed"
