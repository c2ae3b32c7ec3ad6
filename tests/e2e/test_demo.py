"""The demo, as a newcomer sees it."""

import asyncio
import os
import pty
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import takewhile
from pathlib import Path

import asyncpg
import httpx
import pytest

from app.embedded import EmbeddedPostgres
from app.occupied import Occupied, listen
from tests.commands import ROOT, new_data_dir, run, started, wait_for

pytestmark = pytest.mark.slow

NOWHERE = "postgresql://orders:secret@127.0.0.1:1/orders"


@pytest.fixture
def data_dir() -> Iterator[Path]:
    with new_data_dir() as data_dir:
        yield data_dir


@pytest.fixture
def default_ports_taken() -> Iterator[None]:
    """Somebody listens on the default ports: this test, once others that run beside it have let go of them."""
    until = time.monotonic() + 60
    with ExitStack() as stack:
        for port in (8000, 8100):
            while True:
                with suppress(Occupied):
                    stack.enter_context(listen("127.0.0.1", port))
                    break
                if time.monotonic() > until:
                    break  # a stranger has it, for the whole test
                time.sleep(0.2)
        yield


async def statuses(dsn: str) -> dict[int, str]:
    """Each order's status, as the database has it."""
    connection = await asyncpg.connect(dsn)
    try:
        return dict(await connection.fetch("SELECT id, status FROM orders ORDER BY id"))
    finally:
        await connection.close()


def kept_statuses(data_dir: Path) -> dict[int, str]:
    server = EmbeddedPostgres(data_dir)
    try:
        return asyncio.run(statuses(server.start()))
    finally:
        server.stop()


def test_once_brings_all_sample_orders_to_their_end(data_dir: Path) -> None:
    """One command from nothing to six completed orders, in plain lines, away from a database that is configured."""
    done = run("demo", "--once", ORDERS_PG__DATA_DIR=str(data_dir), ORDERS_PG__DSN=NOWHERE)
    assert (done.returncode, done.stderr) == (0, "")
    assert "All 6 orders are COMPLETED" in done.stdout
    assert "\x1b" not in done.stdout
    assert f"embedded PostgreSQL in {data_dir}" in done.stdout
    assert data_dir.with_name("postgres.demo.log").exists()
    seconds = [float(found) for found in re.findall(r"^ *([\d.]+)s  order", done.stdout, re.MULTILINE)]
    assert seconds == sorted(seconds)
    told = re.findall(r"s  order 1  (\w+)", done.stdout)
    assert (told[0], told[-1]) == ("ACCEPTED", "COMPLETED")
    assert not (data_dir / "postmaster.pid").exists()
    assert kept_statuses(data_dir) == dict.fromkeys(range(1, 7), "COMPLETED")


@pytest.mark.rule("CB-4", "CB-6", "RE-4")
def test_the_story_of_an_outage_ends_well(data_dir: Path) -> None:
    """It tells of an outage from its beginning to its end, in numbers of the running service, and nothing is lost."""
    done = run("demo", "--story", "outage", ORDERS_PG__DATA_DIR=str(data_dir))
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    chapters = (
        *("Orders flow", "The system insurance goes down", "the breaker is OPEN", "While it is open"),
        *("half-open: a few calls may try", "OPEN again", "is back", "the trials succeed", "The account"),
    )
    places = [done.stdout.find(chapter) for chapter in chapters]
    assert -1 not in places, chapters[places.index(-1)]
    assert places == sorted(places)
    ledgers = re.search(r"own ledgers: (.*?);", done.stdout)
    assert ledgers is not None
    assert [count for count in re.findall(r"\d+", ledgers[1]) if count != "24"] == []
    after = re.search(r"0 more calls got through.* have (\d+) attempts made, the 6 new ones 0", done.stdout)
    before = re.search(r"wait in PostgreSQL, with (\d+) attempts", done.stdout)
    assert before is not None
    assert after is not None
    assert before[1] == after[1]
    assert "24 orders were answered with 202, 24 are COMPLETED: 0 lost" in done.stdout
    assert "0 doubled, 0 missing" in done.stdout
    assert set(kept_statuses(data_dir).values()) == {"COMPLETED"}


