"""What the command line teaches about itself."""

import subprocess
import sys
from pathlib import Path

import pytest

from app import VERSION
from app.cli.commands import commands
from tests.commands import ROOT, environment
from tests.component.cli.terminal import Terminal
from tests.tools import installed

HEAVY = ("aiohttp", "asyncpg", "fastapi", "pydantic", "sqlalchemy", "uvicorn")

COMMANDS = [command.name for command in commands.registered_commands if command.name]
GROUPS = [group.name for group in commands.registered_groups if group.name]


def test_help_loads_nothing_heavy() -> None:
    """Help and completion come at once: the database, the web and the systems are left alone."""
    told = subprocess.run(
        [sys.executable, "-c", f"import sys, app.cli; print([m for m in {HEAVY} if m in sys.modules])"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout == "[]\n"


def test_help_tells_the_exit_codes(bare_terminal: Terminal) -> None:
    """Who writes a script around the commands finds all codes in one place."""
    told = bare_terminal.run("--help").out
    assert [code for code in ("0 ", "1 ", "2 ", "3 ", "143 ") if f"\n {code}".strip() not in told] == []
    assert [name for name in (*COMMANDS, *GROUPS) if name not in told] == []


def test_short_questions_are_answered(bare_terminal: Terminal) -> None:
    """-h is --help, of a command in a group, too; --version tells the version."""
    assert "python -m app orders list" in bare_terminal.run("orders", "list", "-h").out
    assert bare_terminal.run("--version").out == f"{VERSION}\n"


@pytest.mark.parametrize(
    "arguments", [("orders", "list", "--status", "X"), ("serve", "--role", "x"), ("orders", "show", f"{2**63}")]
)
def test_a_wrong_argument_is_refused_in_words(arguments: tuple[str, ...], bare_terminal: Terminal) -> None:
    """It is named, before any database is looked for, and without the words of the library that found it."""
    done = bare_terminal.run(*arguments)
    assert (done.code, "Invalid value for" in done.err) == (2, True)
    assert [words for words in ("Value error", "Input should") if words in done.err] == []


@pytest.mark.parametrize("group", GROUPS)
def test_commands_of_operators_show_examples(group: str) -> None:
    """Each command that takes more than an id shows how it is typed."""
    (typer,) = [g.typer_instance for g in commands.registered_groups if g.name == group]
    assert typer is not None
    without = [c.name for c in typer.registered_commands if "python -m app" not in str(c.epilog)]
    assert set(without) <= {"show"}


def test_bash_completes_commands_and_values(tmp_path: Path) -> None:
    """Once installed, TAB knows commands, and the values an option takes."""
    installed("bash", "apt-get install bash")
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    typed = {
        "tasks": "ta",
        "FAILED": "tasks list --status F",
        "outage": "demo --story ''",
        "payment_task": "tasks retry p",
    }
    script = 'eval "$(./orders --show-completion bash)"\n' + "\n".join(
        f"COMP_WORDS=(./orders {line}) COMP_CWORD={len(line.split())}; _orders_completion ./orders; echo $COMPREPLY"
        for line in typed.values()
    )
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    done = subprocess.run(
        ["bash", "-c", script], cwd=ROOT, env=environment({"PATH": path}), capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == list(typed)


def test_the_script_finds_its_packages(tmp_path: Path) -> None:
    """Without an active environment the one beside it is taken; without any, it says what to do."""
    script = tmp_path / "orders"
    script.write_text((ROOT / "orders").read_text())
    bare = [sys.executable, "-I", "-S", str(script), "--version"]
    done = subprocess.run(bare, capture_output=True, text=True, check=False)
    assert (done.returncode, "README.md says how" in done.stderr) == (3, True), done.stderr
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (tmp_path / "app").symlink_to(ROOT / "app")
    done = subprocess.run(bare, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"{VERSION}\n", "")
