"""The sections of what may receive the events: a webhook, or a stream of NATS JetStream."""

import base64
import binascii
from collections.abc import Iterator
from typing import Annotated
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, Field, SecretStr

from app.resilience.settings import BreakerSettings
from app.settings.section import Name, Place, Seconds, Section, unbroken

SECRET_PREFIX = "whsec_"  # noqa: S105
SECRET_BYTES = range(24, 65)


def _url(value: str, *schemes: str) -> SplitResult:
    url = urlsplit(value)
    if url.scheme not in schemes or not url.hostname or value != value.strip():
        raise ValueError(f"must begin with {':// or '.join(schemes)}:// and name a host")
    try:
        _ = url.port
    except ValueError:
        raise ValueError("must have a number for a port") from None
    unbroken(value)
    return url


def _web_address(value: str) -> str:
    url = _url(value, "http", "https")
    if url.username is not None or url.fragment:
        raise ValueError("must have neither a user nor a fragment")
    return value


def _nats_address(value: str) -> str:
    url = _url(value, "nats", "tls")
    if "@" in value:
        raise ValueError("must not carry a user or a token: it appears in logs. Set user and password, or token")
    if url.path or url.query or url.fragment:
        raise ValueError("must end after the port")
    return value


def _secret(value: SecretStr) -> SecretStr:
    """Accept what Standard Webhooks calls a signing secret: the prefix and 24 to 64 bytes in base64."""
    prefix, text = value.get_secret_value()[: len(SECRET_PREFIX)], value.get_secret_value()[len(SECRET_PREFIX) :]
    try:
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if prefix != SECRET_PREFIX or len(key) not in SECRET_BYTES:
        raise ValueError("must be whsec_ and 24 to 64 random bytes in base64")
    return value


class ReceiverSettings(Section):
    """How long a receiver may take to be connected to and to answer, and when it is left alone."""

    connect_timeout: Annotated[Seconds, Field(le=10)]
    read_timeout: Annotated[Seconds, Field(le=60)]
    breaker: BreakerSettings

    def contradictions(self) -> Iterator[str]:
        connect, read = self.connect_timeout, self.read_timeout
        if connect >= read:
            yield f"connect_timeout = {connect:g}: must be below read_timeout = {read:g} (TO-1)"

    def missing(self) -> Iterator[str]:
        """What has to be said before events can be sent there."""
        raise NotImplementedError


class WebhookSettings(ReceiverSettings):
    """Where events are posted to. Every one of `secrets` signs, so that a receiver can change over to a new one."""

    url: Annotated[str, AfterValidator(_web_address)] | None
    secrets: tuple[Annotated[SecretStr, AfterValidator(_secret)], ...]
    allow_private: bool

    def missing(self) -> Iterator[str]:
        if self.url is None:
            yield "url: missing, and sink = webhook posts events there"
        if not self.secrets:
            yield "secrets: empty, and sink = webhook signs each event. Give at least one"


class NatsSettings(ReceiverSettings):
    """The `stream` that keeps events under `subject`.<type>. With tls:// nothing is said in clear.

    `ca_file` holds the certificates to trust instead of the system's.
    """

    servers: tuple[Annotated[str, AfterValidator(_nats_address)], ...]
    stream: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")]
    subject: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$")]
    user: Name | None
    password: SecretStr | None
    token: SecretStr | None
    ca_file: Place | None

    def contradictions(self) -> Iterator[str]:
        yield from super().contradictions()
        if (self.user is None) != (self.password is None):
            yield "user: goes with password. Set both or neither"
        if self.user is not None and self.token is not None:
            yield "token: beside user and password there is no use for it. Set one or the other"

    def missing(self) -> Iterator[str]:
        if not self.servers:
            yield "servers: empty, and sink = nats publishes events there"
