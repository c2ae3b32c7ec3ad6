"""The peers as processes, in an environment of their own that is installed when it is first needed."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.processes import ROOT, free_port

ENVIRONMENT = ROOT / ".data" / "peers"
LOCK = ROOT / "requirements-bench.lock"

TABLES = """
CREATE TABLE plain_order (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, customer_id TEXT NOT NULL, items JSONB NOT NULL,
    created_at TIMESTAMPTZ NOT NULL DEFAULT now());
CREATE TABLE plain_task (
    task_id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, order_id BIGINT NOT NULL REFERENCES plain_order,
    status TEXT NOT NULL, retry_count INTEGER NOT NULL DEFAULT 0, next_attempt_at TIMESTAMPTZ NOT NULL,
    payload JSONB NOT NULL, created_at TIMESTAMPTZ NOT NULL DEFAULT now());
CREATE INDEX ON plain_task (next_attempt_at) WHERE status IN ('PENDING', 'IN_PROGRESS')"""
"""What those peers have that bring no tables of their own."""


@dataclass(frozen=True)
class Peers:
    """Programs of `benchmarks/peers`, run by `python`, over the database `dsn` and with the insurer at `insurer`."""

    python: Path
    dsn: str
    insurer: str = "http://127.0.0.1:1"

    def prepare(self) -> None:
        """Make the tables of the libraries."""
        procrastinate = ["-m", "procrastinate", "--app", "benchmarks.peers.with_procrastinate.jobs"]
        self._run(*procrastinate, "schema", "--apply")
        self._run("-m", "pgqueuer", "--pg-dsn", self.dsn, "install")

    def fill(self, module: str, count: int) -> None:
        self._run("-m", f"benchmarks.peers.{module}", str(count))

    @contextmanager
    def worker(self, module: str) -> Iterator[subprocess.Popen[bytes]]:
        with running([self.python, "-m", f"benchmarks.peers.{module}"], self._environ) as worker:
            yield worker

    @contextmanager
    def server(self, module: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
        """The address of a running API, and its process."""
        port = free_port()
        quiet = ("--log-level", "warning", "--no-access-log")
        command = ("-m", "uvicorn", f"benchmarks.peers.{module}:app", "--port", str(port), *quiet)
        with running([self.python, *command], self._environ) as server:
            url = f"http://127.0.0.1:{port}"
            wait_for(url, server)
            yield url, server

    @property
    def _environ(self) -> dict[str, str]:
        return os.environ | {"PYTHONPATH": str(ROOT), "PEER_DSN": self.dsn, "PEER_INSURER": self.insurer}

    def _run(self, *arguments: str) -> None:
        subprocess.run([self.python, *arguments], env=self._environ, check=True, capture_output=True)


def installed() -> Path:
    """The Python of the peers' environment."""
    python = ENVIRONMENT / "bin" / "python"
    wanted, found = LOCK.read_text(), ENVIRONMENT / LOCK.name
    if not found.exists() or found.read_text() != wanted:
        print("installing the peers ...", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", ENVIRONMENT], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--require-hashes", "-r", LOCK], check=True)
        found.write_text(wanted)
    return python


@contextmanager
def running(command: list[str | Path], environ: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A process, killed at the end."""
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, env=environ, cwd=ROOT, stdout=quiet, stderr=quiet)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_for(url: str, process: subprocess.Popen[bytes], path: str = "/", seconds: float = 30) -> None:
    """Return once the process answers, with whatever status."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args!r} ended with {process.returncode}")
        try:
            httpx.get(url + path, timeout=2, trust_env=False)
        except httpx.HTTPError:
            time.sleep(0.02)
        else:
            return
    raise RuntimeError(f"{process.args!r} does not answer")
