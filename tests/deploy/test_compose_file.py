"""The compose file: every container has its limits, and nothing in it is secret."""

from typing import Any

import pytest

from tests.deploy.sources import COMPOSE, ROOT

SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]


@pytest.mark.parametrize("name", SERVICES)
def test_containers_are_limited(name: str) -> None:
    """Memory, processor, processes and logs of each container end somewhere, and its image's version is named."""
    service = SERVICES[name]
    assert {"mem_limit", "cpus", "pids_limit"} <= service.keys()
    assert service["logging"]["options"].keys() == {"max-size", "max-file"}
    assert service["image"].partition(":")[2] not in {"", "latest"}


def test_replicas_do_not_compete_for_a_port() -> None:
    """The service itself publishes none, so that it can be scaled; its gateway has the one that is known."""
    assert "ports" not in SERVICES["app"]
    assert SERVICES["gateway"]["ports"] == ["127.0.0.1:${ORDERS_PORT:-8000}:8000"]


def test_the_development_password_stays_in_the_development_file() -> None:
    """What everybody knows is used nowhere else, and the compose file knows no other secret."""
    password = SERVICES["postgres"]["environment"]["POSTGRES_PASSWORD"]
    folders = ("app", "config", "deploy", "docs", "migrations")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.*") if path.suffix != ".pyc"]
    assert [path for path in files if path.is_file() and password.encode() in path.read_bytes()] == []
    for name, service in SERVICES.items():
        secret = {k for k in service.get("environment", {}) if any(word in k for word in ("PASSWORD", "TOKEN", "KEY"))}
        assert secret == ({"POSTGRES_PASSWORD"} if name == "postgres" else set())
