import asyncio
import pickle

import pytest

from app.resilience import Broken, BulkheadFull, CallTimeout, CircuitOpen, Fault, Refused, Unavailable
from app.resilience.verdict import Verdict, verdict_on

TABLE: list[tuple[BaseException | None, Verdict, bool]] = [
    (None, Verdict.SUCCESS, False),
    (Unavailable("insurance", "no answer"), Verdict.FAILURE, True),
    (Broken("insurance", "not JSON"), Verdict.FAILURE, False),
    (Refused("insurance", "no such order"), Verdict.SUCCESS, False),
    (CircuitOpen("insurance", "open"), Verdict.NEUTRAL, False),
    (BulkheadFull("insurance", "full"), Verdict.NEUTRAL, False),
    (CallTimeout("insurance", "late"), Verdict.FAILURE, True),
    (CallTimeout("insurance", "late", limit="budget"), Verdict.FAILURE, False),
    (CallTimeout("insurance", "late", limit="budget", verdict=Verdict.NEUTRAL), Verdict.NEUTRAL, False),
    (TimeoutError(), Verdict.FAILURE, False),
    (ConnectionResetError(), Verdict.FAILURE, False),
    (asyncio.CancelledError(), Verdict.NEUTRAL, False),
    (KeyboardInterrupt(), Verdict.NEUTRAL, False),
    (KeyError("our bug"), Verdict.NEUTRAL, False),
]


@pytest.mark.rule("RE-2", "RE-X2", "CB-3")
@pytest.mark.parametrize(("error", "verdict", "repeatable"), TABLE, ids=lambda value: repr(value)[:40])
def test_every_end_of_a_call_has_its_verdict(error: BaseException | None, verdict: Verdict, repeatable: bool) -> None:
    """Only transient errors may be repeated, and only the system's own failures count against it."""
    assert verdict_on(error) is verdict
    assert (isinstance(error, Fault) and error.repeatable) is repeatable


@pytest.mark.parametrize("kind", [Unavailable, Broken, Refused, CircuitOpen, BulkheadFull, CallTimeout])
def test_a_fault_is_built_from_system_and_message(kind: type[Fault]) -> None:
    """Everything else about a fault has a default, and the fault survives pickling."""
    fault = pickle.loads(pickle.dumps(kind("insurance", "why")))
    assert (type(fault), fault.system, str(fault)) == (kind, "insurance", "insurance: why")
    assert fault.kind
    assert fault.retry_after is None


def test_a_fault_tells_whether_the_call_was_made() -> None:
    """A refusal by the policy is no call; a failure is one unless it says otherwise."""
    assert not CircuitOpen("sber", "open").call_made
    assert not BulkheadFull("sber", "full").call_made
    assert Unavailable("sber", "503", kind="http_503", retry_after=7).call_made
    assert not Unavailable("sber", "refused", kind="connect", call_made=False).call_made


def test_keywords_stay_with_their_fault() -> None:
    """What one fault carries does not leak into the next of its class."""
    fault = Unavailable("sber", "503", kind="http_503", call_made=False, retry_after=7)
    assert (fault.kind, fault.call_made, fault.retry_after) == ("http_503", False, 7)
    other = Unavailable("sber", "?")
    assert (other.kind, other.call_made, other.retry_after) == ("unavailable", True, None)
