"""The console's history of calls, and the curve that is drawn of it."""

import re

import pytest

from app.api.console.render import span, whole
from app.api.console.sparkline import HEIGHT, sparkline
from app.observability import metrics
from app.observability.history import SAMPLES, History, Sample


class Clock:
    """A clock that is set by hand, in seconds."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def observe(system: str, outcome: str, *seconds: float) -> None:
    for took in seconds:
        metrics.external_call.labels(system, "ask", outcome).observe(took)


def test_a_sample_holds_what_happened_since_the_one_before() -> None:
    """Rates are per second, the latency is the mean of the calls that were made, and another system's do not count."""
    observe("history-a", "success", 9.0)
    clock = Clock()
    history = History(["history-a", "history-b"], clock)
    observe("history-a", "success", 0.1, 0.3)
    observe("history-a", "unavailable", 0.5)
    observe("history-a", "refused", 0.1)
    observe("history-a", "not_made", 0.0, 0.0)
    clock.now += 2
    history.sample()
    clock.now += 2
    history.sample()
    first, second = history.of("history-a")
    assert (first.rate, first.failing) == (2.0, 0.5)
    assert first.latency == pytest.approx(0.25)
    assert second == Sample(0.0, 0.0, None)
    assert history.of("history-b") == [Sample(0.0, 0.0, None)] * 2


def test_it_forgets() -> None:
    """However long the process lives, it keeps so many samples."""
    clock = Clock()
    history = History(["history-c"], clock)
    for _ in range(SAMPLES + 10):
        clock.now += 2
        history.sample()
    assert len(history.of("history-c")) == SAMPLES


def test_a_curve_ends_at_the_right_and_stays_in_its_box() -> None:
    """The peak touches the top, a gap divides the line, and failures are marked where they were."""
    samples = [Sample(1, 0, 0.1), Sample(0, 0, None), Sample(1, 1, 0.2), Sample(1, 0, 0.0)]
    drawn = sparkline(samples)
    assert drawn.peak == 0.2
    assert drawn.curve == f"M{SAMPLES - 4} 14.0H{SAMPLES - 3}M{SAMPLES - 2} 1.0L{SAMPLES - 1} 27.0H{SAMPLES}"
    assert drawn.failures == f"M{SAMPLES - 2} 0V{HEIGHT}"
    assert drawn.area.count("Z") == 2
    numbers = [float(number) for number in re.findall(r"[\d.]+", drawn.curve + drawn.area)]
    assert max(numbers) <= max(SAMPLES, HEIGHT)
    assert sparkline([]).curve == ""


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(None, "–"), (0, "0 ms"), (0.0124, "12 ms"), (3.44, "3.4 s"), (12.4, "12 s"), (90, "2 min"), (7_200, "2 h")],
)
def test_seconds_are_told_for_a_glance(seconds: float | None, told: str) -> None:
    """As exact as one can see, and no more."""
    assert span(seconds) == told


@pytest.mark.parametrize(("seconds", "told"), [(-3, "0 s"), (0.9, "0 s"), (59, "59 s"), (61, "1 min"), (90_000, "1 d")])
def test_ages_are_told_in_whole_units(seconds: float, told: str) -> None:
    """An age is never longer than it is."""
    assert whole(seconds) == told
