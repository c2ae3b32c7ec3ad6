"""The numbers of one system's policy, and which of them contradict each other."""

from collections.abc import Iterator
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(gt=0, le=1)]

CONNECT_CEILING = 10.0  # TO-1
READ_CEILING = 60.0  # TO-X3
TOTAL_RESERVE = 1.0  # TO-1: room beside one whole attempt, for queueing and a repetition
ATTEMPTS_CEILING = 5  # RE-3
SLEEP_CEILING = 2.0  # ASYNC-2
WAIT_CEILING = 0.1  # BH-3


class Numbers(BaseModel):
    """Settings that refuse to be built while any of their `contradictions` stands."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def contradictions(self) -> Iterator[str]:
        """Yield one message per contradiction: the key, its value and the rule."""
        yield from ()

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> Self:
        if found := "; ".join(self.contradictions()):
            raise ValueError(found)
        return self


class RetrySettings(Numbers):
    """Repetition in memory: the n-th sleep is random in [backoff, min(backoff * 2^n, backoff_cap)] seconds (RE-2).

    A system that announces a Retry-After above `backoff_cap` is not asked again in memory.
    """

    attempts: Count = 3
    backoff: Seconds = 0.1
    backoff_cap: Seconds = 0.4

    def contradictions(self) -> Iterator[str]:
        attempts, backoff, cap = self.attempts, self.backoff, self.backoff_cap
        if attempts > ATTEMPTS_CEILING:
            yield f"retry.attempts = {attempts}: at most {ATTEMPTS_CEILING} (RE-3)"
        if backoff >= cap:
            yield f"retry.backoff = {backoff}: must be below retry.backoff_cap = {cap}, else delays are fixed (RE-X3)"
        asleep = round((attempts - 1) * cap, 6)
        if asleep >= SLEEP_CEILING:
            yield (
                f"retry.backoff_cap = {cap}: with retry.attempts = {attempts} sleeps may add up to {asleep} s, "
                f"must stay below {SLEEP_CEILING} s (ASYNC-2)"
            )


class BreakerSettings(Numbers):
    """When the breaker opens, for how long, and how it is tried again (CB-2 to CB-5)."""

    window: Count = 50
    minimum_calls: Count = 10
    failure_rate: Share = 0.5
    slow_call_rate: Share | None = None
    open_seconds: Seconds = 30.0
    half_open_permits: Count = 3

    def contradictions(self) -> Iterator[str]:
        minimum, window = self.minimum_calls, self.window
        if minimum > window:
            yield f"breaker.minimum_calls = {minimum}: breaker.window = {window} never holds so many (CB-2)"


class BulkheadSettings(Numbers):
    """How many seconds a free slot is waited for, and by how many callers at once (BH-3)."""

    wait: Annotated[float, Field(ge=0)] = 0.1
    queue: Annotated[int, Field(ge=0)] = 100

    def contradictions(self) -> Iterator[str]:
        if self.wait > WAIT_CEILING:
            yield f"bulkhead.wait = {self.wait}: at most {WAIT_CEILING} s (BH-3)"


class PolicySettings(Numbers):
    """The policy part of a system's section `client.<system>`; every duration is in seconds."""

    max_concurrent: Count = 8
    connect_timeout: Seconds = 1.0
    read_timeout: Seconds = 3.0
    total_timeout: Seconds = 5.0
    retry: RetrySettings = RetrySettings()
    breaker: BreakerSettings = BreakerSettings()
    bulkhead: BulkheadSettings = BulkheadSettings()

    @property
    def attempt_timeout(self) -> float:
        """Seconds one attempt may take: to connect and to read, however the bytes trickle in (TO-X1)."""
        return self.connect_timeout + self.read_timeout

    @property
    def slow_after(self) -> float:
        """Seconds after which an answer counts as slow (CB-5)."""
        return self.read_timeout / 2

    def contradictions(self) -> Iterator[str]:
        connect, read, total = self.connect_timeout, self.read_timeout, self.total_timeout
        if connect > CONNECT_CEILING:
            yield f"connect_timeout = {connect}: at most {CONNECT_CEILING} s (TO-1)"
        if read > READ_CEILING:
            yield f"read_timeout = {read}: at most {READ_CEILING} s, what takes longer belongs in a task (TO-X3)"
        if connect >= read:
            yield f"connect_timeout = {connect}: must be below read_timeout = {read} (TO-1)"
        if total <= max(connect, read):
            yield f"total_timeout = {total}: must be above connect_timeout and read_timeout (TO-1, TO-X2)"
        least = round(connect + read + TOTAL_RESERVE, 6)
        if total < least:
            yield f"total_timeout = {total}: at least connect_timeout + read_timeout + 1 s = {least} (TO-1)"
