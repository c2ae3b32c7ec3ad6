"""What the policy itself raises when a call was not made or took too long."""

from typing import Literal

from app.resilience.verdict import Fault, Verdict

Limit = Literal["attempt", "budget"]


class CircuitOpen(Fault):
    """The breaker let no call through; `retry_after` is in how many seconds it is worth asking again."""

    kind = "circuit_open"
    call_made = False


class BulkheadFull(Fault):
    """As many calls as the system may have at once are in flight already (BH-3)."""

    kind = "bulkhead_full"
    call_made = False


class CallTimeout(Fault):
    """Time ran out: the attempt's, which may be repeated, or the budget of the whole call."""

    def __init__(
        self,
        system: str,
        message: str,
        *,
        limit: Limit = "attempt",
        call_made: bool = True,
        verdict: Verdict = Verdict.FAILURE,
    ) -> None:
        super().__init__(system, message, kind=f"{limit}_timeout", call_made=call_made)
        self.limit = limit
        self.verdict = verdict
        self.repeatable = limit == "attempt"
