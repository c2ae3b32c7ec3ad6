"""What the end of a call says about the system that was called."""

from enum import StrEnum


class Verdict(StrEnum):
    FAILURE = "failure"
    SUCCESS = "success"
    NEUTRAL = "neutral"


class Fault(Exception):
    """A call to `system` that brought no usable answer.

    `kind` is one machine word for logs and metrics ("timeout", "connect", "http_503"), `call_made` is False when the
    system cannot have seen the call, `retry_after` is how many seconds the system asked to be left alone.
    """

    verdict: Verdict = Verdict.NEUTRAL
    repeatable: bool = False
    kind: str = "fault"
    call_made: bool = True

    def __init__(
        self,
        system: str,
        message: str,
        *,
        kind: str | None = None,
        call_made: bool | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(system, message)
        self.system = system
        self.message = message
        self.retry_after = retry_after
        if kind is not None:
            self.kind = kind
        if call_made is not None:
            self.call_made = call_made

    def __str__(self) -> str:
        return f"{self.system}: {self.message}"


class Unavailable(Fault):
    """A transient failure: timeout, connection error, 408, 429, 5xx. May be repeated if the call is idempotent."""

    verdict = Verdict.FAILURE
    repeatable = True
    kind = "unavailable"


class Broken(Fault):
    """The system broke its contract (an unreadable answer): a failure that repeating does not mend."""

    verdict = Verdict.FAILURE
    kind = "broken"


class Refused(Fault):
    """The system is well and said no (4xx). Never repeated (RE-X2); it proves no recovery, so half-open ignores it."""

    verdict = Verdict.SUCCESS
    kind = "refused"


def verdict_on(error: BaseException | None) -> Verdict:
    """Judge a call by what it raised, None meaning that it returned.

    A bare timeout or connection error slipped past the adapter, but still is the system's failure. Everything else,
    cancellation included, is ours and says nothing about the system.
    """
    if error is None:
        return Verdict.SUCCESS
    if isinstance(error, Fault):
        return error.verdict
    return Verdict.FAILURE if isinstance(error, TimeoutError | ConnectionError) else Verdict.NEUTRAL
