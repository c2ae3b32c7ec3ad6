"""What an attempt does to its row, and how long the row waits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.tasks.backoff import backoff
from app.tasks.settlement import LAST_ERROR_LIMIT, settle
from app.tasks.task import Done, GivenUp, NotMade, NotYet, Sent, Task, TaskStatus
from tests.rows import Rules


def task(attempt: int = 3) -> Task:
    return Task(1, 2, TaskStatus.PENDING, attempt, 5, "{}", "key")


@given(attempt=st.integers(0, 2**31 - 1), announced=st.none() | st.floats(0, 1e308), jitter=st.floats(0, 1))
@pytest.mark.rule("RE-2", "RE-X3")
def test_any_attempt_waits_within_bounds(attempt: int, announced: float | None, jitter: float) -> None:
    """Whatever the attempt and the announcement, the wait is at least the larger of both and at most the cap."""
    delay = backoff(attempt, cap=300, jitter=jitter, announced=announced)
    floor = max(min(2 ** min(attempt, 20), 300 / (1 + jitter)), min(announced or 0, 300))
    assert floor * (1 - 1e-12) <= delay <= 300


@pytest.mark.parametrize("attempt", [1, 5, 20, 2**31 - 1])
def test_rows_that_failed_together_part_ways(attempt: int) -> None:
    """5,000 rows that failed at once spread over a fifth of their wait, at the cap as well."""
    delays = [backoff(attempt, cap=300, jitter=0.2) for _ in range(5000)]
    base = min(2.0**attempt if attempt < 32 else 300, 250)
    quarters = [sum(base * (1 + 0.05 * q) <= d < base * (1 + 0.05 * (q + 1)) for d in delays) for q in range(4)]
    assert all(count > 1000 for count in quarters)


def test_sent_starts_the_attempts_anew() -> None:
    """A task that was taken in stays under lease for its first poll, which is the first of a full set of attempts."""
    s = settle(task(19), Sent("app-1", "effect"), Rules())
    assert (s.status, s.retry_count, s.delay, s.external_id, s.effect) == ("IN_PROGRESS", 1, 30, "app-1", "effect")
    assert s.going_on == Task(1, 2, TaskStatus.IN_PROGRESS, 1, 6, "{}", "key", "app-1")
    assert settle(task(), Done(), Rules()).going_on is None


def test_a_call_that_was_not_made_costs_nothing() -> None:
    """An attempt without a call is given back and the status stays."""
    s = settle(task(3), NotMade("circuit_open: later", 31.5), Rules())
    assert (s.status, s.retry_count, s.delay, s.last_error) == ("PENDING", 2, 31.5, "circuit_open: later")


def test_an_undecided_attempt_counts() -> None:
    """An error or "still pending" counts and waits at least 2^n seconds."""
    s = settle(task(3), NotYet("http_503: down"), Rules())
    assert (s.status, s.retry_count) == ("PENDING", 3)
    assert 8 <= s.delay <= 9.6


def test_retry_after_is_honoured_within_the_cap() -> None:
    """A system that asks for a minute gets it; one that asks for a year gets the cap."""
    assert 60 <= settle(task(1), NotYet("x", after=60), Rules()).delay <= 72
    assert settle(task(1), NotYet("x", after=3e7), Rules()).delay == 300


def test_ends() -> None:
    """Done closes the row, given up fails it and may forget the system's ended operation."""
    assert settle(task(), Done("e"), Rules()).status == "COMPLETED"
    failed = settle(task(), GivenUp("ended: no", "e", ended=True), Rules())
    assert (failed.status, failed.ended, failed.last_error, failed.effect) == ("FAILED", True, "ended: no", "e")


@given(st.text(st.characters(exclude_categories=())))
def test_any_reason_can_be_stored(reason: str) -> None:
    """A reason with NUL or lone surrogates, or of any length, becomes text that PostgreSQL takes."""
    error = settle(task(), NotYet(reason), Rules()).last_error
    assert error is not None
    assert "\x00" not in error
    assert len(error) <= LAST_ERROR_LIMIT
    error.encode("utf-8")
