"""Which addresses a webhook may reach, by table and with real sockets."""

import socket

import pytest

from app.outbox.address import is_public, public_socket
from app.resilience import Unavailable
from tests.component.outbox.receiver import ok, webhook_to
from tests.component.outbox.test_webhook import EVENT
from tests.component.systems.hostile import serve

PRIVATE = [
    *("127.0.0.1", "127.255.255.254", "0.0.0.0", "0.1.2.3", "10.0.0.1", "172.16.0.1", "172.31.255.255"),
    *("192.168.0.1", "169.254.169.254", "100.64.0.1", "198.18.0.1", "192.0.2.1", "198.51.100.1", "203.0.113.1"),
    *("224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255"),
    *("::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12:3456::1", "fec0::1", "ff02::1", "ff0e::1"),
    *("2001:db8::1", "100::1", "2001::1", "5f00::1", "4000::1"),
    *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1"),
    *("64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::", "2002:a00:1::1"),
]
PUBLIC = [
    *("1.1.1.1", "8.8.8.8", "172.15.255.255", "172.32.0.1", "100.63.255.255", "100.128.0.1", "193.0.0.1"),
    *("2606:4700:4700::1111", "2a00:1450::1", "::ffff:8.8.8.8", "64:ff9b::808:808"),
]


@pytest.mark.parametrize("address", PRIVATE)
def test_not_public(address: str) -> None:
    """This machine's addresses, its networks', a group's, a document's, and those that only wrap one of them."""
    assert not is_public(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_public(address: str) -> None:
    """Addresses of the internet, also where they stand beside a private network or inside IPv6."""
    assert is_public(address)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "0.0.0.0", "127.1", "2130706433", "0x7f000001", "[::ffff:127.0.0.1]", "[::1]"]
)
async def test_no_spelling_reaches_this_machine(host: str) -> None:
    """Whatever a host is written as, it is judged by the address that would be connected to: nobody sees a connection.

    The check stands between the resolver and the connection, so that a name cannot change its meaning after it.
    """
    async with serve(ok) as peer:
        port = peer.url.rsplit(":", 1)[1]
        async with webhook_to(f"http://{host}:{port}/hook", webhook__allow_private="false") as webhook:
            with pytest.raises(Unavailable, match=r"is not a public address|no answer: InvalidUrl"):
                await webhook.publish(EVENT)
    assert peer.connections == 0


async def test_the_refusal_says_why() -> None:
    """An operator who means an address of the own network reads what forbids it."""
    async with serve(ok) as peer, webhook_to(f"{peer.url}/hook", webhook__allow_private="false") as webhook:
        with pytest.raises(Unavailable, match=r"127\.0\.0\.1 is not a public address"):
            await webhook.publish(EVENT)


def test_a_socket_is_made_for_a_public_address_only() -> None:
    """What the connector hands over right before it connects is what is checked, for both families."""
    with public_socket((socket.AF_INET, socket.SOCK_STREAM, 6, "", ("8.8.8.8", 443))) as made:
        assert (made.family, made.type) == (socket.AF_INET, socket.SOCK_STREAM)
    with public_socket((socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("2606:4700::1", 443, 0, 0))) as made:
        assert made.family == socket.AF_INET6
    for family, address in ((socket.AF_INET, ("10.0.0.1", 80)), (socket.AF_INET6, ("::1", 80, 0, 0))):
        with pytest.raises(PermissionError, match="not a public address"):
            public_socket((family, socket.SOCK_STREAM, 6, "", address))
