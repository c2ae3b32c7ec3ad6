"""Addresses on the public internet, and sockets that connect to nothing else."""

import errno
import socket
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any

AddressInfo = tuple[int, int, int, str, tuple[Any, ...]]
"""Family, type, protocol, canonical name and socket address, as getaddrinfo gives them."""

GLOBAL_UNICAST = IPv6Network("2000::/3")
NAT64 = IPv6Network("64:ff9b::/96")


def is_public(address: str) -> bool:
    """Whether the numeric address is one that everybody can have: not of this machine, its networks, or a group.

    An IPv4 address inside an IPv6 address is judged as what it is: there is where the packets go.
    """
    ip = ip_address(address)
    if isinstance(ip, IPv6Address):
        inner = _inner(ip)
        if inner is None:
            return ip in GLOBAL_UNICAST and ip.is_global
        ip = inner
    return ip.is_global and not ip.is_multicast


def public_socket(info: AddressInfo) -> socket.socket:
    """A socket for the address that is about to be connected to; raises PermissionError if it is not public.

    Names are resolved before, so nothing can change between this check and the connection.
    """
    family, kind, protocol, _, sockaddr = info
    address = str(sockaddr[0])
    if not is_public(address):
        raise PermissionError(errno.EACCES, f"{address} is not a public address")
    return socket.socket(family, kind, protocol)


def _inner(ip: IPv6Address) -> IPv4Address | None:
    if ip in NAT64:
        return IPv4Address(int(ip) & 0xFFFF_FFFF)
    return ip.ipv4_mapped or ip.sixtofour
