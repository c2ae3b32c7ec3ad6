"""The service as users run it: processes of `python -m app`, started, killed and looked at from outside."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import httpx

from app.sandbox.contracts import CONTRACTS

ROOT = Path(__file__).resolve().parents[1]
SYSTEMS = tuple(contract.name for contract in CONTRACTS)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        time.sleep(0.05)


@dataclass
class Process:
    """A running `python -m app …`; what it writes goes to `log`."""

    popen: subprocess.Popen[bytes]
    url: str
    log: Path

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()

    def pause(self) -> None:
        """Let it stand still, as a stalled machine does: its connections stay open and nothing in it turns."""
        self.popen.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.popen.send_signal(signal.SIGCONT)

    def terminate(self, within: float = 30) -> int:
        self.popen.send_signal(signal.SIGTERM)
        return self.popen.wait(within)


@dataclass
class Processes:
    """Starts processes over one database and ends them all."""

    dsn: str
    directory: Path
    environ: dict[str, str] = field(default_factory=dict)
    module: str = "app"
    _stack: ExitStack = field(default_factory=ExitStack)
    _numbers: Iterator[int] = field(default_factory=count)

    def environment(self) -> dict[str, str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("ORDERS_")}
        return clean | {"ORDERS_PG__DSN": self.dsn, "PYTHONPATH": str(ROOT)} | self.environ

    def run(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            [sys.executable, "-m", self.module, *arguments],
            env=self.environment(),
            cwd=self.directory,
            check=check,
            text=True,
            capture_output=True,
            timeout=120,
        )

    def start(self, *arguments: str, port: int, ready: str) -> Process:
        """Start a command that serves on `port`, and wait until `ready` answers with 200."""
        log = self.directory / f"{next(self._numbers)}-{arguments[0]}.log"
        with log.open("wb") as output:
            popen = subprocess.Popen(
                [sys.executable, "-m", self.module, *arguments, "--host", "127.0.0.1", "--port", str(port)],
                env=self.environment(),
                cwd=self.directory,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        process = Process(popen, f"http://127.0.0.1:{port}", log)
        self._stack.callback(process.kill)

        def answers() -> bool:
            if popen.poll() is not None:
                raise AssertionError(f"{arguments} ended with {popen.returncode}: {log.read_text()[-2000:]}")
            try:
                return httpx.get(process.url + ready, timeout=2, trust_env=False).status_code == 200
            except httpx.HTTPError:
                return False

        wait_until(answers, 30, f"{arguments} answers")
        return process

    def sandbox(self) -> Process:
        """Start the stand-ins and let all services started later use them."""
        sandbox = self.start("sandbox", port=free_port(), ready="/")
        self.environ |= {f"ORDERS_CLIENT__{name.upper()}__BASE_URL": f"{sandbox.url}/{name}" for name in SYSTEMS}
        return sandbox

    def serve(self, role: str = "all", port: int | None = None) -> Process:
        return self.start("serve", "--role", role, port=port or free_port(), ready="/health/ready")

    def close(self) -> None:
        self._stack.close()


@contextmanager
def processes(dsn: str, directory: Path) -> Iterator[Processes]:
    started = Processes(dsn, directory)
    try:
        yield started
    finally:
        started.close()
