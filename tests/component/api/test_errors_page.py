"""docs/errors.md: what it quotes is what the service says, provoked here one by one in the order of the page."""

import asyncio
import re
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import asyncpg
import pytest

from app.api.kinds import Kind
from app.db import migrate, open_database
from app.embedded import EmbeddedPostgres, EmbeddedPostgresError
from app.occupied import Occupied, hold, listen
from app.refused import DatabaseRefused
from app.settings import ConfigError, load_settings
from app.wiring import check_wiring
from tests.component.cli.terminal import terminal
from tests.processes import free_port

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/errors.md").read_text()

CONFIGURATIONS = (
    {"ORDERS_PG__POOL__MAXX": "3"},
    {"ORDERS_CLIENT__NOBODY__BASE_URL": "http://a"},
    {"ORDERS_API__PORT": "99999"},
    {"ORDERS_CONFIG": str(ROOT / "config/examples/too-many-connections.yml")},
    {"ORDERS_CLIENT__SBER__TOTAL_TIMEOUT": "2"},
    {"ORDERS_TASKS__PAYMENT_TASK__LEASE": "5"},
    {"ORDERS_API__HOST": "0.0.0.0"},
    {"ORDERS_API__PUBLIC_URL": "shop.example"},
    {"ORDERS_PG__DSN": "mysql://a"},
    {"ORDERS_CONFIG": "/nowhere/orders.yml"},
    {"ORDERS_CONFIG": "bad.yml"},
    {"ORDERS_PG__DSN": "postgresql://a/orders", "ORDERS_PG__PGBOUNCER": "true"},
)


def quoted(heading: str) -> list[str]:
    """The first cell of each row below the heading."""
    section = PAGE.split(f"\n## {heading}")[1].split("\n## ")[0]
    return re.findall(r"^\| `(.+?)` \|", section, re.MULTILINE)


def says(quote: str, words: str) -> bool:
    return re.search(re.escape(quote).replace("…", ".*"), words) is not None


