"""What every settings section has in common."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from app.resilience.settings import Numbers

Seconds = Annotated[float, Field(gt=0, le=31_536_000)]
"""A duration: more than nothing, at most a year, so that it fits every clock and every interval it is added to."""

Count = Annotated[int, Field(ge=1, le=1_000_000)]
Bytes = Annotated[int, Field(ge=1)]


def unbroken(value: str) -> str:
    """Accept an address that is one word. Parsers drop line breaks silently, and spaces reach the other side."""
    if any(character.isspace() or not character.isprintable() for character in value):
        raise ValueError("must have no spaces, line breaks or control characters in it")
    return value


def _named(value: str) -> str:
    if not value or value != value.strip() or not value.isprintable():
        raise ValueError("must be printable, not empty, and without spaces around it")
    return value


def _ends_in_a_name(value: Any) -> Any:
    if isinstance(value, str) and (Path(value).name in {"", ".."} or value != value.strip() or not value.isprintable()):
        raise ValueError("must be a path that ends in a name, without line breaks or spaces around it")
    return value


Name = Annotated[str, AfterValidator(_named)]
Place = Annotated[Path, BeforeValidator(_ends_in_a_name)]
"""A file or a directory: an empty value would be the working directory."""


class Section(Numbers):
    """Frozen, and without defaults in code: every number stands in `config/default.yml` (CFG-1, CFG-X1)."""
