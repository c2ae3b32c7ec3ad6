"""Where output goes: to terminals that obey what they read, to full disks, to readers that have left, to nobody."""

import json
import os
import signal
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.commands import COMMAND, ROOT, environment
from tests.component.cli.terminal import Terminal
from tests.component.cli.test_operators import Rows
from tests.processes import free_port, wait_until

HOSTILE = "\x1b[2J\x9b31m\u202eevil\u2066"
FULL = Path("/dev/full")

full_disk = pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
commands = pytest.mark.parametrize("arguments", [("check-config",), ("openapi",), ("--help",), ("orders", "--help")])


def run_into(stdout: int, *arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=ROOT,
        env=environment(changes),
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def rows(pg_dsn: str) -> Rows:
    return Rows(pg_dsn)


@pytest.fixture
def order(rows: Rows) -> int:
    """An order whose every foreign text is hostile."""
    order_id = rows.order("PAYMENT_FAILED", order_confirmation_task="COMPLETED", payment_task="FAILED")
    rows.event(order_id, "PARKED")
    rows.execute("UPDATE orders SET customer_id = $1, reason = $1", HOSTILE)
    rows.execute("UPDATE payment_task SET last_error = $1", HOSTILE)
    rows.execute("UPDATE outbox_event SET last_error = $1", HOSTILE)
    rows.execute(
        "INSERT INTO operator_action (caller, action, target, reason, replica) VALUES ('me', 'retry', 'x', $1, 'r')",
        HOSTILE,
    )
    return order_id


def test_a_terminal_obeys_no_foreign_text(operator: Terminal, order: int, subtests: pytest.Subtests) -> None:
    """What clients and systems wrote moves no cursor and turns no line around; JSON still says what it was."""
    for command in ("orders list", f"orders show {order}", "tasks list", "events list", "actions"):
        for as_json in (False, True):
            with subtests.test(command=command, as_json=as_json):
                shown = operator.run(*command.split(), *(["--json"] if as_json else [])).out
                assert "evil" in shown
                assert [character for character in shown if not character.isprintable() and character != "\n"] == []
                if as_json:
                    assert json.dumps(HOSTILE) in json.dumps(json.loads(shown))


def test_json_leaves_words_as_they_are(operator: Terminal, rows: Rows) -> None:
    """Only what a terminal would obey is escaped."""
    rows.order()
    rows.execute("UPDATE orders SET customer_id = 'Жанна'")
    assert "Жанна" in operator.run("orders", "list", "--json").out


@full_disk
@commands
def test_a_full_disk_is_no_answer(arguments: tuple[str, ...]) -> None:
    """What could not be printed is said to be so in words, with a code of its own."""
    with FULL.open("w") as full:
        done = run_into(full.fileno(), *arguments)
    assert (done.returncode, "No space left" in done.stderr, "Traceback" in done.stderr) == (3, True, False)


@full_disk
def test_a_full_disk_violates_no_invariant(pg_dsn: str) -> None:
    """Code 1 is kept for the answer no."""
    with FULL.open("w") as full:
        done = run_into(full.fileno(), "invariants", ORDERS_PG__DSN=pg_dsn)
    assert (done.returncode, "Traceback" in done.stderr) == (3, False)


@commands
def test_a_reader_that_has_left_ends_the_command(arguments: tuple[str, ...]) -> None:
    """As for any command in a pipe, without a word."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = run_into(writer, *arguments)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["<&- >&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_stood_in_for(closed: str, pg_dsn: str) -> None:
    """A service that was started without them serves, and ends in order."""
    port = free_port()
    serve = [*COMMAND, "serve", "--port", str(port)]
    environ = environment({"ORDERS_PG__DSN": pg_dsn, "ORDERS_SHUTDOWN__LEAD": "0"})
    with subprocess.Popen(["sh", "-c", f'exec "$@" {closed}', "sh", *serve], cwd=ROOT, env=environ) as process:
        try:
            wait_until(lambda: is_ready(port), 60, "the service is ready")
            streams = [Path(f"/proc/{process.pid}/fd/{number}").readlink() for number in (0, 1)]
            assert streams == [Path(os.devnull)] * 2
            process.terminate()
            assert process.wait(30) == 0
        finally:
            process.kill()


def is_ready(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health/ready", trust_env=False).status_code == 200
    except httpx.TransportError:
        return False
