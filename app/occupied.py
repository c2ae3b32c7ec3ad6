"""What another process may already have: an address, or the orders in the embedded database."""

import errno
import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from app.embedded import cannot_use

BACKLOG = 2048
PORTS = 65_536

CURES: dict[int | None, str] = {
    errno.EADDRINUSE: "Stop what listens there, or choose another port with --port; 0 takes a free one",
    errno.EACCES: "Choose a port above 1023 with --port; those below are the system's",
}
"""What to do about an address that cannot be taken, by the kernel's error code."""


class Occupied(Exception):
    """Something that this process needs is not to be had; the message says what, and what to do."""


def listen(host: str, port: int) -> socket.socket:
    """Take the address: callers wait in its queue until a server answers them. Port 0 takes a free one.

    Raises Occupied.
    """
    host = host.strip("[]")
    # asyncio turns Nagle's algorithm off only for sockets that name their protocol
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise no_address(host, port, error) from error
    return listener


def listen_nearby(host: str, port: int, tries: int = 50) -> socket.socket:
    """Take the first free port from `port` on. Raises Occupied when `tries` ports are taken."""
    for candidate in range(port, min(port + tries, PORTS)):
        with suppress(Occupied):
            return listen(host, candidate)
    raise Occupied(f"no port from {port} on is free on {host}: stop what listens there")


def no_address(host: str, port: int, error: OSError) -> Occupied:
    """The words for an address that could not be taken."""
    reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.strerror).partition(" (")[0]
    cure = CURES.get(error.errno, "Choose an address of this machine with --host: 127.0.0.1, or 0.0.0.0 for all")
    return Occupied(f"cannot listen on {host} port {port}: {reason}. {cure}")


@contextmanager
def hold(data_dir: Path, *, alone: bool) -> Iterator[None]:
    """Work on the orders in the embedded database, with others or `alone`; a killed process holds nothing.

    Whoever brings external systems of its own must be alone: others would take tasks that its systems know to theirs.
    Raises Occupied.
    """
    with _beside(data_dir) as file:
        try:
            fcntl.flock(file, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            other = "another demo or a service" if alone else "a demo"
            raise Occupied(
                f"{other} works on the orders in {data_dir}. Stop it, or set ORDERS_PG__DATA_DIR to another directory"
            ) from None
        yield


def _beside(data_dir: Path) -> IO[bytes]:
    try:
        data_dir.parent.mkdir(parents=True, exist_ok=True)
        return data_dir.with_name(f"{data_dir.name}.orders").open("ab")
    except OSError as error:
        raise Occupied(cannot_use(data_dir, error)) from error
