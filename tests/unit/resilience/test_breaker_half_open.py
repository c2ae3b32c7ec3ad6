import asyncio

import pytest

from tests.unit.resilience.calls import NO, SICK, Clock, ask, half_opened, hold, insurance, refused, state


@pytest.mark.rule("CB-4")
async def test_open_lets_nothing_through_for_thirty_seconds() -> None:
    """Until the last instant before 30 s calls are refused with the time that is left, then a trial passes."""
    clock = Clock()
    policy = insurance(clock)
    await ask(policy, SICK, times=10)
    assert (await refused(policy)).retry_after == 30
    clock.now += 29.75
    refusal = await refused(policy)
    assert (refusal.system, refusal.retry_after, refusal.call_made) == ("insurance", 0.25, False)
    assert state(policy) == "open"
    clock.now += 0.25
    await ask(policy)
    assert state(policy) == "half_open"


@pytest.mark.rule("CB-4")
async def test_three_successes_close_it_with_an_empty_window() -> None:
    """The third success closes, and nine failures after that do not open it again."""
    policy = await half_opened(Clock())
    await ask(policy, times=2)
    assert state(policy) == "half_open"
    await ask(policy)
    assert state(policy) == "closed"
    await ask(policy, SICK, times=9)
    assert state(policy) == "closed"


@pytest.mark.rule("CB-4")
async def test_the_first_failed_trial_opens_it_for_another_thirty_seconds() -> None:
    """Two successes do not excuse a third trial's failure."""
    policy = await half_opened(Clock())
    await ask(policy, times=2)
    await ask(policy, SICK)
    assert state(policy) == "open"
    assert (await refused(policy)).retry_after == 30


@pytest.mark.rule("CB-4")
async def test_with_three_trials_held_all_others_are_refused() -> None:
    """The 97 other callers get a refusal at once, change no state and leave no sample."""
    policy = await half_opened(Clock())
    trials = await hold(policy, 3)
    for _ in range(97):
        assert (await refused(policy)).retry_after == 1.5
    snapshot = policy.snapshot()
    assert (snapshot.state, snapshot.samples, snapshot.permits_in_use) == ("half_open", 0, 3)
    for trial in trials:
        await trial.end()
    assert state(policy) == "closed"


@pytest.mark.rule("CB-4")
async def test_a_settled_trial_frees_no_place_for_a_fourth() -> None:
    """Two successes and one trial in flight use up the three permits."""
    policy = await half_opened(Clock())
    first, second, third = await hold(policy, 3)
    await first.end()
    await second.end()
    await refused(policy)
    await third.end()
    assert state(policy) == "closed"


@pytest.mark.rule("CB-4")
async def test_a_cancelled_trial_gives_its_permit_back() -> None:
    """However many trials are cancelled, three more may follow: half-open never sticks."""
    policy = await half_opened(Clock())
    for _ in range(5):
        trials = await hold(policy, 3)
        for trial in trials:
            trial.task.cancel()
        await asyncio.wait([trial.task for trial in trials])
        assert policy.snapshot().permits_in_use == 0
    await ask(policy, times=3)
    assert state(policy) == "closed"


@pytest.mark.rule("CB-4")
@pytest.mark.parametrize("error", [NO, KeyError("our bug"), asyncio.CancelledError(), KeyboardInterrupt()])
async def test_a_neutral_trial_decides_nothing(error: BaseException) -> None:
    """A 4xx, our own bug or a cancellation proves no recovery and no failure, and gives its permit back."""
    policy = await half_opened(Clock())
    await ask(policy, error, times=10)
    assert state(policy) == "half_open"
    await ask(policy, times=3)
    assert state(policy) == "closed"


@pytest.mark.rule("CB-4")
async def test_late_results_change_nothing() -> None:
    """Of 20 calls in flight while it opens and half-opens, neither successes nor failures count afterwards."""
    clock = Clock()
    policy = insurance(clock)
    late = await hold(policy, 20)
    await ask(policy, SICK, times=10)
    clock.now += 30
    (trial,) = await hold(policy, 1)
    for call in late[:10]:
        await call.end()
    for call in late[10:]:
        await call.end(SICK)
    snapshot = policy.snapshot()
    assert (snapshot.state, snapshot.samples, snapshot.permits_in_use) == ("half_open", 0, 1)
    await trial.end()
    await ask(policy, times=2)
    assert state(policy) == "closed"


@pytest.mark.rule("CB-4")
async def test_a_trial_of_an_earlier_half_open_period_is_late_too() -> None:
    """Its failure does not open the breaker again, and its permit is not handed to the new period."""
    clock = Clock()
    policy = await half_opened(clock)
    old, failing = await hold(policy, 2)
    await failing.end(SICK)
    clock.now += 30
    trials = await hold(policy, 3)
    await old.end(SICK)
    assert (state(policy), policy.snapshot().permits_in_use) == ("half_open", 3)
    for trial in trials:
        await trial.end()
    assert state(policy) == "closed"
