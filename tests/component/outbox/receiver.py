"""A webhook's receiver on a real socket, which checks signatures by arithmetic of its own."""

import base64
import hashlib
import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from app.outbox.webhook import Webhook, open_webhook
from app.settings import load_settings
from tests.component.systems.hostile import Answer, Peer, Received, response, say, serve

SECRET = "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
BLOCK = 64

ok = say(response(status="204 No Content"))


def environ(url: str, *keys: str, **settings: str) -> dict[str, str]:
    """The variables that send events to `url`; settings are written as in the file, with __ between levels."""
    return {
        "ORDERS_EVENTS__SINK": "webhook",
        "ORDERS_EVENTS__WEBHOOK__URL": url,
        "ORDERS_EVENTS__WEBHOOK__SECRETS": json.dumps(keys or [SECRET]),
        "ORDERS_EVENTS__WEBHOOK__ALLOW_PRIVATE": "true",
        "ORDERS_EVENTS__WEBHOOK__CONNECT_TIMEOUT": "0.3",
        "ORDERS_EVENTS__WEBHOOK__READ_TIMEOUT": "0.5",
        **{f"ORDERS_EVENTS__{name.upper()}": value for name, value in settings.items()},
    }


@asynccontextmanager
async def webhook_to(url: str, *keys: str, **settings: str) -> AsyncIterator[Webhook]:
    async with open_webhook(load_settings(environ(url, *keys, **settings)).events) as webhook:
        yield webhook


@dataclass
class Receiver:
    """A running receiver, and a webhook that posts to it."""

    peer: Peer
    webhook: Webhook


@asynccontextmanager
async def receiving(answer: Answer = ok, *keys: str, path: str = "/hook", **settings: str) -> AsyncIterator[Receiver]:
    async with serve(answer) as peer, webhook_to(peer.url + path, *keys, **settings) as webhook:
        yield Receiver(peer, webhook)


def hmac_sha256(key: bytes, content: bytes) -> bytes:
    """RFC 2104, written out."""
    key = (hashlib.sha256(key).digest() if len(key) > BLOCK else key).ljust(BLOCK, b"\0")
    inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in key) + content).digest()
    return hashlib.sha256(bytes(byte ^ 0x5C for byte in key) + inner).digest()


def is_signed(request: Received, secret: str) -> bool:
    """Whether one of the request's signatures was made with the secret over its id, its time and its exact body."""
    headers = request.headers
    key = base64.b64decode(secret.split("_", 1)[1])
    content = b".".join([headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), request.body])
    expected = "v1," + base64.b64encode(hmac_sha256(key, content)).decode()
    return expected in headers["webhook-signature"].split(" ")


def told(request: Received) -> dict[str, Any]:
    return dict(json.loads(request.body))
