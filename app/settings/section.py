"""What every settings section has in common."""

from typing import Annotated

from pydantic import Field

from app.resilience.settings import Numbers

Seconds = Annotated[float, Field(gt=0, le=31_536_000)]
"""A duration: more than nothing, at most a year, so that it fits every clock and every interval it is added to."""

Count = Annotated[int, Field(ge=1, le=1_000_000)]
Bytes = Annotated[int, Field(ge=1)]


class Section(Numbers):
    """Frozen, and without defaults in code: every number stands in `config/default.yml` (CFG-1, CFG-X1)."""
