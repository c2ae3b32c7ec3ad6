"""The commands, as processes."""

import asyncio
import json
import re
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from subprocess import CompletedProcess, Popen
from typing import Any

import asyncpg
import httpx
import pytest

from app.occupied import hold, listen
from tests.commands import new_data_dir, run, started, wait_for

pytestmark = pytest.mark.slow

NOWHERE = "postgresql://orders:unspeakable@127.0.0.1:1/orders"

SIGNS = (".", "postgres.orders", "postgres.new", "postgres/PG_VERSION", "postgres/postmaster.pid")
"""Files that appear one after the other while a service starts with the embedded PostgreSQL."""


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody listens on."""
    with listen("127.0.0.1", 0) as listener:
        yield listener.getsockname()[1]


@pytest.fixture
def data_dir() -> Iterator[Path]:
    with new_data_dir() as data_dir:
        yield data_dir


def refused(done: CompletedProcess[str], code: int, *words: str) -> None:
    """It ended with the code, and said on stderr what the matter is, without a traceback."""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert [word for word in words if word not in done.stderr] == []


def address(output: Path, process: Popen[str]) -> str:
    """Where the service says that it serves."""
    wait_for(lambda: serving(output) is not None, process, output)
    line = serving(output)
    assert line is not None
    return f"http://127.0.0.1:{line['port']}"


def serving(output: Path) -> dict[str, Any] | None:
    """The line of the log that says where it serves, once it is there."""
    whole = [
        line for line in output.read_text().splitlines(keepends=True) if line.startswith("{") and line.endswith("\n")
    ]
    return next((said for said in map(json.loads, whole) if said["event"] == "serving"), None)


@pytest.mark.rule("ISO-2")
def test_check_config_shows_how_the_pools_add_up() -> None:
    """The default configuration is accepted, and each system's part in the sum is shown."""
    done = run("check-config")
    assert (done.returncode, done.stderr) == (0, "")
    rows = re.findall(r"(\w+) +│ (\d+) +│ (\d+) +│ (\d+) +│ (\d+)", done.stdout)
    assert rows[0] == ("insurance", "8", "10", "10", "40")
    assert [row[0] for row in rows] == ["insurance", "sber", "receipt", "odnakassa", "orderbook"]
    assert "pools: 30 <= pg.pool.max/2 = 80/2 = 40" in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.rule("ISO-2")
def test_pools_above_half_of_the_database_pool_are_refused(tmp_path: Path) -> None:
    """16, 8 and 8 concurrent calls do not fit a database pool of 40: refused, with the sum and the way out."""
    overlay = tmp_path / "overlay.yml"
    overlay.write_text(
        "pg: {pool: {max: 40}}\n"
        "client: {insurance: {max_concurrent: 16}, sber: {max_concurrent: 8}, receipt: {max_concurrent: 8}}\n"
    )
    terms = "insurance ceil(16*1.2)=20 + sber ceil(8*1.2)=10 + receipt ceil(8*1.2)=10"
    done = run("check-config", ORDERS_CONFIG=str(overlay))
    refused(done, 2, terms, "> pg.pool.max/2 = 40/2 = 20", "raise pg.pool.max")


@pytest.mark.rule("TO-1", "TO-X2")
@pytest.mark.parametrize("command", ["check-config", "serve", "migrate"])
def test_a_contradiction_is_refused_by_every_command(command: str) -> None:
    """Key, value and rule are named, whatever was about to be done with the configuration."""
    done = run(command, ORDERS_CLIENT__SBER__TOTAL_TIMEOUT="2")
    refused(done, 2, "client.sber.total_timeout = 2", "TO-X2")


def test_a_lease_shorter_than_a_call_is_refused() -> None:
    """What only the wiring knows, which table belongs to which system, is checked as well."""
    refused(
        run("check-config", ORDERS_TASKS__PAYMENT_TASK__LEASE="5"), 2, "tasks.payment_task.lease = 5", "client.sber"
    )


def test_an_open_address_without_authentication_is_refused() -> None:
    """What the command line says is checked like what the configuration says."""
    refused(run("serve", "--host", "0.0.0.0"), 2, "api.host = 0.0.0.0", "auth.mode")


