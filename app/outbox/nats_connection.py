"""A connection to NATS: it keeps nothing to send it later, and what waits on it fails at once when it breaks."""

from typing import Any

import structlog
from nats.aio.client import Client
from nats.errors import ConnectionClosedError, MaxPayloadError, NoServersError, SecureConnWantedError
from nats.js.client import JetStreamContext
from nats.js.errors import APIError, NoStreamResponseError

from app.settings import NatsSettings

log = structlog.get_logger()

REFUSALS = (MaxPayloadError, APIError, NoStreamResponseError)
"""What the server answers instead of an acknowledgement: the connection is well."""


class NatsConnection(Client):
    """nats-py's client without its reconnection: another connection takes the place of one that broke."""

    def __init__(self, settings: NatsSettings) -> None:
        super().__init__()
        self._settings = settings
        self._jetstream = JetStreamContext(self, timeout=settings.read_timeout)
        self._reason: Exception = NoServersError()

    async def begin(self, **credentials: Any) -> None:
        """Connect to one of the servers; raises nats.errors.Error or OSError."""
        try:
            await self.connect(
                list(self._settings.servers),
                error_cb=self._complained,
                name="orders",
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=self._settings.connect_timeout,  # type: ignore[arg-type]  # used as a float
                pending_size=0,
                **credentials,
            )
        except NoServersError:
            await self.close()
            raise self._reason from None
        except BaseException:
            await self.close()
            raise

    async def store(self, subject: str, body: bytes, headers: dict[str, str]) -> None:
        """Return once the stream has acknowledged the message; raises one of REFUSALS, nats.errors.Error or OSError.

        Without an answer the connection is given up, and with it whatever is still unsent.
        """
        try:
            await self._jetstream.publish(subject, body, stream=self._settings.stream, headers=headers)
        except REFUSALS:
            raise
        except BaseException:
            await self.close()
            raise

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        """End it at once, as no peer can be relied on to take part, and leave nobody waiting for an answer."""
        writer = getattr(self._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()
        self._transport, self._pending, self._pending_data_size = None, [], 0
        for answer in self._resp_map.values():
            if not answer.done():
                answer.set_exception(ConnectionClosedError())
        await super()._close(status, do_cbs)

    def _connect_command(self) -> bytes:
        """Say who we are, but never in clear where TLS was asked for: whoever stands in between may have hidden it."""
        asked = self._current_server is not None and self._current_server.uri.scheme == "tls"
        if asked and not self._server_info.get("tls_required"):
            raise SecureConnWantedError
        return super()._connect_command()

    async def _complained(self, error: Exception) -> None:
        self._reason = error
        if self.is_connected:
            log.warning("nats complains", reason=str(error))
