import math
import re
from typing import Any

import pytest
from pydantic import ValidationError

from app.resilience import PolicySettings

REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"connect_timeout": 10.5, "read_timeout": 20, "total_timeout": 40},
        "connect_timeout = 10.5: at most 10.0 s (TO-1)",
    ),
    ({"connect_timeout": 3}, "connect_timeout = 3.0: must be below read_timeout = 3.0 (TO-1)"),
    ({"total_timeout": 3}, "total_timeout = 3.0: must be above connect_timeout and read_timeout (TO-1, TO-X2)"),
    ({"total_timeout": 4.9}, "total_timeout = 4.9: at least connect_timeout + read_timeout + 1 s = 5.0 (TO-1)"),
    ({"read_timeout": 60.5, "total_timeout": 90}, "read_timeout = 60.5: at most 60.0 s"),
    ({"retry": {"attempts": 6}}, "retry.attempts = 6: at most 5 (RE-3)"),
    ({"retry": {"backoff": 0.4}}, "retry.backoff = 0.4: must be below retry.backoff_cap = 0.4"),
    (
        {"retry": {"attempts": 5, "backoff_cap": 0.5}},
        "retry.backoff_cap = 0.5: with retry.attempts = 5 sleeps may add up to 2.0 s",
    ),
    ({"breaker": {"minimum_calls": 51}}, "breaker.minimum_calls = 51: breaker.window = 50 never holds so many (CB-2)"),
    ({"bulkhead": {"wait": 0.11}}, "bulkhead.wait = 0.11: at most 0.1 s (BH-3)"),
]
OUT_OF_RANGE: list[dict[str, Any]] = [
    {"max_concurrent": 0},
    {"connect_timeout": 0},
    {"retry": {"attempts": 0}},
    {"retry": {"backoff": -0.1}},
    {"breaker": {"failure_rate": 0}},
    {"breaker": {"failure_rate": 1.01}},
    {"breaker": {"slow_call_rate": 0}},
    {"breaker": {"open_seconds": 0}},
    {"breaker": {"half_open_permits": 0}},
    {"bulkhead": {"wait": -0.01}},
    {"bulkhead": {"queue": -1}},
    {"read_timout": 2},
    {"retry": {"delay": 1}},
]


@pytest.mark.rule("CB-2", "CB-3", "CB-4", "RE-3", "BH-3")
def test_defaults_are_the_figures_of_the_rules() -> None:
    """Settings without any input carry the rules' numbers."""
    settings = PolicySettings()
    assert settings.retry.attempts == 3
    breaker = settings.breaker
    assert (breaker.window, breaker.minimum_calls, breaker.failure_rate) == (50, 10, 0.5)
    assert (breaker.open_seconds, breaker.half_open_permits, breaker.slow_call_rate) == (30, 3, None)
    assert settings.bulkhead.wait == 0.1


@pytest.mark.rule("TO-1", "TO-X2", "TO-X3", "RE-3", "RE-X3", "ASYNC-2", "BH-3", "CB-2")
@pytest.mark.parametrize(("given", "message"), REFUSED)
def test_a_contradiction_is_refused(given: dict[str, Any], message: str) -> None:
    """The message names the key, its value and the rule."""
    with pytest.raises(ValidationError, match=re.escape(message)):
        PolicySettings(**given)


@pytest.mark.parametrize("given", OUT_OF_RANGE)
def test_a_number_out_of_range_or_an_unknown_key_is_refused(given: dict[str, Any]) -> None:
    """Nothing that makes no sense on its own is accepted."""
    with pytest.raises(ValidationError):
        PolicySettings(**given)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "key",
    ["connect_timeout", "read_timeout", "total_timeout", "retry.backoff", "breaker.failure_rate", "bulkhead.wait"],
)
def test_no_number_is_infinite_or_nan(key: str, number: float) -> None:
    """NaN compares false with every limit and must not slip through one."""
    section, _, name = key.rpartition(".")
    with pytest.raises(ValidationError):
        PolicySettings(**({section: {name: number}} if section else {name: number}))


def test_every_contradiction_is_named_at_once() -> None:
    """An operator need not start the service once per mistake."""
    with pytest.raises(ValidationError, match=r"TO-X3.*TO-X2.*\+ 1 s"):
        PolicySettings(read_timeout=61, total_timeout=6)


@pytest.mark.rule("RE-3")
def test_five_attempts_are_allowed() -> None:
    """The ceiling itself is no contradiction, and fits the default sleeps."""
    assert PolicySettings(retry={"attempts": 5}).retry.attempts == 5


@pytest.mark.rule("TO-1")
@pytest.mark.parametrize(("connect", "read", "total"), [(0.1, 0.2, 1.3), (1.1, 2.2, 4.3), (10, 60, 71)])
def test_the_boundary_of_the_total_is_allowed(connect: float, read: float, total: float) -> None:
    """Binary fractions do not turn an exact sum into a contradiction."""
    settings = PolicySettings(connect_timeout=connect, read_timeout=read, total_timeout=total)
    assert settings.attempt_timeout == connect + read


@pytest.mark.rule("CB-5")
def test_slow_is_half_the_read_timeout() -> None:
    """An answer is slow from half the read timeout on."""
    assert PolicySettings(read_timeout=3).slow_after == 1.5


def test_settings_are_frozen() -> None:
    """A policy's numbers do not change under it."""
    with pytest.raises(ValidationError, match="frozen"):
        PolicySettings().read_timeout = 2.0  # type: ignore[misc]