@pytest.mark.parametrize("arguments", [("--role", "api"), ("--role", "worker"), ("--host", "0.0.0.0")], ids=" ".join)
def test_a_part_of_a_service_needs_a_database(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """What belongs to a larger service, or is reached by others, starts on no database that it made for itself."""
    keys = '[{"name": "a", "sha256": "' + "0a" * 32 + '", "scopes": ["orders:write"]}]'
    given = {"ORDERS_AUTH__MODE": "api_key", "ORDERS_AUTH__KEYS": keys}
    done = run("serve", "--port", "0", *arguments, ORDERS_PG__DATA_DIR=str(tmp_path / "postgres"), **given)
    refused(done, 2, "pg.dsn: needed with", arguments[1], "ORDERS_PG__DSN")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [("migrate",), ("invariants",), ("orders", "list"), ("orders", "show", "1")])
def test_no_command_makes_a_database(command: tuple[str, ...], tmp_path: Path) -> None:
    """Who forgot the DSN is told so, and is not answered out of a new and empty database."""
    refused(run(*command, ORDERS_PG__DATA_DIR=str(tmp_path / "postgres")), 3, "no pg.dsn is set", "ORDERS_PG__DSN")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["serve", "sandbox"])
def test_a_taken_port_is_named(command: str, taken: int) -> None:
    """Who wants a port that is taken learns which one, and what to do."""
    done = run(command, "--port", str(taken), ORDERS_PG__DSN=NOWHERE)
    refused(done, 3, f"127.0.0.1 port {taken}", "in use", "--port")


def test_an_address_of_another_machine_is_named() -> None:
    """An address that this machine does not have is refused in words, too."""
    done = run("sandbox", "--host", "192.0.2.1")
    refused(done, 3, "192.0.2.1 port 8100")


@pytest.mark.parametrize("command", [("migrate",), ("tasks", "list"), ("tasks", "retry", "payment_task", "1")])
def test_an_unreachable_database_is_said_to_be_so(command: tuple[str, ...]) -> None:
    """The message says what is wrong and where to look, and keeps the password."""
    done = run(*command, ORDERS_PG__DSN=NOWHERE)
    refused(done, 3, "the database cannot be reached", "ORDERS_PG__DSN")
    assert "unspeakable" not in done.stderr


def test_a_database_that_does_not_exist_is_said_to_be_so(server_dsn: str) -> None:
    """A server that answers and refuses is as good as none."""
    refused(run("tasks", "list", ORDERS_PG__DSN=f"{server_dsn}-not"), 3, "the database cannot be reached")


def test_migrate_brings_the_schema_up_once(empty_dsn: str) -> None:
    """Tasks cannot be listed before, only the first migration applies anything, and then they can."""
    refused(run("tasks", "list", ORDERS_PG__DSN=empty_dsn), 3, "python -m app migrate")
    first, second = (run("migrate", ORDERS_PG__DSN=empty_dsn) for _ in range(2))
    assert (first.returncode, first.stdout[:12], first.stderr) == (0, "applied 0001", "")
    assert (second.returncode, second.stdout) == (0, "the schema is up to date\n")
    assert run("tasks", "list", "--json", ORDERS_PG__DSN=empty_dsn).stdout == "[]\n"


def test_openapi_prints_the_schema() -> None:
    """The document needs neither a database nor a free port."""
    done = run("openapi", ORDERS_PG__DSN=NOWHERE)
    assert "post" in json.loads(done.stdout)["paths"]["/orders"]


def test_serve_waits_for_its_schema(empty_dsn: str, tmp_path: Path) -> None:
    """Started before the migration, the service lives, is not ready, says why, and gets ready when it has been done."""
    output = tmp_path / "output"
    with started("serve", "--port", "0", output=output, ORDERS_PG__DSN=empty_dsn, ORDERS_SHUTDOWN__LEAD="0") as process:
        url = address(output, process)
        assert httpx.get(f"{url}/health/live").status_code == 200
        answer = httpx.get(f"{url}/health/ready")
        assert answer.status_code == 503
        assert "migrate" in " ".join(answer.json()["problems"])
        assert "migrate" in output.read_text()
        assert run("migrate", ORDERS_PG__DSN=empty_dsn).returncode == 0
        wait_for(lambda: httpx.get(f"{url}/health/ready").status_code == 200, process, output)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_serve_starts_while_the_schema_is_locked(pg_dsn: str, tmp_path: Path) -> None:
    """A database that fails after it has been reached ends no start: readiness is red until that is over."""
    output = tmp_path / "output"
    environ: Any = {"ORDERS_PG__DSN": pg_dsn, "ORDERS_PG__PING_TIMEOUT": "1", "ORDERS_SHUTDOWN__LEAD": "0"}
    with (
        locked_schema(pg_dsn),
        started("serve", "--role", "worker", "--port", "0", output=output, **environ) as process,
    ):
        url = address(output, process)
        assert "the schema's version cannot be read" in output.read_text()
        assert httpx.get(f"{url}/health/ready").status_code == 503
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


