"""Events as webhooks: one signed POST for each, as Standard Webhooks has it, to addresses that are public."""

import base64
import hmac
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import aiohttp
import httpx

from app.observability.traces import carry
from app.outbox import cloudevent
from app.outbox.address import public_socket
from app.outbox.receiver import receiver_policy
from app.outbox.store import StoredEvent
from app.resilience import Broken, Policy, Unavailable
from app.resilience.retry_after import retry_after
from app.settings import EventSettings

NAME = "webhook"

GONE = 410


class Webhook:
    """Posts events to one address, behind a policy of its own: an outage there opens its breaker and parks nothing."""

    def __init__(self, settings: EventSettings, http: aiohttp.ClientSession, policy: Policy) -> None:
        self._settings, self._http, self._policy = settings, http, policy
        self._keys = [_key(secret.get_secret_value()) for secret in settings.webhook.secrets]

    async def publish(self, event: StoredEvent) -> None:
        """Post the event once; a 2xx answer means that the receiver has it.

        Raises CircuitOpen, Broken after a 410, which says that nothing more is wanted, else Unavailable.
        """
        body = cloudevent.encode(event, self._settings.source)
        await self._policy.call(lambda: self._post(event.event_id, body), idempotent=False)

    async def _post(self, event_id: str, body: bytes) -> None:
        headers = {"Content-Type": cloudevent.MEDIA_TYPE, **signed(self._keys, event_id, int(time.time()), body)}
        try:
            async with self._http.post(
                str(self._settings.webhook.url),
                data=body,
                headers=carry(headers),
                allow_redirects=False,
            ) as answer:
                _check(answer)
        except aiohttp.ClientConnectorError as error:
            raise Unavailable(NAME, f"no connection: {error.__cause__}", kind="connect", call_made=False) from error
        except (aiohttp.ClientError, OSError) as error:
            raise Unavailable(NAME, f"no answer: {type(error).__name__}", kind="no_answer") from error


@asynccontextmanager
async def open_webhook(settings: EventSettings) -> AsyncIterator[Webhook]:
    """Open the webhook that `settings.webhook` describes.

    The answer's body is not read and each event has a connection of its own, so that whatever else the receiver sends
    is not taken for its answer to the next event.
    """
    webhook = settings.webhook
    policy = receiver_policy(NAME, settings, webhook)
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=settings.concurrency,
            force_close=True,
            ssl=httpx.create_ssl_context(trust_env=False),
            socket_factory=None if webhook.allow_private else public_socket,
        ),
        timeout=aiohttp.ClientTimeout(connect=webhook.connect_timeout, sock_read=webhook.read_timeout),
        headers={"User-Agent": "orders"},
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
    ) as http:
        yield Webhook(settings, http, policy)


def signed(keys: Sequence[bytes], event_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers that prove who sent the body and when; one signature for each key, a receiver needs only one."""
    content = f"{event_id}.{timestamp}.".encode() + body
    signatures = (base64.b64encode(hmac.digest(key, content, "sha256")).decode() for key in keys)
    return {
        "webhook-id": event_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }


def _key(secret: str) -> bytes:
    return base64.b64decode(secret.removeprefix("whsec_"))


def _check(answer: aiohttp.ClientResponse) -> None:
    """Anything but 2xx is an outage until it turns out to be the event's: only the breaker can tell them apart."""
    message, kind = f"HTTP {answer.status}", f"http_{answer.status}"
    if answer.status == GONE:
        raise Broken(NAME, message, kind=kind)
    if answer.status // 100 != 2:  # noqa: PLR2004
        raise Unavailable(NAME, message, kind=kind, retry_after=retry_after(answer.headers))
