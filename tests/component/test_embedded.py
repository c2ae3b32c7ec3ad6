"""The embedded PostgreSQL: who starts it, who stops it, and what it survives."""

import asyncio
import os
import shutil
import signal
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import asyncpg
import pytest

from app.db import migrate, open_database
from app.embedded import EmbeddedPostgres, EmbeddedPostgresError
from app.settings import load_settings

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]

USE_AND_DIE = """
import os, signal, sys
from pathlib import Path
from urllib.parse import unquote
from app.embedded import EmbeddedPostgres
EmbeddedPostgres(Path(sys.argv[1])).start()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def directory() -> Iterator[Path]:
    """A short path: pytest's own is too long for a socket. Whatever still runs there is stopped."""
    directory = Path(tempfile.mkdtemp(prefix="orders-test-"))
    yield directory
    for data in {path.parent for path in directory.rglob("postmaster.pid")}:
        last = EmbeddedPostgres(data)
        last.start()
        last.stop()
    shutil.rmtree(directory)


async def answers(dsn: str) -> bool:
    try:
        connection = await asyncpg.connect(dsn)
    except (OSError, asyncpg.PostgresError):
        return False
    await connection.close()
    return True


async def test_it_is_there_without_any_configuration(directory: Path) -> None:
    """Without a DSN the service brings its own PostgreSQL, with its database, and stops it at the end."""
    pg = load_settings({"ORDERS_PG__DATA_DIR": str(directory / "new" / "postgres")}).pg
    async with open_database(pg, application_name="test") as database:
        assert await database.ping() is None
        assert await migrate(database)
    assert not await answers(database.dsn)
    async with open_database(pg, application_name="test") as database:
        assert await database.schema_behind() is None


async def test_the_last_user_stops_it(directory: Path) -> None:
    """Two users share one server; it runs until both are gone, and a second stop is harmless."""
    first, second = EmbeddedPostgres(directory / "pg"), EmbeddedPostgres(directory / "pg")
    dsn = first.start()
    assert second.start() == dsn
    first.stop()
    first.stop()
    assert await answers(dsn)
    second.stop()
    assert not await answers(dsn)


async def test_a_killed_user_does_not_count(directory: Path) -> None:
    """A server whose user was killed goes on; the next user finds it and, being the last, stops it."""
    killed = await asyncio.create_subprocess_exec(sys.executable, "-c", USE_AND_DIE, str(directory / "pg"), cwd=ROOT)
    assert await killed.wait() == -signal.SIGKILL
    next_user = EmbeddedPostgres(directory / "pg")
    pid = (directory / "pg" / "postmaster.pid").read_text().splitlines()[0]
    dsn = next_user.start()
    assert (directory / "pg" / "postmaster.pid").read_text().splitlines()[0] == pid
    next_user.stop()
    assert not await answers(dsn)


@pytest.mark.parametrize("owner", ["nobody any more", "somebody else"])
async def test_a_killed_server_is_started_again(directory: Path, owner: str) -> None:
    """After a crash it starts, also when its process number has been given to another process meanwhile."""
    data = directory / "pg"
    user = EmbeddedPostgres(data)
    dsn = user.start()
    number, *rest = (data / "postmaster.pid").read_text().splitlines()
    os.kill(int(number), signal.SIGKILL)
    account = data.stat().st_uid if os.geteuid() == 0 else None
    stranger = await asyncio.create_subprocess_exec("sleep", "60", user=account)
    if owner == "somebody else":
        (data / "postmaster.pid").write_text("\n".join([str(stranger.pid), *rest, ""]))
    user.stop()
    assert user.start() == dsn
    assert await answers(dsn)
    user.stop()
    stranger.kill()
    await stranger.wait()


async def test_a_long_path_is_no_obstacle(directory: Path) -> None:
    """Where the data directory is too deep for a socket, or has a comma, the socket is elsewhere, no less private."""
    data = directory / ("long" * 25) / "with, comma" / "pg"
    user = EmbeddedPostgres(data)
    dsn = user.start()
    assert await answers(dsn)
    user.stop()
    socket_dir = Path(unquote(dsn.split("host=")[1]))
    assert stat.S_IMODE(socket_dir.stat().st_mode) == 0o700
    assert socket_dir.stat().st_uid == data.stat().st_uid
    socket_dir.rmdir()


def test_other_files_are_left_alone(directory: Path) -> None:
    """A directory with something else in it is refused and stays as it is."""
    (directory / "pg").mkdir()
    (directory / "pg" / "letter.txt").write_text("dear")
    with pytest.raises(EmbeddedPostgresError, match="not empty"):
        EmbeddedPostgres(directory / "pg").start()
    assert [path.name for path in (directory / "pg").iterdir()] == ["letter.txt"]


def test_a_failed_start_says_why(directory: Path) -> None:
    """When PostgreSQL does not start, its own last words are in the error."""
    user = EmbeddedPostgres(directory / "pg")
    user.start()
    user.stop()
    with (directory / "pg" / "postgresql.conf").open("a") as config:
        config.write("no_such_setting = on\n")
    with pytest.raises(EmbeddedPostgresError, match="no_such_setting"):
        user.start()


def test_others_cannot_look_into_the_data(directory: Path) -> None:
    """Whoever may connect is trusted, so the socket and the data are behind a door for their owner only."""
    user = EmbeddedPostgres(directory / "pg")
    user.start()
    user.stop()
    assert stat.S_IMODE((directory / "pg").stat().st_mode) == 0o700
