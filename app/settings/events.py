"""The section of the domain events: how the outbox publishes them, and the webhook that may receive them."""

import base64
import binascii
from collections.abc import Iterator
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr

from app.resilience.settings import BreakerSettings
from app.settings.section import Count, Seconds, Section

LEASE_MARGIN = 5.0
"""Seconds of a lease that are left for claiming and settling a batch."""

SECRET_PREFIX = "whsec_"  # noqa: S105
SECRET_BYTES = range(24, 65)


def _url(value: str) -> str:
    url = urlsplit(value)
    if url.scheme not in {"http", "https"} or not url.hostname or value != value.strip():
        raise ValueError("must be an http:// or https:// address with a host")
    try:
        _ = url.port
    except ValueError:
        raise ValueError("must have a number for a port") from None
    if url.username is not None or url.fragment:
        raise ValueError("must have neither a user nor a fragment")
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


class WebhookSettings(Section):
    """Where events are posted to. Every one of `secrets` signs, so that a receiver can change over to a new one."""

    url: Annotated[str, AfterValidator(_url)] | None
    secrets: tuple[Annotated[SecretStr, AfterValidator(_secret)], ...]
    allow_private: bool
    connect_timeout: Annotated[Seconds, Field(le=10)]
    read_timeout: Annotated[Seconds, Field(le=60)]
    breaker: BreakerSettings

    def contradictions(self) -> Iterator[str]:
        connect, read = self.connect_timeout, self.read_timeout
        if connect >= read:
            yield f"connect_timeout = {connect:g}: must be below read_timeout = {read:g} (TO-1)"


class EventSettings(Section):
    """The outbox relay: it publishes to `sink` and keeps published events for `retention` seconds.

    `concurrency` events, each of another order, are on their way at once, for `publish_timeout` seconds at most.
    """

    source: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[!-~]+$")]
    sink: Literal["log", "webhook"]
    poll_interval: Seconds
    batch: Annotated[Count, Field(le=1000)]
    concurrency: Annotated[Count, Field(le=100)]
    publish_timeout: Seconds
    lease: Seconds
    max_attempts: Annotated[Count, Field(le=1000)]
    backoff_cap: Annotated[Seconds, Field(ge=1)]
    jitter: Annotated[float, Field(ge=0, le=1)]
    retention: Seconds
    webhook: WebhookSettings

    def contradictions(self) -> Iterator[str]:
        shortest = self.publish_timeout + LEASE_MARGIN
        if self.lease < shortest:
            yield (
                f"lease = {self.lease:g}: at least publish_timeout + {LEASE_MARGIN:g} s = {shortest:g}, "
                "or an event is claimed again while it is being published. Raise lease or lower publish_timeout"
            )
        if self.sink == "webhook":
            yield from self._webhook_contradictions()

    def _webhook_contradictions(self) -> Iterator[str]:
        webhook = self.webhook
        if webhook.url is None:
            yield "webhook.url: missing, and sink = webhook posts events there"
        if not webhook.secrets:
            yield "webhook.secrets: empty, and sink = webhook signs each event. Give at least one"
        shortest = round(webhook.connect_timeout + webhook.read_timeout + 1, 6)
        if self.publish_timeout < shortest:
            yield (
                f"publish_timeout = {self.publish_timeout:g}: at least webhook.connect_timeout + "
                f"webhook.read_timeout + 1 s = {shortest:g} (TO-1)"
            )
