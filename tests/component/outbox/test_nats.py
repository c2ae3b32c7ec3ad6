"""The NATS sink against real servers: good ones, dead ones, and some that are not what they should be."""

import asyncio
import json
import logging
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trustme
from opentelemetry.trace import NonRecordingSpan, SpanContext, use_span

from app.db import Database
from app.outbox.nats import NatsSink
from app.resilience import CallTimeout, CircuitOpen, Refused, Unavailable
from tests.component.outbox.cloudevents import check
from tests.component.outbox.events import ended, event_rules, fill, hurry, relaying, rows, until
from tests.component.outbox.jetstream import (
    NatsServer,
    between,
    create_stream,
    environ,
    jetstream,
    nats_server,
    nats_to,
    stored,
)
from tests.component.outbox.test_webhook import EVENT
from tests.processes import free_port
from tests.service import Sandbox, service_running, settings_for

TOKEN = "hunter2"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    with nats_server(tmp_path) as server:
        yield server


async def test_an_event_is_stored_under_its_type(server: NatsServer) -> None:
    """The message is the CloudEvent in structured JSON, and its headers name its form, its id and its trace."""
    await create_stream(server.url)
    span = NonRecordingSpan(SpanContext(0xA1, 0xB2, is_remote=False))
    async with nats_to(server.url, source="/shop", nats__subject="orders.eu") as sink:
        with use_span(span):
            await sink.publish(EVENT)
    (message,) = await stored(server.url)
    assert message.subject == "orders.eu.order.paid"
    assert message.headers["Content-Type"] == "application/cloudevents+json"
    assert message.headers["Nats-Msg-Id"] == EVENT.event_id
    assert message.headers["traceparent"] == f"00-{0xA1:032x}-{0xB2:016x}-00"
    event = json.loads(message.data)
    check(event)
    assert (event["id"], event["source"], event["subject"]) == (EVENT.event_id, "/shop", "42")
    assert event["data"] == json.loads(EVENT.data)


async def test_a_repeated_event_is_stored_once(server: NatsServer) -> None:
    """The server knows an event by its id, also when another process sends it again."""
    await create_stream(server.url)
    for _ in range(2):
        async with nats_to(server.url) as sink:
            await asyncio.gather(*(sink.publish(EVENT) for _ in range(3)))
    assert len(await stored(server.url)) == 1


@pytest.mark.rule("WHERE-3")
async def test_an_event_whose_acknowledgement_is_lost_is_stored_once(server: NatsServer, database: Database) -> None:
    """The connection breaks between the server and us after it has stored the event: it is sent again, and known."""
    await create_stream(server.url)
    lost: list[bytes] = []

    def lose_the_first(said: bytes) -> bool:
        if b'"stream":"ORDERS"' in said and not lost:
            lost.append(said)
            return False
        return True

    (order_id,) = await fill(database, 1, 1, 2)
    async with between(server.port, lose_the_first) as url, nats_to(url) as sink, relaying(database, sink):
        await until(lambda: ended(database))
    assert len(lost) == 1
    assert [row.attempts for row in await rows(database)] == [2, 1]
    assert sequences(await stored(server.url)) == {order_id: [1, 2]}


@pytest.mark.rule("WHERE-3")
async def test_a_killed_server_loses_and_doubles_nothing(server: NatsServer, database: Database) -> None:
    """Killed in the middle and started again later, it holds each event once, and each order's in their sequence."""
    ids = await fill(database, 10, 1, 2, 3, 4, 5, 6, 7, 8)
    await create_stream(server.url)
    async with nats_to(server.url) as sink, relaying(database, sink, event_rules(poll_interval=0.1, max_attempts=100)):
        await until(lambda: published(database, 20))
        await asyncio.to_thread(server.kill)
        await asyncio.sleep(0.5)
        await asyncio.to_thread(server.start)

        async def all_published() -> bool:
            await hurry(database)
            return await ended(database)

        await until(all_published, 30)
    assert {row.status for row in await rows(database)} == {"PUBLISHED"}
    assert sequences(await stored(server.url)) == {order_id: [1, 2, 3, 4, 5, 6, 7, 8] for order_id in ids}


async def test_a_server_that_stands_still_is_given_up(server: NatsServer) -> None:
    """Without an acknowledgement in time the connection goes, with what is unsent; the next event finds a new one."""
    await create_stream(server.url)
    short = {"nats__connect_timeout": "0.5", "nats__read_timeout": "1"}
    async with nats_to(server.url, nats__breaker__minimum_calls="50", **short) as sink:
        await sink.publish(EVENT)
        server.pause()
        events = [replace(EVENT, event_id=f"{number}", data=json.dumps("x" * 100_000)) for number in range(20)]
        for some in (events[:8], events[8:16]):
            ends = await asyncio.gather(*(sink.publish(event) for event in some), return_exceptions=True)
            assert {type(end) for end in ends} <= {Unavailable, CallTimeout}
            assert given_up(sink)
        server.resume()
        await sink.publish(events[16])
    assert {"16", EVENT.event_id} <= {message.headers["Nats-Msg-Id"] for message in await stored(server.url)}


async def test_what_is_on_its_way_fails_with_its_connection(server: NatsServer) -> None:
    """Nobody waits for an answer that the lost connection would have brought."""
    await create_stream(server.url)
    async with nats_to(server.url, nats__read_timeout="30", publish_timeout="33", lease="40") as sink:
        await sink.publish(EVENT)
        server.pause()
        publishing = asyncio.create_task(sink.publish(EVENT))
        await asyncio.sleep(0.1)
        server.kill()
        async with asyncio.timeout(5):
            with pytest.raises(Unavailable, match="no acknowledgement: nats: connection closed"):
                await publishing


