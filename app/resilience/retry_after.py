import math
import time
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime


def retry_after(headers: Mapping[str, str]) -> float | None:
    """How many seconds the answer asks to wait: finite and not negative, None if it asks nothing that makes sense.

    A date is compared with the answer's own Date, so that neither side's clock needs to be right (RFC 9110, 10.2.3).
    """
    try:
        seconds = _seconds(headers.get("retry-after", ""), headers.get("date"))
    except (ValueError, OverflowError):
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def _seconds(value: str, date: str | None) -> float:
    try:
        return float(value)
    except ValueError:
        now = _moment(date) if date else time.time()
        return max(0.0, _moment(value) - now)


def _moment(date: str) -> float:
    moment = parsedate_to_datetime(date)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
