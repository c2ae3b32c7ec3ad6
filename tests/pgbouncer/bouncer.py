"""A PgBouncer before a database of the tests' server: in transaction mode, and with few sessions to share."""

import os
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest

from tests.processes import free_port, wait_until
from tests.tools import installed

SESSIONS = 8
"""All clients share so many sessions of PostgreSQL: a service's pool has more connections than that."""

KNOWS_STATEMENTS = (1, 21)
"""From this version on PgBouncer has the setting max_prepared_statements."""


@contextmanager
def bouncing(dsn: str, directory: Path, *, max_prepared_statements: int) -> Iterator[str]:
    """Run a PgBouncer before the DSN's database; yields the DSN that leads through it.

    Skips the test where no PgBouncer is installed, or one that is too old for what is asked of it.
    """
    program = installed("pgbouncer", "apt-get install pgbouncer")
    port, config, log = free_port(), directory / "pgbouncer.ini", directory / "pgbouncer.log"
    config.write_text(configuration(dsn, {"listen_port": port} | statements(program, max_prepared_statements)))
    account = ["-u", "nobody"] if os.geteuid() == 0 else []  # it refuses to run as root
    with log.open("wb") as output:
        popen = subprocess.Popen([program, *account, config], stdout=output, stderr=subprocess.STDOUT)

    def listens() -> bool:
        if popen.poll() is not None:
            raise AssertionError(f"pgbouncer ended with {popen.returncode}: {log.read_text()}")
        with closing(socket.socket()) as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_until(listens, 10, "pgbouncer listens")
        yield f"postgresql://anybody@127.0.0.1:{port}{urlsplit(dsn).path}?sslmode=disable"
    finally:
        popen.kill()
        popen.wait()


def statements(program: str, most: int) -> dict[str, int]:
    """The setting max_prepared_statements, if this PgBouncer knows it; without it, it behaves as with 0."""
    told = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout
    version = re.search(r"(\d+)\.(\d+)", told)
    assert version is not None, told
    if (int(version[1]), int(version[2])) >= KNOWS_STATEMENTS:
        return {"max_prepared_statements": most}
    if most:
        pytest.skip(
            f"pgbouncer {version[0]} has no max_prepared_statements (1.21 has: Debian 13, or PostgreSQL's own packages)"
        )
    return {}


def configuration(dsn: str, settings: dict[str, int]) -> str:
    """Whoever comes is let in, and is at the server whom the DSN names."""
    doubled = {name: value.replace("'", "''") for name, value in address(dsn).items()}
    server = " ".join(f"{name}='{value}'" for name, value in doubled.items())
    return "\n".join(
        [
            "[databases]",
            f"* = {server}",
            "[pgbouncer]",
            "listen_addr = 127.0.0.1",
            "unix_socket_dir =",
            "auth_type = any",
            "pool_mode = transaction",
            f"default_pool_size = {SESSIONS}",
            "max_client_conn = 500",
            *(f"{name} = {value}" for name, value in settings.items()),
            "",
        ]
    )


def address(dsn: str) -> dict[str, str]:
    """Where a DSN leads and as whom, in PgBouncer's words; the host may be a directory with a socket in it."""
    url = urlsplit(dsn)
    query = dict(parse_qsl(url.query))
    found = {
        "host": url.hostname or query.get("host", "127.0.0.1"),
        "port": str(url.port or query.get("port", 5432)),
        "user": unquote(url.username or query.get("user", "postgres")),
        "password": unquote(url.password or query.get("password", "")),
    }
    return {name: value for name, value in found.items() if value}