@pytest.mark.parametrize(("quote", "environ"), list(zip(quoted("The configuration"), CONFIGURATIONS, strict=True)))
async def test_configurations(
    quote: str, environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A configuration is refused in the words of the page."""
    monkeypatch.chdir(tmp_path)
    Path("bad.yml").write_text("pg: [\n")
    with pytest.raises(ConfigError) as refused:
        await start(environ)
    assert says(quote, str(refused.value))


async def start(environ: dict[str, str]) -> None:
    """As far as a start goes before anything is reached."""
    settings = load_settings(environ)
    check_wiring(settings)
    async with open_database(settings.pg, application_name="orders-test") as database:
        await migrate(database)


def taken(_place: Path) -> None:
    with closing(listen("127.0.0.1", 0)) as holder:
        listen("127.0.0.1", holder.getsockname()[1])


def foreign_address(_place: Path) -> None:
    listen("192.0.2.1", free_port())


def no_directory(place: Path) -> None:
    (place / "file").touch()
    EmbeddedPostgres(place / "file" / "data").start()


def other_version(place: Path) -> None:
    (place / "data").mkdir()
    (place / "data" / "PG_VERSION").write_text("14\n")
    EmbeddedPostgres(place / "data").start()


def worked_on(place: Path) -> None:
    with hold(place / "data", alone=True), hold(place / "data", alone=False):
        pass


PLACES = (taken, foreign_address, no_directory, other_version, worked_on)


@pytest.mark.parametrize(("quote", "provoke"), list(zip(quoted("An address"), PLACES, strict=True)))
def test_places(quote: str, provoke: Callable[[Path], None], tmp_path: Path) -> None:
    """An address or a directory that is not to be had is refused in the words of the page."""
    with pytest.raises((Occupied, EmbeddedPostgresError)) as refused:
        provoke(tmp_path)
    assert says(quote, str(refused.value))


@asynccontextmanager
async def server_that(answers: bytes | None) -> AsyncIterator[str]:
    """A peer that gives every connection this answer and hangs up, or none at all; yields a DSN."""

    connections = []

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        await reader.read(4096)
        if answers is not None:
            writer.write(answers)
            writer.close()

    async with await asyncio.start_server(peer, "127.0.0.1", 0) as server:
        yield f"postgresql://shop:secret@127.0.0.1:{server.sockets[0].getsockname()[1]}/orders?sslmode=disable"
        for connection in connections:
            connection.close()


def refusal(code: str, words: str) -> bytes:
    """PostgreSQL's ErrorResponse."""
    fields = b"".join(f"{name}{value}\0".encode() for name, value in (("S", "FATAL"), ("C", code), ("M", words)))
    return b"E" + struct.pack("!i", len(fields) + 5) + fields + b"\0"


async def told(dsn: str, **environ: str) -> str:
    """What readiness and the commands say of this database."""
    pg = load_settings({"ORDERS_PG__DSN": dsn, "ORDERS_PG__PING_TIMEOUT": "0.5", **environ}).pg
    async with open_database(pg, application_name="orders-test") as database:
        return str(await database.ping() or await database.schema_behind())


async def nobody_listens(_dsn: str) -> str:
    return await told(f"postgresql://a@127.0.0.1:{free_port()}/orders")


async def no_socket(_dsn: str) -> str:
    return await told("postgresql://a@/orders?host=%2Fnowhere")


async def no_such_host(_dsn: str) -> str:
    return await told("postgresql://a@no-such-host.invalid/orders")


async def silent(_dsn: str) -> str:
    async with server_that(None) as dsn:
        return await told(dsn)


async def wrong_password(_dsn: str) -> str:
    async with server_that(refusal("28P01", 'password authentication failed for user "shop"')) as dsn:
        return await told(dsn)


async def wrong_user(_dsn: str) -> str:
    async with server_that(refusal("28000", 'role "shop" does not exist')) as dsn:
        return await told(dsn)


async def wrong_database(dsn: str) -> str:
    return await told(re.sub(r"/\w+(?=$|\?)", "/no_such_database", dsn))


async def no_rights(dsn: str) -> str:
    connection = await asyncpg.connect(dsn)
    role = f"reader_{connection.get_server_pid()}"
    await connection.execute(f"CREATE ROLE {role}; REVOKE CREATE ON SCHEMA public FROM public")
    await connection.execute(f"GRANT {role} TO CURRENT_USER")
    pg = load_settings({"ORDERS_PG__DSN": dsn}).pg
    try:
        await connection.execute(f"ALTER DATABASE {dsn_name(dsn)} SET role = {role}")
        async with open_database(pg, application_name="orders-test") as database:
            with pytest.raises(DatabaseRefused) as refused:
                await migrate(database)
            return str(refused.value)
    finally:
        await connection.execute(f"ALTER DATABASE {dsn_name(dsn)} RESET role; DROP ROLE {role}")
        await connection.close()


def dsn_name(dsn: str) -> str:
    return dsn.rsplit("/", 1)[1].split("?", maxsplit=1)[0]


async def not_migrated(dsn: str) -> str:
    return await told(dsn)


async def pool_in_use(dsn: str) -> str:
    pg = load_settings(
        {
            "ORDERS_PG__DSN": dsn,
            "ORDERS_PG__POOL__ACQUIRE_TIMEOUT": "0.05",
            "ORDERS_PG__POOL__MAX": "80",
        }
    ).pg
    pg = pg.model_copy(update={"pool": pg.pool.model_copy(update={"max": 1})})
    async with open_database(pg, application_name="orders-test") as database, database.engine.connect():
        return str(await database.ping())


COMMANDS = (
    ("serve", "--role", "worker"),
    ("migrate",),
    ("tasks", "list", "--task", "nonsense"),
    ("tasks", "show", "payment_task", "7"),
    ("tasks", "retry", "payment_task", "7"),
    ("orders", "show", "7"),
    ("systems", "--url", "http://127.0.0.1:1"),
)


@pytest.mark.parametrize(("quote", "arguments"), list(zip(quoted("Commands"), COMMANDS, strict=True)))
def test_commands(
    quote: str,
    arguments: tuple[str, ...],
    pg_dsn: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A command that has nothing to work on, or on the wrong database, says so in the words of the page."""
    operator = terminal(monkeypatch, capsys)
    if "pg.dsn" in quote:
        operator.set(ORDERS_PG__DATA_DIR="/nowhere/postgres")
    else:
        operator.set(ORDERS_PG__DSN=pg_dsn)
    done = operator.run(*arguments)
    assert says(quote, re.sub(r"[\s│]+", " ", done.err)), done.err
    assert done.code == (2 if arguments[0] == "serve" or "nonsense" in quote else 3)


DATABASES = (
    *(nobody_listens, no_socket, no_such_host, silent, wrong_password, wrong_user, wrong_database),
    *(no_rights, not_migrated, pool_in_use),
)


@pytest.mark.parametrize(("quote", "provoke"), list(zip(quoted("The database"), DATABASES, strict=True)))
async def test_databases(quote: str, provoke: Callable[[str], Awaitable[str]], empty_dsn: str) -> None:
    """What keeps the database from working is said in the words of the page, and without the password."""
    words = await provoke(empty_dsn)
    assert says(quote, words), words
    assert "secret" not in words


def test_http_problems() -> None:
    """The table of problems is the catalogue, kind by kind."""
    assert list(table()) == [
        f"| {k.status.value} | `/problems/{k.slug}` | {k.title} | {k.meaning} | {k.cure} | {k.repeat} |" for k in Kind
    ]


def table() -> Iterator[str]:
    yield from re.findall(r"^\| \d{3} \| `/problems/.*$", PAGE, re.MULTILINE)


def test_exit_codes() -> None:
    """The codes of the page are the commands' own."""
    from app.cli.commands import CONFIG_REFUSED, TERMINATED  # noqa: PLC0415  a heavy module for one test
    from app.cli.output import CANNOT_RUN, NOT_READ  # noqa: PLC0415

    stated = {
        int(code)
        for row in re.findall(r"^\| ([\d, ]+) \|", PAGE.split("\n## ")[1], re.MULTILINE)
        for code in row.split(",")
    }
    assert stated == {0, 1, CONFIG_REFUSED, CANNOT_RUN, 130, NOT_READ, TERMINATED}