@contextmanager
def locked_schema(dsn: str) -> Iterator[None]:
    """A migration that takes its time."""
    done, begun = threading.Event(), threading.Event()

    async def hold_lock() -> None:
        migration = await asyncpg.connect(dsn)
        async with migration.transaction():
            await migration.execute("LOCK TABLE alembic_version IN ACCESS EXCLUSIVE MODE")
            begun.set()
            await asyncio.to_thread(done.wait)
        await migration.close()

    with ThreadPoolExecutor(1) as thread:
        holding = thread.submit(asyncio.run, hold_lock())
        try:
            assert begun.wait(10)
            yield
        finally:
            done.set()
            holding.result()


def test_serve_brings_its_own_database(data_dir: Path, tmp_path: Path) -> None:
    """Without a DSN one command is enough: PostgreSQL is started, migrated, and stopped again at SIGTERM."""
    output = tmp_path / "output"
    directory = str(data_dir)
    with started(
        "serve", "--port", "0", output=output, ORDERS_PG__DATA_DIR=directory, ORDERS_SHUTDOWN__LEAD="0"
    ) as process:
        assert httpx.get(f"{address(output, process)}/health/ready", timeout=60).status_code == 200
        line = serving(output)
        assert line is not None
        assert line["database"] == f"embedded PostgreSQL in {directory}"
        done = run("tasks", "list", "--json", ORDERS_PG__DATA_DIR=directory)
        assert (done.stdout, f"embedded PostgreSQL in {directory}" in done.stderr) == ("[]\n", True)
        refused(run("demo", "--once", ORDERS_PG__DATA_DIR=directory), 3, "a service", "ORDERS_PG__DATA_DIR")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert not (data_dir / "postmaster.pid").exists()


def test_serve_leaves_a_demo_alone(tmp_path: Path) -> None:
    """A demo's orders are known to the demo's systems only, so that nobody else may work on them."""
    with hold(tmp_path / "postgres", alone=True):
        done = run("serve", "--port", "0", ORDERS_PG__DATA_DIR=str(tmp_path / "postgres"))
    refused(done, 3, "a demo works on the orders", "ORDERS_PG__DATA_DIR")


def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    """Who forgot the DSN where nothing can be written learns of both."""
    (tmp_path / "file").touch()
    done = run("serve", "--port", "0", ORDERS_PG__DATA_DIR=str(tmp_path / "file" / "postgres"))
    refused(done, 3, "pg.dsn is not set", "ORDERS_PG__DSN", f"{tmp_path / 'file'} is no directory")


UNCLOSED = re.compile(r"Exception ignored.*?ResourceWarning: unclosed file[^\n]*", re.DOTALL)
"""A signal may come between a file's opening and the `with` that is to close it; the end of the process closes it."""


@pytest.mark.parametrize("sign", SIGNS)
def test_sigterm_during_the_start_leaves_nothing_behind(sign: str, data_dir: Path, tmp_path: Path) -> None:
    """Whatever the start was about when the file `sign` appeared, the process ends, and PostgreSQL with it."""
    output = tmp_path / "output"
    with started("serve", "--port", "0", output=output, ORDERS_PG__DATA_DIR=str(data_dir)) as process:
        seen = [data_dir.parent / name for name in SIGNS[SIGNS.index(sign) :]]
        wait_for(lambda: any(file.exists() for file in seen), process, output)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) in {0, 128 + signal.SIGTERM, -signal.SIGTERM}
    assert "Traceback" not in UNCLOSED.sub("", output.read_text())
    assert not (data_dir / "postmaster.pid").exists()
