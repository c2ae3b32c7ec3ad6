"""The webhook against real receivers, good ones and bad ones."""

import asyncio
import base64
import json
import secrets
import ssl
import time
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime

import pytest
import trustme

from app.outbox.store import StoredEvent
from app.outbox.webhook import signed
from app.resilience import Broken, CircuitOpen, Fault, Unavailable
from app.settings import load_settings
from tests.component.outbox.receiver import SECRET, environ, is_signed, ok, receiving, told, webhook_to
from tests.component.systems import hostile
from tests.component.systems.hostile import Answer, Received, response, say, serve

EVENT = StoredEvent(
    event_id="6c1f1a52-6d3c-4f43-8d7e-0a6a3c2f9b11",
    position=1,
    order_id=42,
    sequence=3,
    type="order.paid",
    data='{"status": "PAID", "reason": "оплачено"}',
    occurred_at=datetime(2026, 11, 2, 12, 0, tzinfo=UTC),
    traceparent=None,
    attempts=1,
    lease_token=1,
)


async def test_an_event_is_posted_signed(caplog: pytest.LogCaptureFixture) -> None:
    """One POST to the exact address carries the event, its id, the time of sending, and a signature over all three."""
    async with receiving(path="/hook/orders?tenant=7") as receiver:
        await receiver.webhook.publish(EVENT)
    (request,) = receiver.peer.received
    assert (request.method, request.path) == ("POST", "/hook/orders?tenant=7")
    assert request.headers["content-type"] == "application/cloudevents+json"
    assert request.headers["webhook-id"] == EVENT.event_id == told(request)["id"]
    assert abs(int(request.headers["webhook-timestamp"]) - time.time()) < 10
    assert is_signed(request, SECRET)
    assert not is_signed(request, "whsec_" + base64.b64encode(b"x" * 32).decode())
    assert not is_signed(replace(request, body=request.body + b" "), SECRET)
    assert told(request)["data"] == json.loads(EVENT.data)
    assert SECRET not in caplog.text