async def test_a_wrong_stream_is_named_and_tried_again(server: NatsServer) -> None:
    """Where nothing takes the subject, or another stream does, the failure says so; once that is mended, events go."""
    async with nats_to(server.url) as sink:
        with pytest.raises(Unavailable, match=r"no stream takes orders\.>: create ORDERS") as missing:
            await sink.publish(EVENT)
        await create_stream(server.url, "OTHERS")
        with pytest.raises(Unavailable, match="stream ORDERS: expected stream does not match") as other:
            await sink.publish(EVENT)
        async with jetstream(server.url) as stream:
            await stream.delete_stream("OTHERS")
        await create_stream(server.url)
        await sink.publish(EVENT)
    assert (missing.value.kind, other.value.kind) == ("no_stream", "nats_10060")
    assert len(await stored(server.url)) == 1


async def test_an_event_that_is_too_large_is_refused(tmp_path: Path) -> None:
    """Trying again would not make it smaller: it is parked."""
    config = tmp_path / "nats.conf"
    config.write_text("max_payload: 2000")
    with nats_server(tmp_path, "-c", str(config)) as server:
        await create_stream(server.url)
        async with nats_to(server.url) as sink:
            with pytest.raises(Refused, match="larger than stream ORDERS takes"):
                await sink.publish(replace(EVENT, data=json.dumps("x" * 2000)))
            await sink.publish(EVENT)


async def test_an_absent_server_stops_no_order(
    database: Database, pg_dsn: str, sandbox: Sandbox, tmp_path: Path
) -> None:
    """Orders are taken in and completed; their events wait and are published once there is a server."""
    late = NatsServer(tmp_path)
    settings = settings_for(pg_dsn, sandbox.url, environ(late.url, backoff_cap="1", poll_interval="0.2"))
    try:
        async with service_running(settings) as service:
            ids = [await service.place() for _ in range(3)]
            await service.reach(ids, "COMPLETED")
            assert {row.status for row in await rows(database)} == {"PENDING"}
            await asyncio.to_thread(late.start)
            await create_stream(late.url)
            await until(lambda: ended(database), 30)
        assert sequences(await stored(late.url)) == {order_id: list(range(1, 8)) for order_id in ids}
    finally:
        late.kill()


async def test_an_outage_opens_the_breaker() -> None:
    """While nobody answers, events soon lose no attempts any more."""
    async with nats_to(f"nats://127.0.0.1:{free_port()}") as sink:
        for _ in range(10):
            with pytest.raises(Unavailable, match=r"no connection: .*Connect call failed"):
                await sink.publish(EVENT)
        with pytest.raises(CircuitOpen):
            await sink.publish(EVENT)


async def test_credentials_go_over_tls(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A server that wants both gets the token over TLS; whoever has the wrong one reads that, and sees no token."""
    ca = trustme.CA()
    files = {name: tmp_path / name for name in ("ca", "cert", "key")}
    ca.cert_pem.write_to_path(files["ca"])
    issued = ca.issue_cert("localhost")
    issued.cert_chain_pems[0].write_to_path(files["cert"])
    issued.private_key_pem.write_to_path(files["key"])
    tls = ("--tls", f"--tlscert={files['cert']}", f"--tlskey={files['key']}")
    with nats_server(tmp_path, "--auth", TOKEN, *tls) as server, caplog.at_level(logging.DEBUG):
        url = f"tls://localhost:{server.port}"
        trusting = ssl.create_default_context(cafile=files["ca"])
        options: dict[str, Any] = {"tls": trusting, "token": TOKEN}
        await create_stream(url, **options)
        ca_file = str(files["ca"])
        async with nats_to(url, nats__ca_file=ca_file, nats__token=TOKEN) as sink:
            await sink.publish(EVENT)
        assert len(await stored(url, **options)) == 1
        async with nats_to(url, nats__ca_file=ca_file, nats__token="wrong") as sink:
            with pytest.raises(Unavailable, match="Authorization Violation"):
                await sink.publish(EVENT)
        async with nats_to(url, nats__token=TOKEN) as sink:
            with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
                await sink.publish(EVENT)
    assert TOKEN not in caplog.text


async def test_nothing_is_said_in_clear_where_tls_was_asked_for() -> None:
    """A server that offers no TLS, or one that somebody in between lets look like that, hears no token and no event."""
    heard: list[bytes] = []

    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"max_payload": 1048576, "auth_required": true, "headers": true}\r\n')
        heard.append(await reader.read())
        writer.close()

    listening = await asyncio.start_server(plain, "127.0.0.1", 0)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        async with nats_to(f"tls://127.0.0.1:{port}", nats__token=TOKEN) as sink:
            with pytest.raises(Unavailable, match="secure connection not available"):
                await sink.publish(EVENT)
        await asyncio.sleep(0.1)
    assert set(heard) == {b""}


def sequences(messages: list[object]) -> dict[int, list[int]]:
    """By order: the sequence numbers of its events as the stream has them."""
    found: dict[int, list[int]] = {}
    for message in messages:
        event = json.loads(message.data)  # type: ignore[attr-defined]
        found.setdefault(int(event["subject"]), []).append(int(event["sequence"]))
    return found


def given_up(sink: NatsSink) -> bool:
    """Whether the connection is closed, so that nothing waits in it to be sent."""
    assert sink._connection is not None
    return sink._connection.is_closed


async def published(database: Database, count: int) -> bool:
    return [row.status for row in await rows(database)].count("PUBLISHED") >= count
