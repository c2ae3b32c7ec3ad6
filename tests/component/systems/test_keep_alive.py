import asyncio

import pytest

from app.orders.ports import SystemUnavailable
from app.resilience import Policy
from app.systems.client import Client
from app.systems.exchange import Exchange
from app.systems.insurance.adapter import InsuranceAdapter
from app.systems.request import Request
from app.systems.system import open_system
from app.systems.wire import Answer
from tests.component.systems.hostile import Received, response, serve
from tests.component.systems.orders import ORDER
from tests.component.systems.sections import ONCE, TWICE, section


class Stale:
    """A peer whose first connection is alive when it is reused, and closed as soon as the request has taken effect."""

    def __init__(self) -> None:
        self.first: asyncio.StreamWriter | None = None
        self.operations: set[str | None] = set()

    async def __call__(self, request: Received, writer: asyncio.StreamWriter) -> None:
        if request.method == "POST":
            self.operations.add(request.headers.get("idempotency-key"))
        if self.first is None:
            self.first = writer
        elif self.first is writer:
            writer.close()
            return
        writer.write(response(b'{"applicationId":"a-1","status":"PENDING"}'))
        await writer.drain()


@pytest.mark.rule("RE-1", "RE-X4")
async def test_a_post_with_a_key_is_repeated_once_with_the_same_key() -> None:
    """A kept-alive connection that dies under a keyed POST costs one repetition, and the system sees one operation."""
    stale = Stale()
    async with (
        serve(stale) as peer,
        open_system("insurance", section(peer.url, retry=TWICE), InsuranceAdapter) as system,
    ):
        await system.adapter.confirmation(ORDER, budget=20)
        assert await system.adapter.apply(ORDER, key="k-1", budget=20) == "a-1"
    assert peer.keys == [None, "k-1", "k-1"]
    assert stale.operations == {"k-1"}
    assert peer.connections == 2


@pytest.mark.rule("RE-X1")
async def test_a_post_without_a_key_is_never_repeated() -> None:
    """A write without a key that may have arrived is left alone, whatever the retry settings."""
    stale, write = Stale(), Request("write", "POST", "/things")
    async with serve(stale) as peer:
        settings = section(peer.url, retry=TWICE)
        client = Client("insurance", settings)
        exchange = Exchange(client, Policy("insurance", settings))
        await exchange.ask(Request("read", "GET", "/things"), Answer, budget=20)
        with pytest.raises(SystemUnavailable) as raised:
            await exchange.ask(write, Answer, budget=20)
        await client.aclose()
    assert (raised.value.kind, raised.value.call_made) == ("connection_lost", True)
    assert [request.method for request in peer.received] == ["GET", "POST"]


@pytest.mark.rule("RE-X4")
@pytest.mark.parametrize("method", ["GET", "PUT"])
async def test_the_library_repeats_nothing_itself(method: str) -> None:
    """Repetition is the policy's: with one attempt allowed, a lost GET or PUT is lost."""
    stale = Stale()
    async with serve(stale) as peer:
        client = Client("insurance", section(peer.url, retry=ONCE))
        await client.send(Request("read", "GET", "/things"))
        with pytest.raises(SystemUnavailable) as raised:
            await client.send(Request("again", "GET" if method == "GET" else "PUT", "/things"))
        await client.aclose()
    assert raised.value.kind == "connection_lost"
    assert [request.method for request in peer.received] == ["GET", method]


async def test_an_idle_connection_that_the_peer_closed_is_not_used() -> None:
    """A connection closed while idle costs the next call nothing, not even an attempt."""

    async def closing(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(response(b"{}"))
        await writer.drain()
        writer.close()

    async with serve(closing) as peer:
        client = Client("insurance", section(peer.url))
        for _ in range(3):
            await client.send(Request("write", "POST", "/things"))
            await asyncio.sleep(0.02)
        await client.aclose()
    assert (len(peer.received), peer.connections) == (3, 3)


async def test_a_connection_is_used_again() -> None:
    """Calls one after the other share a connection, after errors with a short body as well."""

    async def mixed(request: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(response(b'{"error":"no"}', "503 No" if request.path == "/bad" else "200 OK"))
        await writer.drain()

    async with serve(mixed) as peer:
        client = Client("insurance", section(peer.url))
        for name in ("good", "bad", "good"):
            try:
                await client.send(Request("read", "GET", f"/{name}"))
            except SystemUnavailable as error:
                assert error.kind == "http_503"  # noqa: PT017  raised by one of the three only
        await client.aclose()
    assert (len(peer.received), peer.connections) == (3, 1)
