"""Commands as others start them: processes, with nothing of the tests' environment that configures them."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from app.embedded import EmbeddedPostgres

ROOT = Path(__file__).resolve().parents[1]
COMMAND = (sys.executable, "-W", "error", "-m", "app")
PATIENCE = 120


def environment(changes: dict[str, str]) -> dict[str, str]:
    """The environment of a user; many processes are started, so that compiled modules are kept."""
    hidden = ("ORDERS_", "PYTHONDONTWRITEBYTECODE")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    return {**inherited, "PYTHONUNBUFFERED": "1", **changes}


def run(*arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; `changes` are environment variables."""
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=ROOT,
        env=environment(changes),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@contextmanager
def started(
    *arguments: str, output: Path, stdout: int | None = None, **changes: str
) -> Iterator[subprocess.Popen[str]]:
    """A running command, which writes to the file `output` unless `stdout` is given; killed if it is still there."""
    with (
        output.open("w") as file,
        subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=ROOT,
            env=environment(changes),
            stdin=subprocess.DEVNULL,
            stdout=file if stdout is None else stdout,
            stderr=file,
            text=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def wait_for(what: Callable[[], bool], process: subprocess.Popen[str], output: Path) -> None:
    """Wait until it is so; the process must live meanwhile."""
    deadline = time.monotonic() + PATIENCE
    while not what():
        assert process.poll() is None, f"ended with {process.returncode}:\n{output.read_text()}"
        assert time.monotonic() < deadline, output.read_text()
        time.sleep(0.05)


@contextmanager
def new_data_dir() -> Iterator[Path]:
    """A place for an embedded PostgreSQL, which is stopped in the end, whatever became of its users.

    Not in pytest's directory: each start of pytest as root closes that to others, and PostgreSQL does not run as root.
    """
    with TemporaryDirectory(prefix="orders-test-") as directory:
        data_dir = Path(directory) / "postgres"
        try:
            yield data_dir
        finally:
            if data_dir.exists():
                server = EmbeddedPostgres(data_dir)
                server.start()
                server.stop()
