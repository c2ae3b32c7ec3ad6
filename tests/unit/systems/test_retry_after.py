import math
import time
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.resilience.retry_after import retry_after

NOON = "Mon, 02 Nov 2026 12:00:00 GMT"


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0),
        ("7", 7),
        ("1.5", 1.5),
        (" 7 ", 7),
        ("-1", None),
        ("1e309", None),
        ("9" * 5_000, None),
        ("nan", None),
        ("", None),
        ("soon", None),
        ("7, 8", None),
        ("Mon, 02 Nov 2026 12:02:00 GMT", 120),
        ("Mon, 02 Nov 2026 14:02:00 +0200", 120),
        ("Mon, 02 Nov 2026 11:00:00 GMT", 0),
        ("Mon, 02 Nov 2026 12:02:00 -0000", 120),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 251_596_152_000 - 120 - 1),
        ("Mon, 99 Nov 2026 12:02:00 GMT", None),
        ("Mon, 02 Nov 99999999999999999999 12:02:00 GMT", None),
    ],
)
def test_what_is_announced(value: str, seconds: float | None) -> None:
    """Seconds or a date are read; what is negative, endless or no number at all says nothing."""
    found = retry_after({"retry-after": value, "date": NOON})
    assert found == seconds or (seconds is not None and found == pytest.approx(seconds, rel=1e-4))


def test_nothing_is_announced() -> None:
    """Without the header there is nothing to honour."""
    assert retry_after({}) is None


def test_a_date_is_measured_by_the_peers_clock_or_else_by_ours() -> None:
    """Our clock being an hour off changes nothing when the answer is dated."""
    assert (
        retry_after({"retry-after": formatdate(1_000_060, usegmt=True), "date": formatdate(1_000_000, usegmt=True)})
        == 60
    )
    found = retry_after({"retry-after": formatdate(time.time() + 60, usegmt=True)})
    assert found is not None
    assert 55 < found <= 61
    assert retry_after({"retry-after": NOON, "date": "never"}) is None


@given(st.text(), st.one_of(st.none(), st.text()))
def test_no_header_can_do_harm(value: str, date: str | None) -> None:
    """Whatever a peer sends, the answer is None or finite and not negative, and never an exception."""
    found = retry_after({"retry-after": value} | ({} if date is None else {"date": date}))
    assert found is None or (math.isfinite(found) and found >= 0)
