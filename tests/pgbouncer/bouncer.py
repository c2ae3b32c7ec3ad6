"""A PgBouncer of our own before the tests' server, in transaction mode and with few sessions to share."""

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest

from tests.processes import free_port, wait_until

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
KEEPS_STATEMENTS = (1, 21)
"""The version from which on PgBouncer carries a client's prepared statements from session to session."""

SESSIONS = 8
"""How many sessions the clients of one database share: fewer than a service's pool has connections."""


@dataclass(frozen=True)
class Bouncer:
    port: int

    def through(self, dsn: str) -> str:
        """The DSN's database by way of PgBouncer; as whom it logs in there is its own configuration's business."""
        return f"postgresql://anybody@127.0.0.1:{self.port}{urlsplit(dsn).path}?sslmode=disable"


@contextmanager
def bouncing(server_dsn: str, directory: Path, *, max_prepared_statements: int) -> Iterator[Bouncer]:
    """Run a PgBouncer; skips the test where none is installed, or one that is too old for what is asked of it."""
    if PROGRAM is None:
        pytest.skip("pgbouncer is not installed: apt-get install pgbouncer")
    statements = {"max_prepared_statements": max_prepared_statements}
    if (found := version(PROGRAM)) < KEEPS_STATEMENTS:
        if max_prepared_statements:
            pytest.skip(f"pgbouncer {'.'.join(map(str, found))} knows no max_prepared_statements")
        statements = {}
    port, config, log = free_port(), directory / "pgbouncer.ini", directory / "pgbouncer.log"
    config.write_text(configuration(server_dsn, {"listen_port": port, **statements}))
    account = ["-u", "nobody"] if os.geteuid() == 0 else []
    with log.open("wb") as output:
        popen = subprocess.Popen([PROGRAM, *account, config], stdout=output, stderr=subprocess.STDOUT)

    def listens() -> bool:
        if popen.poll() is not None:
            raise AssertionError(f"pgbouncer ended with {popen.returncode}: {log.read_text()}")
        with closing(socket.socket()) as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_until(listens, 10, "pgbouncer listens")
        yield Bouncer(port)
    finally:
        popen.kill()
        popen.wait()


def version(program: str) -> tuple[int, int]:
    told = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"(\d+)\.(\d+)", told)
    assert found is not None, told
    return int(found[1]), int(found[2])


def configuration(server_dsn: str, more: dict[str, int]) -> str:
    server = " ".join(f"{key}={quoted(value)}" for key, value in address(server_dsn).items())
    settings = {
        "listen_addr": "127.0.0.1",
        "unix_socket_dir": "",
        "auth_type": "any",
        "pool_mode": "transaction",
        "default_pool_size": SESSIONS,
        "max_client_conn": 500,
        **more,
    }
    lines = [f"{key} = {value}" for key, value in settings.items()]
    return "\n".join(["[databases]", f"* = {server}", "[pgbouncer]", *lines, ""])


def address(dsn: str) -> dict[str, str]:
    """Where a DSN leads and as whom, in PgBouncer's words; the host may be a directory with a socket in it."""
    url = urlsplit(dsn)
    query = dict(parse_qsl(url.query))
    found = {
        "host": url.hostname or query.get("host", "127.0.0.1"),
        "port": str(url.port or query.get("port", 5432)),
        "user": unquote(url.username or query.get("user", "postgres")),
    }
    password = unquote(url.password or query.get("password", ""))
    return found | ({"password": password} if password else {})


def quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
