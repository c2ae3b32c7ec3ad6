"""Templates: every value that stands in one is escaped, and a name that is missing is an error."""

from datetime import UTC, datetime

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
SHORT = 10
"""Below so many seconds a tenth counts."""


def span(seconds: float | None) -> str:
    """Seconds for a glance: 12 ms, 3.4 s, 12 s, 5 min, 2 h."""
    if seconds is None:
        return "–"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    size, unit = next(known for known in UNITS if seconds >= known[0])
    return f"{seconds / size:.{int(seconds < SHORT)}f} {unit}"


def whole(seconds: float) -> str:
    """As `span`, where what is below a second does not matter."""
    size, unit = next(known for known in UNITS if seconds >= known[0] or known[0] == 1)
    return f"{max(int(seconds), 0) // size} {unit}"


def ago(moment: datetime) -> str:
    return f"{whole((datetime.now(UTC) - moment).total_seconds())} ago"


def moment(time: datetime, form: str = "%H:%M:%S") -> Markup:
    """A time of the day in UTC, with the whole of it for machines and for those who point at it."""
    whole = time.astimezone(UTC).isoformat(timespec="milliseconds")
    return Markup('<time datetime="{0}" title="{0}">{1}</time>').format(whole, time.astimezone(UTC).strftime(form))


templates = Environment(
    loader=PackageLoader("app.api.console"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
templates.filters |= {"span": span, "whole": whole, "ago": ago, "moment": moment}
