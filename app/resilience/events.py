"""What a policy tells whoever measures and logs it; the policy knows neither."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

BreakerState = Literal["closed", "open", "half_open"]
Outcome = Literal["success", "success_after_retry", "exhausted", "not_repeated"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BreakerChanged:
    """The breaker moved; `failure_rate` is that of the window it leaves behind, `isolated` marks an operator's hand."""

    system: str
    from_state: BreakerState
    to_state: BreakerState
    failure_rate: float
    isolated: bool


@dataclass(frozen=True, slots=True)
class BulkheadRejected:
    system: str


@dataclass(frozen=True, slots=True)
class Retried:
    """Attempt number `attempt` failed with an error of this `kind`; the next follows in `delay` seconds."""

    system: str
    attempt: int
    delay: float
    kind: str


@dataclass(frozen=True, slots=True)
class CallEnded:
    """A call is over after so many `attempts`; none if it never came to the system.

    "exhausted" ended in an error that is worth repeating, but no attempt or time was left for it; "not_repeated" in
    one that is not, or in a call that may not be repeated.
    """

    system: str
    attempts: int
    outcome: Outcome


Event = BreakerChanged | BulkheadRejected | Retried | CallEnded
Report = Callable[[Event], None]


def ignore(_: Event) -> None:
    """Report to nobody."""


def harmless(report: Report) -> Report:
    """Report in a way that cannot break the call that is reported on."""

    def tell(event: Event) -> None:
        try:
            report(event)
        except Exception:
            log.exception("the listener failed on %r", event)

    return tell
