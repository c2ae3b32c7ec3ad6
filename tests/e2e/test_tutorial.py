"""The tutorial, typed as it stands."""

import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.commands import PATIENCE, ROOT, environment, new_data_dir, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.release]

PAGE = (ROOT / "docs/tutorial.md").read_text()
INSTALLATION = "python3 -m venv"
DEMO = "-m app demo"
KEPT = re.compile(r"\w+=\d+")
ONCE = re.compile(r"POST|PUT| -d |retry")


@dataclass(frozen=True, slots=True)
class Block:
    """A command, and lines that it prints, among others."""

    command: str
    prints: list[str]


def blocks() -> Iterator[Block]:
    fenced = re.findall(r"^```(\w+)\n(.*?)\n```$", PAGE, re.MULTILINE | re.DOTALL)
    for (kind, text), (next_kind, next_text) in zip(fenced, [*fenced[1:], ("", "")], strict=True):
        if kind == "sh":
            yield Block(text, next_text.splitlines() if next_kind == "text" else [])


def missing(block: Block, printed: str) -> list[str]:
    """The lines of the block that were not printed."""
    return [line for line in block.prints if not re.search(pattern(line), printed, re.MULTILINE)]


def pattern(line: str) -> str:
    return rf"^{'.*'.join(map(re.escape, line.split('…')))}\s*$"


class Evening:
    """Two terminals: the demo runs in the one, the commands in the other."""

    def __init__(self, data_dir: Path, directory: Path) -> None:
        impatience = {"ORDERS_CLIENT__INSURANCE__BREAKER__OPEN_SECONDS": "10"}  # not 30, as the page says
        self._environ = environment({"ORDERS_PG__DATA_DIR": str(data_dir), **impatience})
        self._output = directory / "output"
        self._demo: subprocess.Popen[str] | None = None
        self._addresses: dict[str, str] = {}
        self._kept = ""

    def type(self, block: Block) -> None:
        if DEMO in block.command:
            self.end_demo()
            self._start_demo(block)
            return
        if KEPT.fullmatch(block.command):
            self._kept += f"{block.command}\n"
            return
        deadline = time.monotonic() + PATIENCE
        while left := missing(block, printed := self._run(block.command)):
            assert not ONCE.search(block.command), (block.command, left, printed)
            assert time.monotonic() < deadline, (block.command, left, printed)
            time.sleep(1)

    def end_demo(self) -> None:
        if self._demo is not None:
            self._demo.send_signal(signal.SIGINT)
            assert self._demo.wait(60) == 0, self._output.read_text()
            self._demo = None

    def kill(self) -> None:
        if self._demo is not None:
            self._demo.kill()
            self._demo.wait()

    def _start_demo(self, block: Block) -> None:
        with self._output.open("w") as output:
            self._demo = subprocess.Popen(
                ["bash", "-c", f"exec env {self._ours(block.command)}"],
                cwd=ROOT,
                env=self._environ,
                stdout=output,
                stderr=output,
                text=True,
            )
        wait_for(lambda: "Ctrl-C ends" in self._output.read_text(), self._demo, self._output)
        said = self._output.read_text()
        assert missing(block, said) == [], said
        sandbox, service = list(dict.fromkeys(re.findall(r"http://127\.0\.0\.1:\d+", said)))[:2]
        self._addresses = {"http://127.0.0.1:8000": service, "http://127.0.0.1:8100": sandbox}

    def _run(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", self._kept + self._ours(command)],
            cwd=ROOT,
            env=self._environ,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout + done.stderr

    def _ours(self, command: str) -> str:
        """The command with this Python, and the ports that the demo got."""
        command = command.replace(".venv/bin/python", shlex.quote(sys.executable))
        return re.sub(r"http://127\.0\.0\.1:8[01]00", lambda found: self._addresses.get(found[0], found[0]), command)

    def url(self) -> str:
        return self._addresses["http://127.0.0.1:8000"]


@pytest.fixture
def evening(tmp_path: Path) -> Iterator[Evening]:
    with ExitStack() as stack:
        evening = Evening(stack.enter_context(new_data_dir()), tmp_path)
        stack.callback(evening.kill)
        yield evening


def test_what_the_tutorial_says_happens(evening: Evening) -> None:
    """Each block is typed in its turn, and what it is said to print is printed; the pages it names are there."""
    typed = [block for block in blocks() if not block.command.startswith(INSTALLATION)]
    assert len(typed) > 10
    for block in typed:
        evening.type(block)
    for page in re.findall(r"http://127\.0\.0\.1:8000(/(?:docs|ops))\b", PAGE):
        assert httpx.get(f"{evening.url()}{page}").status_code == 200
    evening.end_demo()


def test_the_line_that_decides_is_the_one_that_is_shown() -> None:
    """Python in the tutorial stands word for word in the file that is named before it."""
    shown = re.findall(r"\]\(\.\./([\w/]+\.py)\)\s[^`]*?:\n\n```python\n(.*?)```", PAGE, re.DOTALL)
    assert [path for path, code in shown] == ["app/orders/journey.py"]
    assert [path for path, code in shown if code not in (ROOT / path).read_text()] == []
