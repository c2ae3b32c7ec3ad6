"""What the pages say about commands, keys and places is so."""

import re
from pathlib import Path

import pytest

from app.cli.commands import commands
from app.cli.reference import keys, reference_page
from app.orders.journey import STEPS
from app.orders.order import OrderStatus
from app.settings.load import NOT_SETTINGS, PREFIX
from app.settings.problems import NAMED

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
GUIDE = ROOT / "docs/add-a-system.md"
"""Makes what it names; its own test follows it."""

PAGES = [README, *sorted({*(ROOT / "docs").rglob("*.md")} - {GUIDE})]
DEFAULT = (ROOT / "config/default.yml").read_text()
KEYS = {key.path for key in keys(DEFAULT)}
SECTIONS = {path[0] for path in KEYS}

COMMANDS = {command.name for command in commands.registered_commands}
GROUPS = {
    group.name: {command.name for command in group.typer_instance.registered_commands}
    for group in commands.registered_groups
    if group.typer_instance is not None
}
TWO_SCREENS = 130


def page(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_the_reference_is_up_to_date() -> None:
    """docs/configuration.md is what the settings and the default file make of it."""
    anew = "python -m app check-config --reference > docs/configuration.md"
    assert (ROOT / "docs/configuration.md").read_text() == reference_page(), anew


def test_every_key_says_what_it_means() -> None:
    """In the default file a comment stands beside each key that has a value."""
    assert [key.name for key in keys(DEFAULT) if not key.meaning] == []


def test_the_reference_holds_every_key_with_its_variable() -> None:
    """Whoever looks for a key, or for its variable, finds it."""
    written = reference_page()
    rows = [f"| `{'.'.join(path)}` |" for path in KEYS] + [f"`{PREFIX}{'__'.join(path).upper()}` |" for path in KEYS]
    assert [row for row in rows if row not in written] == []


@pytest.mark.parametrize("path", PAGES, ids=page)
def test_commands_in_a_page_exist(path: Path) -> None:
    """What a page tells the reader to type is a command, with the name that it has."""
    typed = re.findall(r"python -m app (?!\W)([\w-]+)(?: ([\w-]+))?", path.read_text())
    assert [found for found in typed if found[0] not in COMMANDS and not in_group(*found)] == []


def in_group(group: str, command: str) -> bool:
    return group in GROUPS and command in {"", *GROUPS[group]}


@pytest.mark.parametrize("path", PAGES, ids=page)
def test_variables_in_a_page_are_settings(path: Path) -> None:
    """A variable that a page names leads to a key that there is, for a system or a table also by its default."""
    named = set(re.findall(rf"\b{PREFIX}[A-Z]\w*", path.read_text())) - NOT_SETTINGS
    assert [name for name in sorted(named) if not known(tuple(name.removeprefix(PREFIX).lower().split("__")))] == []


def known(path: tuple[str, ...]) -> bool:
    """Whether it is a key or a section; a system and a table also have the keys of their `default`."""
    paths = {path, (path[0], "default", *path[2:])} if path[0] in NAMED else {path}
    return any(key[: len(path)] in paths for key in KEYS)


@pytest.mark.parametrize("path", PAGES, ids=page)
def test_keys_in_a_page_are_settings(path: Path) -> None:
    """A key in a page, from its section on, stands in the default file."""
    words = re.findall(rf"`((?:{'|'.join(SECTIONS)})(?:\.[a-z_]+)+)`", path.read_text())
    files = re.compile(r"\.(py|yml|yaml|json|md|toml)$")
    assert [word for word in sorted(set(words)) if not files.search(word) and not known(tuple(word.split(".")))] == []


@pytest.mark.parametrize("path", PAGES, ids=page)
def test_places_in_a_page_exist(path: Path) -> None:
    """A path of the project that a page writes as code is there."""
    tops = "|".join(re.escape(top.name) for top in ROOT.iterdir() if top.is_dir() and not top.name.startswith("."))
    named = re.findall(rf"`((?:{tops})/[\w./-]+)`", path.read_text())
    assert [place for place in named if not (ROOT / place).exists()] == []


def test_the_readme_is_two_screens() -> None:
    """Short enough to be read."""
    assert len(README.read_text().splitlines()) <= TWO_SCREENS


def test_the_picture_shows_the_journey() -> None:
    """The README's diagram has every step with its system, and every status that is not final."""
    picture = re.search(r"```mermaid\n(.*?)```", README.read_text(), re.DOTALL)
    assert picture is not None
    assert re.findall(r"\w+: (\w+)\"", picture[1]) == [step.system for step in STEPS]
    assert [status for status in OrderStatus if not status.final and f"[{status}]" not in picture[1]] == []
