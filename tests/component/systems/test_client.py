import asyncio

import pytest
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, use_span

from app.orders.ports import InvalidAnswer, SystemUnavailable
from app.systems.client import Client
from app.systems.request import Request, path
from tests.component.systems import hostile
from tests.component.systems.hostile import Received, response, say, serve
from tests.component.systems.sections import QUICK, section

GET = Request("read", "GET", "/thing")
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")


@pytest.mark.rule("ISO-2", "ISO-X2")
async def test_limits_and_timeouts_are_the_sections() -> None:
    """Nothing is left to a library's default: pool size and timeouts are those of the section."""
    client = Client("insurance", section("http://127.0.0.1:1", **QUICK, max_concurrent=6))
    assert client._connector.limit == 8
    assert client._connector.limit_per_host == 0
    assert client._timeout == {"connect": 0.2, "pool": 0.2, "read": 0.4, "write": 0.4}
    assert not client._session.trust_env
    await client.aclose()


async def test_a_full_pool_is_a_call_not_made() -> None:
    """With every connection taken a further call ends at the connect timeout, and the system never saw it."""
    async with serve(hostile.hang) as peer:
        client = Client("insurance", section(peer.url, max_concurrent=1, connect_timeout=0.3))
        taken = [asyncio.create_task(client.send(GET)) for _ in range(2)]
        await peer.has_received(2)
        with pytest.raises(SystemUnavailable) as raised:
            await client.send(GET)
        assert (raised.value.kind, raised.value.call_made) == ("connect_timeout", False)
        assert len(peer.received) == 2
        for task in taken:
            task.cancel()
        await asyncio.wait(taken)
        assert client.connections_in_use == 0
        await client.aclose()


async def test_no_cookie_is_kept() -> None:
    """A Set-Cookie is forgotten, whatever domain it names."""
    cookies = response(b"{}", Set_Cookie="session=1; Path=/; Domain=127.0.0.1", Set_cookie="other=2")
    async with serve(say(cookies)) as peer:
        client = Client("insurance", section(peer.url))
        for _ in range(3):
            await client.send(GET)
        await client.aclose()
    assert [request.headers.get("cookie") for request in peer.received] == [None] * 3


async def test_a_redirect_is_not_followed() -> None:
    """The host that a redirect names is never asked, with any method."""
    async with (
        serve(say(response(b"{}"))) as other,
        serve(say(response(status="307 Moved", Location=f"{other.url}/thing"))) as peer,
    ):
        client = Client("insurance", section(peer.url))
        for request in (GET, Request("write", "POST", "/thing", key="k-1")):
            with pytest.raises(InvalidAnswer) as raised:
                await client.send(request)
            assert raised.value.kind == "redirect"
        await client.aclose()
    assert (len(peer.received), len(other.received)) == (2, 0)


async def test_the_environment_neither_diverts_nor_authorises(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Proxy variables and a netrc file change nothing: the system itself is asked, without credentials."""
    netrc = tmp_path_factory.mktemp("home") / "netrc"
    netrc.write_text("default login somebody password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    async with serve(say(response(b"{}"))) as proxy, serve(say(response(b"{}"))) as peer:
        for name in PROXIES:
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.delenv("NO_PROXY", raising=False)
        client = Client("insurance", section(peer.url))
        await client.send(GET)
        await client.aclose()
    assert (len(peer.received), len(proxy.received)) == (1, 0)
    assert "authorization" not in peer.received[0].headers


@pytest.mark.rule("OBS-2")
async def test_what_a_request_carries() -> None:
    """Key and trace context go out, nothing asks for compression, and no id can leave its place in the path."""
    parent = SpanContext(0xA, 0xB, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    request = Request("write", "POST", path("things", "a/../b?c#d%2F é", 7), key="k-1")
    async with serve(say(response(b"{}"))) as peer:
        client = Client("insurance", section(f"{peer.url}/prefix"))
        with use_span(NonRecordingSpan(parent)):
            await client.send(request)
        await client.send(GET)
        await client.aclose()
    first, second = peer.received
    assert first.path == "/prefix/things/a%2F..%2Fb%3Fc%23d%252F%20%C3%A9/7"
    assert first.headers["idempotency-key"] == "k-1"
    assert first.headers["traceparent"] == f"00-{0xA:032x}-{0xB:016x}-01"
    assert second.path == "/prefix/thing"
    assert second.headers.keys() == {"host", "accept", "accept-encoding", "user-agent"}
    assert (second.headers["accept-encoding"], second.headers["accept"]) == ("identity", "application/json")


async def test_an_answer_may_be_as_long_as_the_section_says() -> None:
    """The limit on an answer's size is inclusive."""
    async with serve(say(response(b"x" * 100))) as peer:
        exact = Client("insurance", section(peer.url, max_response_bytes=100))
        assert await exact.send(GET) == b"x" * 100
        await exact.aclose()
        short = Client("insurance", section(peer.url, max_response_bytes=99))
        with pytest.raises(InvalidAnswer) as raised:
            await short.send(GET)
        await short.aclose()
    assert raised.value.kind == "too_large"


async def test_an_answer_to_nobody_is_not_taken_for_the_next_calls() -> None:
    """What a peer sends unasked on an idle connection closes that connection; each call gets its own answer."""

    async def talkative(request: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(response(request.path.encode()))
        await writer.drain()
        await asyncio.sleep(0.02)
        writer.write(response(b"unasked"))

    async with serve(talkative) as peer:
        client = Client("insurance", section(peer.url))
        for number in range(5):
            answered = await client.send(Request("read", "GET", path(number)))
            await asyncio.sleep(0.05)
            assert answered == f"/{number}".encode()
        await client.aclose()
    assert peer.connections == 5
