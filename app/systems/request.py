from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote

from pydantic import BaseModel


@dataclass(frozen=True, slots=True)
class Request:
    """One call to a system: the adapter's operation, and how it goes over the wire.

    `key` is sent as Idempotency-Key; `about` is the id that the answer must be about.
    """

    operation: str
    method: Literal["GET", "PUT", "POST"]
    path: str
    body: BaseModel | None = None
    key: str | None = None
    about: str | None = None

    @property
    def repeatable(self) -> bool:
        """Whether doing it twice is doing it once: reads and PUTs by nature, a POST by its key (RE-1, RE-X1)."""
        return self.method != "POST" or self.key is not None


def path(*segments: str | int) -> str:
    """A path of these segments; whatever they contain, each stays one segment."""
    return "".join(f"/{quote(str(segment), safe='')}" for segment in segments)
