"""Events in a stream of NATS JetStream, which keeps each of them once: it knows them by their ids."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from nats.errors import Error, MaxPayloadError
from nats.js.errors import APIError

from app.observability.traces import carry
from app.outbox import cloudevent
from app.outbox.nats_connection import REFUSALS, NatsConnection
from app.outbox.receiver import receiver_policy
from app.outbox.store import StoredEvent
from app.resilience import Policy, Refused, Unavailable
from app.settings import EventSettings, NatsSettings

NAME = "nats"


class NatsSink:
    """Publishes to one stream, behind a policy of its own.

    All share one connection. The first who finds none opens it, and nobody sends before: what cannot be sent now waits
    in the outbox and nowhere else.
    """

    def __init__(self, settings: EventSettings, policy: Policy) -> None:
        self._settings, self._policy = settings, policy
        self._connection: NatsConnection | None = None
        self._connecting = asyncio.Lock()

    async def publish(self, event: StoredEvent) -> None:
        """Return once the stream has the event, be it from an earlier attempt whose acknowledgement was lost.

        Raises CircuitOpen, Refused if the event is too large, else Unavailable or CallTimeout.
        """
        await self._policy.call(lambda: self._publish(event), idempotent=False)

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()

    async def _publish(self, event: StoredEvent) -> None:
        nats = self._settings.nats
        headers = {"Content-Type": cloudevent.MEDIA_TYPE, "Nats-Msg-Id": event.event_id}
        body = cloudevent.encode(event, self._settings.source)
        connection = await self._connected()
        try:
            await connection.store(f"{nats.subject}.{event.type}", body, carry(headers))
        except REFUSALS as refusal:
            raise _in_our_words(refusal, nats) from refusal
        except (Error, OSError) as error:
            raise Unavailable(NAME, f"no acknowledgement: {error}", kind="no_answer") from error

    async def _connected(self) -> NatsConnection:
        async with self._connecting:
            if self._connection is None or not self._connection.is_connected:
                self._connection = await _connect(self._settings.nats)
            return self._connection


@asynccontextmanager
async def open_nats(settings: EventSettings) -> AsyncIterator[NatsSink]:
    """Open the sink that `settings.nats` describes. It connects when it is first used: the server may come later."""
    sink = NatsSink(settings, receiver_policy(NAME, settings, settings.nats))
    try:
        yield sink
    finally:
        await sink.close()


async def _connect(nats: NatsSettings) -> NatsConnection:
    connection = NatsConnection(nats)
    try:
        await connection.begin(
            tls=ssl.create_default_context(cafile=nats.ca_file),
            user=nats.user,
            password=nats.password and nats.password.get_secret_value(),
            token=nats.token and nats.token.get_secret_value(),
        )
    except (Error, OSError) as error:
        raise Unavailable(NAME, f"no connection: {error}", kind="connect", call_made=False) from error
    return connection


def _in_our_words(refusal: Exception, nats: NatsSettings) -> Refused | Unavailable:
    """Only an event that is too large is to blame itself; all else is the stream's state, and somebody mends it."""
    match refusal:
        case MaxPayloadError() | APIError(err_code=10054):
            return Refused(NAME, f"the event is larger than stream {nats.stream} takes", kind="too_large")
        case APIError():
            return Unavailable(NAME, f"stream {nats.stream}: {refusal.description}", kind=f"nats_{refusal.err_code}")
        case _:
            message = f"no stream takes {nats.subject}.>: create {nats.stream} as docs/events.md shows"
            return Unavailable(NAME, message, kind="no_stream")
