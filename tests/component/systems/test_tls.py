import ssl
from datetime import UTC, datetime

import pytest
import trustme

from app.orders.ports import InvalidAnswer, SystemUnavailable
from app.systems.client import Client
from app.systems.request import Request
from tests.component.systems.hostile import response, say, serve
from tests.component.systems.sections import QUICK, section

GET = Request("read", "GET", "/thing")
PAST = datetime(2001, 1, 1, tzinfo=UTC)

authority, stranger = trustme.CA(), trustme.CA()


def server(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificate.configure_cert(context)
    return context


def trusting(ca: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    ca.configure_trust(context)
    return context


async def test_a_trusted_certificate_is_accepted() -> None:
    """With the right authority the call goes through."""
    async with serve(say(response(b"{}")), server(authority.issue_cert("localhost"))) as peer:
        client = Client("insurance", section(peer.url), trusting(authority))
        assert await client.send(GET) == b"{}"
        await client.aclose()


@pytest.mark.parametrize(
    "certificate",
    [
        stranger.issue_cert("localhost"),
        authority.issue_cert("elsewhere.example"),
        authority.issue_cert("localhost", not_before=PAST, not_after=PAST.replace(year=2002)),
    ],
    ids=["of a stranger", "of another host", "expired"],
)
async def test_a_wrong_certificate_is_a_call_not_made(certificate: trustme.LeafCert) -> None:
    """A certificate that does not prove who answers ends the call before anything is sent."""
    async with serve(say(response(b"{}")), server(certificate)) as peer:
        client = Client("insurance", section(peer.url), trusting(authority))
        with pytest.raises(SystemUnavailable) as raised:
            await client.send(GET)
        await client.aclose()
    assert (raised.value.kind, raised.value.call_made) == ("tls", False)
    assert peer.received == []


async def test_the_public_authorities_are_trusted_by_default() -> None:
    """Without a context of its own a client does not trust a private authority."""
    async with serve(say(response(b"{}")), server(authority.issue_cert("localhost"))) as peer:
        client = Client("insurance", section(peer.url))
        with pytest.raises(SystemUnavailable) as raised:
            await client.send(GET)
        await client.aclose()
    assert raised.value.kind == "tls"


async def test_a_plain_server_under_https_is_a_call_not_made() -> None:
    """A server that does not speak TLS is told apart from one that does not listen."""
    async with serve(say(response(b"{}"))) as peer:
        client = Client("insurance", section(peer.url.replace("http:", "https:"), **QUICK), trusting(authority))
        with pytest.raises(SystemUnavailable) as raised:
            await client.send(GET)
        await client.aclose()
    assert not raised.value.call_made


async def test_a_tls_server_under_http_is_an_error_of_its_own() -> None:
    """A plain request to a TLS server ends as a port error."""
    async with serve(say(response(b"{}")), server(authority.issue_cert("localhost"))) as peer:
        client = Client("insurance", section(peer.url.replace("https:", "http:")))
        with pytest.raises((SystemUnavailable, InvalidAnswer)):
            await client.send(GET)
        await client.aclose()
