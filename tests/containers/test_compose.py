"""The service in its containers: built, started, used and stopped as the README says."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen
from uuid import uuid4

import pytest

ROOT = Path(__file__).resolve().parents[2]
ORDER = {
    "customerId": "c-42",
    "items": [{"sku": "ticket", "quantity": 1, "price": {"amount": "1990.00", "currency": "RUB"}}],
}
MINUTES_TO_BUILD = 8


def docker(*command: str, timeout: float = 60, ends: int = 0) -> str:
    """Run it to its end; returns what it printed, or what it complained of where another exit code is due."""
    done = subprocess.run(
        ["docker", *command],
        cwd=ROOT,
        env=os.environ | {"ORDERS_PORT": "0", "ORDERS_SANDBOX_PORT": "0"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == ends, f"docker {' '.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return (done.stderr if ends else done.stdout).strip()


def engine_answers() -> bool:
    try:
        docker("info")
        docker("compose", "version")
    except (OSError, AssertionError, subprocess.TimeoutExpired):
        return False
    return True


@contextmanager
def compose_project() -> Iterator[str]:
    """A project of its own name, so that it meets neither a developer's containers nor their volumes.

    When something goes wrong inside, the containers' last words are printed before they are removed.
    """
    project = f"orders-test-{uuid4().hex[:8]}"
    try:
        yield project
    except BaseException:
        print(docker("compose", "-p", project, "logs", "--no-color", "--tail=30"))  # noqa: T201
        raise
    finally:
        docker("compose", "-p", project, "down", "--volumes", "--remove-orphans", timeout=120)


def ask(url: str, body: object = None) -> tuple[int, dict[str, Any]]:
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(url, data, {"Content-Type": "application/json"}), timeout=10) as answer:
        return answer.status, json.load(answer)


def order_status(url: str, *, patience: float = 60) -> str:
    """The order's status once it is COMPLETED, or the one it is stuck in after `patience` seconds."""
    deadline = time.monotonic() + patience
    while (status := str(ask(url)[1]["status"])) != "COMPLETED" and time.monotonic() < deadline:
        time.sleep(0.2)
    return status


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.rule("SHUT-CFG")
def test_compose_serves_an_order_to_its_end_and_stops_when_asked() -> None:
    """`docker compose up` brings a service that completes an order, as nobody special, and obeys SIGTERM."""
    if not engine_answers():
        pytest.skip("no Docker engine with the compose plugin answers")
    with compose_project() as project:
        compose = ("compose", "-p", project)
        docker(*compose, "up", "--build", "--detach", "--wait", timeout=60 * MINUTES_TO_BUILD)
        service = f"http://{docker(*compose, 'port', 'app', '8000')}"

        accepted, order = ask(f"{service}/orders", ORDER)
        assert accepted == 202
        assert order_status(f"{service}/orders/{order['orderId']}") == "COMPLETED"

        assert docker(*compose, "exec", "-T", "app", "cat", "/proc/1/comm") == "python"
        assert docker(*compose, "exec", "-T", "app", "id", "-u") == "10001"

        docker(*compose, "stop", "app")
        container = docker(*compose, "ps", "--all", "--quiet", "app")
        assert docker("inspect", "--format", "{{.State.ExitCode}} {{.State.OOMKilled}}", container) == "0 false"

        without_database = docker("run", "--rm", "--read-only", "orders:development", "migrate", ends=3)
        assert "pg.dsn is not set" in without_database
