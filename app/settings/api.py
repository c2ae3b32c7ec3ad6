"""The HTTP API's sections: where it listens, what it accepts, and from whom."""

import re
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from ipaddress import ip_address
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr

from app.settings.section import Bytes, Count, Name, Seconds, Section, unbroken

Scope = Literal["orders:write", "orders:read", "ops"]

LABEL = r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
HOST_NAME = re.compile(rf"({LABEL}\.)*(?!\d+\.?$){LABEL}\.?", re.IGNORECASE)
"""As DNS has it, with the underscores of container networks; the last part is no number, or it would be an address."""


def _public_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname or re.search(r"[?#@\s]", value):
        raise ValueError("must be the address where clients reach the API, such as https://shop.example/api")
    return unbroken(value).rstrip("/")


def _host(value: str) -> str:
    with suppress(ValueError):
        ip_address(value.strip("[]"))
        return value
    if not HOST_NAME.fullmatch(value):
        raise ValueError("must be an address or a name of this machine, such as 127.0.0.1, 0.0.0.0 or localhost")
    return value


class ApiSettings(Section):
    """`public_url`: what clients put before `/orders`, where a proxy gives the API another address than its own.

    `retry_after`: seconds the 202 asks a client to wait; beyond `max_concurrent_requests` the answer is 503.

    Event streams and waits (`Prefer: wait`) get their news after `poll_interval` seconds at the latest, and after one
    look for all of them there is none for `news_pause` seconds.

    A request repeated with its Idempotency-Key gets the first answer for `idempotency_retention` seconds at least.
    """

    host: Annotated[str, Field(min_length=1), AfterValidator(_host)]
    port: Annotated[int, Field(ge=0, le=65_535)]
    public_url: Annotated[str, AfterValidator(_public_url)] | None
    max_body_bytes: Bytes
    max_concurrent_requests: Count
    body_timeout: Seconds
    commit_together: Count
    keep_alive: Count
    retry_after: Seconds
    max_streams: Count
    stream_keep_alive: Seconds
    max_wait: Annotated[int, Field(ge=0, le=3600)]
    poll_interval: Seconds
    news_pause: Annotated[float, Field(ge=0, le=5)]
    idempotency_retention: Seconds
    docs: bool

    @property
    def loopback(self) -> bool:
        """Whether nobody but this machine reaches `host`."""
        return is_loopback(self.host)

    def contradictions(self) -> Iterator[str]:
        if self.max_streams >= self.max_concurrent_requests:
            yield (
                f"max_streams = {self.max_streams}: event streams and waits stay for long, and count among "
                f"max_concurrent_requests = {self.max_concurrent_requests}. It must be less, or they keep orders out"
            )


def _digest(value: SecretStr) -> SecretStr:
    digits = value.get_secret_value().lower()
    if re.fullmatch(r"[0-9a-f]{64}", digits) is None:
        raise ValueError("must be the 64 hexadecimal digits of a SHA-256")
    return SecretStr(digits)


Digest = Annotated[SecretStr, AfterValidator(_digest)]


class ApiKey(Section):
    """A caller: the SHA-256 of its key, never the key. Without `customers` it may act for all of them."""

    name: Annotated[Name, Field(min_length=1, max_length=64)]
    sha256: Digest
    scopes: Annotated[frozenset[Scope], Field(min_length=1)]
    customers: frozenset[Annotated[str, Field(min_length=1, max_length=64)]] | None = None


class AuthSettings(Section):
    mode: Literal["none", "api_key"]
    allow_anonymous: bool
    keys: tuple[ApiKey, ...]

    def contradictions(self) -> Iterator[str]:
        if self.mode == "api_key" and not self.keys:
            yield "mode = api_key: needs at least one entry in keys, or nobody is let in"
        if self.mode == "none" and self.keys:
            yield f"mode = none: the {len(self.keys)} keys would not be asked for. Set mode to api_key or remove them"
        if len({key.name for key in self.keys}) < len(self.keys):
            yield f"keys: each needs a name of its own among {sorted(key.name for key in self.keys)}"
        if len({key.sha256 for key in self.keys}) < len(self.keys):
            yield "keys: two have the same sha256, so their names and scopes are ambiguous"
        if bound := [key.name for key in self.keys if key.customers is not None and "ops" in key.scopes]:
            yield f"keys: {bound} have the scope ops, which shows every customer's tasks, and name customers. Drop one"

    def check_bind(self, host: str) -> str | None:
        """Say what is wrong when the API would answer anybody on an address that others can reach."""
        if self.mode != "none" or self.allow_anonymous or is_loopback(host):
            return None
        return (
            f"api.host = {host}: others can reach this address, and auth.mode = none lets everybody in. "
            "Set auth.mode to api_key and give auth.keys, bind to 127.0.0.1, or set auth.allow_anonymous to true"
        )


@lru_cache(maxsize=64)  # the same few hosts are asked about with every request
def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
