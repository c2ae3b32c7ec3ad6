"""A guide as a program: what its blocks create, change and run, done in a copy of the project."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[3]
NOT_COPIED = shutil.ignore_patterns(".git", ".venv", ".data", ".hypothesis", ".*_cache", "__pycache__")
BLOCK = re.compile(r"^(?:`(?P<file>[\w./-]+)`:\n\n)?```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A block of the guide. `kind` "diff" changes `file`, "sh" is run line by line, any other is a whole new file."""

    file: str | None
    kind: str
    text: str


class Change(NamedTuple):
    """How many lines a file gained, and how many it lost."""

    added: int
    removed: int


def chapters(page: str) -> list[list[Block]]:
    """The blocks of each numbered chapter; what stands before the first one is the introduction."""
    _, *texts = re.split(r"^## \d", page, flags=re.MULTILINE)
    return [[Block(**found.groupdict()) for found in BLOCK.finditer(text)] for text in texts]


def patched(text: str, diff: str) -> str:
    """Apply a diff without line numbers, its hunks divided by `@@`; each must fit whole lines in exactly one place."""
    for hunk in diff.split("@@\n"):
        lines = [line if line.strip() else " \n" for line in hunk.splitlines(keepends=True)]
        old, new = ("".join(line[1:] for line in lines if line[0] in signs) for signs in (" -", " +"))
        places = [found.start() for found in re.finditer(f"^(?={re.escape(old)})", text, re.MULTILINE)]
        if len(places) != 1:
            raise ValueError(f"the block fits {len(places)} places:\n{hunk}")
        text = text[: places[0]] + new + text[places[0] + len(old) :]
    return text


@dataclass
class Copy:
    """A copy of the project in a new folder; its commands get the variables of `environ` and nothing else of ours."""

    root: Path
    environ: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shutil.copytree(ROOT, self.root, ignore=NOT_COPIED)
        (self.root / ".venv").symlink_to(sys.prefix)

    def follow(self, blocks: list[Block]) -> dict[str, Change]:
        """Do what the blocks say, in their order; returns the changes. Raises where a block does not fit or fails."""
        before = self._texts()
        for file, kind, text in blocks:
            if kind == "sh":
                for command in text.splitlines():
                    done = self.run(command)
                    assert done.returncode == 0, f"{command}\n{done.stdout}"
                continue
            assert file is not None, f"a block without its file:\n{text}"
            path = self.root / file
            assert path.exists() == (kind == "diff"), file
            path.write_text(patched(path.read_text(), text) if kind == "diff" else text)
        now = self._texts()
        return {
            name: _change(before.get(name, ""), now.get(name, ""))
            for name in sorted(before.keys() | now.keys())
            if before.get(name) != now.get(name)
        }

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("ORDERS_", "PYTEST_"))}
        return subprocess.run(
            ["sh", "-euc", command],
            cwd=self.root,
            env=inherited | self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )

    def _texts(self) -> dict[str, str]:
        return {
            path.relative_to(self.root).as_posix(): path.read_text()
            for path in self.root.glob("*/**/*.*")
            if path.suffix in {".py", ".yml", ".toml", ".md"} and ".venv" not in path.parts
        }


def _change(before: str, after: str) -> Change:
    old, new = before.splitlines(), after.splitlines()
    return Change(sum(line not in old for line in new), sum(line not in new for line in old))
