"""Where events go: the port, the default, and the choice between those there are."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

import structlog

from app.outbox.store import StoredEvent
from app.outbox.webhook import open_webhook
from app.settings import EventSettings

log = structlog.get_logger()


class Sink(Protocol):
    """Takes events one by one, several at a time. The same one may come again: consumers know it by its id."""

    async def publish(self, event: StoredEvent) -> None:
        """Return once the event is handed over for good.

        Raises CircuitOpen or BulkheadFull if it was not tried, Refused or Broken if trying again cannot help; after
        anything else it is tried again.
        """


class LogSink:
    """Writes each event into the log, until there is somewhere else to send it."""

    async def publish(self, event: StoredEvent) -> None:
        log.info("event", type=event.type, event_id=event.event_id, order_id=event.order_id, sequence=event.sequence)


@asynccontextmanager
async def open_sink(settings: EventSettings) -> AsyncIterator[Sink]:
    """Open the sink that `events.sink` names."""
    match settings.sink:
        case "log":
            yield LogSink()
        case "webhook":
            async with open_webhook(settings) as webhook:
                yield webhook
        case "nats":
            from app.outbox.nats import open_nats  # noqa: PLC0415 - nobody else loads its client

            async with open_nats(settings) as nats:
                yield nats
