"""The section of an external system: its policy, where it is, and how it is probed."""

import math
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from app.resilience import PolicySettings
from app.settings.section import Bytes, Seconds, Section, unbroken


def _base_url(value: str) -> str:
    url = urlsplit(value)
    if url.scheme not in {"http", "https"} or not url.hostname or value != value.strip():
        raise ValueError("must be an http:// or https:// address with a host")
    if "@" in value:
        raise ValueError("must not carry a user or a password: it appears in logs")
    _ = url.port
    if url.query or url.fragment or "?" in value or "#" in value:
        raise ValueError("must have neither query nor fragment: paths are appended to it")
    return unbroken(value).rstrip("/")


class ProbeSettings(Section):
    """The health probe (HC-2, HC-3): GET `path`, believed for `ttl` seconds."""

    path: Annotated[str, Field(pattern=r"^/[!-~]*$")]
    ttl: Seconds
    timeout: Seconds


class ClientSettings(PolicySettings):
    """The section `client.<system>`; the system's one name is the section's (CFG-3, ISO-3)."""

    base_url: Annotated[str, AfterValidator(_base_url)]
    max_response_bytes: Bytes
    health: ProbeSettings

    @property
    def pool_size(self) -> int:
        """Connections to the system: the bulkhead's places and a fifth more for idle ones (ISO-2, BH-3)."""
        return math.ceil(self.max_concurrent * 6 / 5)