async def test_a_database_of_ones_own(empty_dsn: str, tmp_path: Path) -> None:
    """With --dsn the demo migrates that database and keeps its orders there."""
    done = await asyncio.to_thread(
        run, "demo", "--once", "--dsn", empty_dsn, ORDERS_PG__DATA_DIR=str(tmp_path / "postgres")
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert set((await statuses(empty_dsn)).values()) == {"COMPLETED"}
    assert not (tmp_path / "postgres").exists()


def test_an_unreachable_database_ends_the_demo(tmp_path: Path) -> None:
    """A DSN that leads nowhere is refused in words, without its password."""
    done = run("demo", "--once", "--dsn", NOWHERE, ORDERS_PG__DATA_DIR=str(tmp_path / "postgres"))
    assert done.returncode == 3
    assert "the database cannot be reached" in done.stderr
    assert "Traceback" not in done.stderr
    assert "secret" not in done.stdout + done.stderr


@pytest.mark.release
def test_a_killed_demo_can_be_started_again(data_dir: Path, tmp_path: Path, default_ports_taken: None) -> None:
    """After SIGKILL, on taken ports and on a terminal: a live table, a place to play, and a clean end at Ctrl-C."""
    output, directory = tmp_path / "output", str(data_dir)
    with started("demo", output=output, ORDERS_PG__DATA_DIR=directory) as killed:
        wait_for(lambda: "ACCEPTED" in output.read_text(), killed, output)
        killed.kill()
    screen, terminal = pty.openpty()
    seen = bytearray()
    watching = threading.Thread(target=watch, args=(screen, seen))
    watching.start()
    with started(
        "demo", output=output, stdout=terminal, TERM="xterm", COLUMNS="120", ORDERS_PG__DATA_DIR=directory
    ) as demo:
        os.close(terminal)
        wait_for(lambda: b"Ctrl-C ends the demo" in seen, demo, output)
        text = seen.decode()
        assert "All 6 orders are COMPLETED" in text
        assert [mark for mark in ("✓", "confirm", "\x1b[") if mark not in text] == []
        assert {"8000", "8100"} <= set(re.findall(r"port (\d+) is taken", text))
        sandbox, service = list(dict.fromkeys(re.findall(r"http://127\.0\.0\.1:\d+", text)))[:2]
        look_around = text.partition("Look around:")[2].partition("Place")[0]
        pages = re.findall(r"http://127\.0\.0\.1:\d+/\S*?(?=[,\s])", look_around)
        assert {f"{service}/ops", f"{service}/docs", f"{service}/redoc", f"{sandbox}/"} <= {*pages}
        assert [page for page in pages if httpx.get(page).status_code != 200] == []
        events = re.findall("event: (.*)", typed(text, "Place one more"))
        assert (events[0], events[-1]) == ("order.accepted", "order.completed")
        typed(text, "Break the insurer")
        wait_for(lambda: breaker(service) == "open", demo, output)
        assert '"mode":"ok"' in typed(text, "Mend it")
        assert run("demo", ORDERS_PG__DATA_DIR=directory).returncode == 3
        demo.send_signal(signal.SIGINT)
        assert demo.wait(30) == 0
    watching.join()
    assert output.read_text() == ""
    with pytest.raises(httpx.ConnectError):
        httpx.get(service)
    assert not (data_dir / "postmaster.pid").exists()


def typed(text: str, heading: str) -> str:
    """What the commands below the heading print when they are typed in a shell."""
    below = text.partition(heading)[2].splitlines()[1:]
    commands = [line.strip() for line in takewhile(lambda line: line.startswith("  "), below)]
    done = subprocess.run(["bash", "-c", "\n".join(commands)], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout


def breaker(service: str) -> str:
    return str(httpx.get(f"{service}/ops/systems").json()["systems"]["insurance"]["breaker"]["state"])


def watch(screen: int, seen: bytearray) -> None:
    """Read what is written to the terminal until nobody writes to it any more."""
    with suppress(OSError), open(screen, "rb", buffering=0) as file:
        while chunk := file.read(65_536):
            seen.extend(chunk)
