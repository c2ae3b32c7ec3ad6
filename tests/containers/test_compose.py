"""The service in its containers: built, started, scaled, used and stopped as the README says."""

import json
import os
import re
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
MEGABYTES_OF_OURS = 125
"""On python:3.13-slim, which has about 120, the image stays below 250."""
SECRETS = r"development-only|PRIVATE KEY-----|whsec_[A-Za-z0-9+/]{16}"


def docker(*command: str, timeout: float = 60, ends: int = 0) -> str:
    """Run it to its end; returns what it printed, or what it complained of where another exit code is due."""
    done = subprocess.run(
        ["docker", *command],
        cwd=ROOT,
        env=os.environ | {f"ORDERS_{what}PORT": "0" for what in ("", "SANDBOX_", "PROMETHEUS_", "GRAFANA_", "JAEGER_")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == ends, f"docker {' '.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return (done.stderr if ends else done.stdout).strip()


@pytest.fixture(autouse=True)
def engine() -> None:
    try:
        docker("info")
        docker("compose", "version")
    except (OSError, AssertionError, subprocess.TimeoutExpired):
        pytest.skip("no Docker engine with the compose plugin answers")


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


def replicas_asked(project: str) -> list[str]:
    """The addresses of the service's replicas, as the network of the project has them."""
    containers = docker("compose", "-p", project, "ps", "--quiet", "app").split()
    addresses = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
    return [docker("inspect", "--format", addresses, container) for container in containers]


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.rule("SHUT-CFG")
def test_compose_serves_orders_to_their_end_and_stops_when_asked() -> None:
    """Three replicas behind one port complete what each of them takes in, as nobody special, and obey SIGTERM."""
    with compose_project() as project:
        compose = ("compose", "-p", project)
        docker(*compose, "up", "--build", "--detach", "--wait", "--scale", "app=3", timeout=60 * MINUTES_TO_BUILD)
        gateway = f"http://{docker(*compose, 'port', 'gateway', '8000')}"
        direct = [f"http://{address}:8000" for address in replicas_asked(project)]
        assert len(direct) == 3

        for url in (gateway, *direct):
            accepted, order = ask(f"{url}/orders", ORDER)
            assert accepted == 202
            assert order_status(f"{gateway}/orders/{order['orderId']}") == "COMPLETED"

        assert docker(*compose, "exec", "-T", "app", "cat", "/proc/1/comm") == "python"
        assert docker(*compose, "exec", "-T", "app", "id", "-u") == "10001"

        docker(*compose, "stop", "app")
        for container in docker(*compose, "ps", "--all", "--quiet", "app").split():
            assert docker("inspect", "--format", "{{.State.ExitCode}} {{.State.OOMKilled}}", container) == "0 false"

        without_database = docker("run", "--rm", "--read-only", "orders:development", "migrate", ends=3)
        assert "no pg.dsn is set" in without_database
        look_into("orders:development")


def look_into(image: str) -> None:
    """The image is small, and holds neither a package installer of ours nor anything secret."""
    of_ours = image_size(image) - image_size("python:3.13-slim")
    assert of_ours < MEGABYTES_OF_OURS * 10**6
    inside = ("run", "--rm", "--entrypoint", "sh", image, "-c")
    assert docker(*inside, "ls -d /venv/lib/python3*/site-packages/pip /venv/bin/pip*; true") == ""
    assert docker(*inside, f"grep -rlE '{SECRETS}' /srv /venv/bin; true") == ""
    assert docker(*inside, "find /srv /venv -name '.env*' -o -name '*.key' -o -name '.git' -o -name '*.lock'") == ""
    told = docker("history", "--no-trunc", "--format", "{{.CreatedBy}}", image)
    variables = docker("inspect", "--format", "{{json .Config.Env}}", image)
    assert not re.search(f"{SECRETS}|PASSWORD|TOKEN|SECRET", told + variables)


def image_size(image: str) -> int:
    return int(docker("image", "inspect", "--format", "{{.Size}}", image))


@pytest.mark.docker
def test_compose_accepts_the_observability_profile() -> None:
    """The profile adds Prometheus, Grafana and Jaeger; what starts by default stays small."""
    small = {"postgres", "migrate", "sandbox", "app", "gateway"}
    assert {*docker("compose", "config", "--services").split()} == small
    everything = {*docker("compose", "--profile", "observability", "config", "--services").split()}
    assert everything - small == {"prometheus", "grafana", "jaeger"}