def test_the_signature_is_that_of_the_standard() -> None:
    """The example that implementations of Standard Webhooks share is signed as they sign it."""
    key = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = signed([key], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


async def test_every_secret_signs() -> None:
    """While secrets are changed over, a receiver that knows the old or the new one can verify."""
    old, new = ("whsec_" + base64.b64encode(secrets.token_bytes(n)).decode() for n in (24, 64))
    async with receiving(ok, new, old) as receiver:
        await receiver.webhook.publish(EVENT)
    (request,) = receiver.peer.received
    assert [is_signed(request, secret) for secret in (new, old, SECRET)] == [True, True, False]
    assert len(request.headers["webhook-signature"].split(" ")) == 2


async def test_a_repeated_event_has_the_same_id_and_body() -> None:
    """A receiver knows a duplicate by its webhook-id; only the time of sending and the signature are new."""
    async with receiving() as receiver:
        for _ in range(2):
            await receiver.webhook.publish(EVENT)
    first, second = receiver.peer.received
    assert (first.headers["webhook-id"], first.body) == (second.headers["webhook-id"], second.body)


@pytest.mark.parametrize("status", ["200 OK", "201 Created", "202 Accepted", "204 No Content", "299 Fine"])
async def test_2xx_is_delivered(status: str) -> None:
    """Any 2xx says that the receiver has the event."""
    async with receiving(say(response(status=status))) as receiver:
        await receiver.webhook.publish(EVENT)


@pytest.mark.parametrize("status", [301, 302, 307, 400, 401, 404, 408, 409, 429, 500, 502, 503, 504, 600])
async def test_anything_else_is_tried_again(status: str) -> None:
    """No other answer delivers the event, and none but 410 ends its attempts."""
    async with receiving(say(response(status=f"{status} Whatever"))) as receiver:
        with pytest.raises(Unavailable) as raised:
            await receiver.webhook.publish(EVENT)
    assert (raised.value.kind, raised.value.call_made) == (f"http_{status}", True)


async def test_410_ends_the_attempts() -> None:
    """A receiver that wants nothing more is not sent the same event again."""
    async with receiving(say(response(status="410 Gone"))) as receiver:
        with pytest.raises(Broken, match="HTTP 410"):
            await receiver.webhook.publish(EVENT)


@pytest.mark.parametrize(
    ("value", "seconds"), [("120", 120), ("Mon, 02 Nov 2026 12:02:00 GMT", 120), ("soon", None), ("-1", None)]
)
async def test_retry_after_is_read(value: str, seconds: float | None) -> None:
    """How long the receiver asks to wait reaches the relay, in seconds."""
    answer = response(status="503 Busy", Retry_After=value, Date="Mon, 02 Nov 2026 12:00:00 GMT")
    async with receiving(say(answer)) as receiver:
        with pytest.raises(Unavailable) as raised:
            await receiver.webhook.publish(EVENT)
    assert raised.value.retry_after == seconds


async def test_redirects_are_not_followed() -> None:
    """Where a receiver points to is not asked, whatever the status."""
    async with serve(ok) as elsewhere:
        for status in ("301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"):
            async with receiving(say(response(status=status, Location=elsewhere.url))) as receiver:
                with pytest.raises(Unavailable):
                    await receiver.webhook.publish(EVENT)
    assert elsewhere.connections == 0


async def test_the_environment_and_the_receiver_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proxy variables are ignored, cookies are not kept."""
    async with serve(ok) as proxy, receiving(say(response(Set_Cookie="a=b"))) as receiver:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        for _ in range(2):
            await receiver.webhook.publish(EVENT)
    assert proxy.connections == 0
    assert "cookie" not in receiver.peer.received[1].headers


UNTIMELY: dict[str, Answer] = {
    "says nothing": hostile.hang,
    "drips headers": hostile.drip_headers,
    "drips the status": hostile.drip_status,
    "never comes to the answer": hostile.endless_continue,
    "sends headers without end": hostile.endless_headers,
    "sends a header without end": hostile.endless_header,
    "resets": hostile.reset,
    "hangs up": hostile.close,
    "does not speak HTTP": say(b"SSH-2.0-OpenSSH_9.9\r\n\r\n"),
}


@pytest.mark.rule("TO-X1")
@pytest.mark.parametrize("answer", UNTIMELY.values(), ids=UNTIMELY)
async def test_a_bad_receiver_ends_in_time(answer: Answer) -> None:
    """Whatever it does, publishing ends in an error that is tried again, before the relay's own timeout."""
    async with receiving(answer) as receiver, asyncio.timeout(5):
        with pytest.raises(Fault) as raised:
            await receiver.webhook.publish(EVENT)
    assert raised.value.repeatable


async def test_no_body_is_too_large() -> None:
    """An answer counts by its status: an endless body, a bomb or one that never comes keep nobody waiting."""
    for answer in (hostile.endless_body, hostile.gzip_bomb, hostile.drip_body, say(response(length=10))):
        async with receiving(answer) as receiver, asyncio.timeout(2):
            await receiver.webhook.publish(EVENT)


async def test_what_comes_unasked_is_nobodys_answer() -> None:
    """A receiver that says something more after its answer does not get that taken for its answer to the next event."""

    async def more(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(response())
        await asyncio.sleep(0.05)
        writer.write(response(status="500 Internal"))

    async with receiving(more) as receiver:
        for _ in range(3):
            await receiver.webhook.publish(EVENT)
            await asyncio.sleep(0.1)
    assert receiver.peer.connections == 3


@pytest.mark.rule("CB-6", "WHERE-1")
async def test_an_outage_opens_the_breaker() -> None:
    """A receiver that fails whatever it is sent is left alone after some calls, and is not asked while it is."""
    async with receiving(say(response(status="401 Who?")), webhook__breaker__minimum_calls="5") as receiver:
        for _ in range(5):
            with pytest.raises(Unavailable):
                await receiver.webhook.publish(EVENT)
        for _ in range(5):
            with pytest.raises(CircuitOpen):
                await receiver.webhook.publish(EVENT)
    assert len(receiver.peer.received) == 5


async def test_one_poison_event_does_not_open_the_breaker() -> None:
    """A receiver that fails at one event in three is asked for the others."""
    served = 0

    async def third_fails(_: Received, writer: asyncio.StreamWriter) -> None:
        nonlocal served
        served += 1
        writer.write(response(status="500 Internal" if served % 3 == 0 else "200 OK"))

    async with receiving(third_fails) as receiver:
        for number in range(1, 61):
            with pytest.raises(Unavailable) if number % 3 == 0 else nullcontext():
                await receiver.webhook.publish(EVENT)
    assert served == 60


async def test_nobody_there() -> None:
    """A refused connection and a name that leads nowhere are errors to try again, and no call was made."""
    for url in ("http://127.0.0.1:1/hook", "http://nowhere.invalid/hook"):
        async with webhook_to(
            url, webhook__connect_timeout="5", webhook__read_timeout="6", publish_timeout="12", lease="30"
        ) as webhook:
            with pytest.raises(Unavailable, match="no connection") as raised:
                await webhook.publish(EVENT)
        assert (raised.value.kind, raised.value.call_made) == ("connect", False)


async def test_an_unknown_authority_is_not_trusted() -> None:
    """With https a receiver must prove who it is, or it gets nothing."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("localhost").configure_cert(tls)
    async with serve(ok, tls) as peer, webhook_to(f"{peer.url}/hook") as webhook:
        with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
            await webhook.publish(EVENT)
    assert peer.received == []


def test_secrets_do_not_appear() -> None:
    """Neither the settings nor what they say when printed hold a secret in clear."""
    events = load_settings(environ("https://hooks.example.com/x")).events
    assert SECRET not in repr(events)
    assert SECRET not in events.model_dump_json()
