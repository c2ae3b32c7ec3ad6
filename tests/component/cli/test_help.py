"""What the command line teaches about itself."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from app.cli.commands import commands
from tests.commands import ROOT, environment
from tests.component.cli.terminal import Terminal

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


@pytest.mark.parametrize("group", GROUPS)
def test_commands_of_operators_show_examples(group: str) -> None:
    """Each command that takes more than an id shows how it is typed."""
    (typer,) = [g.typer_instance for g in commands.registered_groups if g.name == group]
    assert typer is not None
    without = [c.name for c in typer.registered_commands if "python -m app" not in str(c.epilog)]
    assert set(without) <= {"show"}


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_commands_and_values(tmp_path: Path) -> None:
    """Once installed, TAB knows commands, and the values an option takes."""
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    typed = {"tasks": "ta", "FAILED": "tasks list --status F", "outage": "demo --story ''"}
    script = 'eval "$(./orders --show-completion bash)"\n' + "\n".join(
        f"COMP_WORDS=(./orders {line}) COMP_CWORD={len(line.split())}; _orders_completion ./orders; echo $COMPREPLY"
        for line in typed.values()
    )
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    done = subprocess.run(
        ["bash", "-c", script], cwd=ROOT, env=environment({"PATH": path}), capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == list(typed)
