"""The section of the domain events: how the outbox publishes them, and to whom."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from app.settings.receivers import NatsSettings, ReceiverSettings, WebhookSettings
from app.settings.section import Count, Seconds, Section

LEASE_MARGIN = 5.0
"""Seconds of a lease that are left for claiming and settling a batch."""


class EventSettings(Section):
    """The outbox relay: it publishes to `sink` and keeps published events for `retention` seconds.

    `concurrency` events, each of another order, are on their way at once, for `publish_timeout` seconds at most.
    """

    source: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[!-~]+$")]
    sink: Literal["log", "webhook", "nats"]
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
    nats: NatsSettings

    def contradictions(self) -> Iterator[str]:
        shortest = self.publish_timeout + LEASE_MARGIN
        if self.lease < shortest:
            yield (
                f"lease = {self.lease:g}: at least publish_timeout + {LEASE_MARGIN:g} s = {shortest:g}, "
                "or an event is claimed again while it is being published. Raise lease or lower publish_timeout"
            )
        if self.sink != "log":
            yield from self._receiver_contradictions(self.sink, getattr(self, self.sink))

    def _receiver_contradictions(self, sink: str, receiver: ReceiverSettings) -> Iterator[str]:
        yield from (f"{sink}.{missing}" for missing in receiver.missing())
        shortest = round(receiver.connect_timeout + receiver.read_timeout + 1, 6)
        if self.publish_timeout < shortest:
            yield (
                f"publish_timeout = {self.publish_timeout:g}: at least {sink}.connect_timeout + "
                f"{sink}.read_timeout + 1 s = {shortest:g} (TO-1)"
            )
