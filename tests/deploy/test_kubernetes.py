"""The manifests of deploy/k8s: valid, restricted, and in step with the service's own settings."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.settings import Settings, load_settings
from tests.deploy.kustomize import Resource, build, containers
from tests.deploy.sources import ROOT, expressions
from tests.tools import installed

OVERLAY = ROOT / "deploy/k8s/overlays/example"
RESOURCES = build(OVERLAY)
ADDED_BY_OPERATORS = {"ScaledObject", "PodMonitor"}
PODS = [resource for resource in RESOURCES if resource["kind"] in {"Deployment", "Job"}]
REPLICAS = [resource for resource in PODS if resource["kind"] == "Deployment"]

each_pod = pytest.mark.parametrize("resource", PODS, ids=[pod["metadata"]["name"] for pod in PODS])
each_replica = pytest.mark.parametrize("resource", REPLICAS, ids=[pod["metadata"]["name"] for pod in REPLICAS])


def one(kind: str, name: str) -> Resource:
    (found,) = [r for r in RESOURCES if (r["kind"], r["metadata"]["name"]) == (kind, name)]
    return found


def pod(resource: Resource) -> dict[str, Any]:
    template: dict[str, Any] = resource["spec"]["template"]["spec"]
    return template


def container(resource: Resource) -> dict[str, Any]:
    (found,) = containers(resource)
    return found


def settings() -> Settings:
    """The settings of a replica there: the overlay's file, and what the Secret holds."""
    keys = [{"name": "shop", "sha256": "0" * 64, "scopes": ["orders:write"]}]
    secrets = {"ORDERS_PG__DSN": "postgresql://orders@db/orders", "ORDERS_AUTH__KEYS": json.dumps(keys)}
    return load_settings({"ORDERS_CONFIG": str(OVERLAY / "config.yml"), **secrets})


def by_name(resources: list[Resource]) -> dict[tuple[str, str], Resource]:
    """With the hash that kustomize puts behind the generated ConfigMap's name taken off again."""
    plain = re.sub(r"\borders-config-[a-z0-9]{10}\b", "orders-config", yaml.safe_dump(resources))
    return {(r["kind"], r["metadata"]["name"]): r for r in yaml.safe_load(plain)}


def test_the_tests_see_what_kustomize_builds() -> None:
    """The resources that the tests look at are the ones that kustomize makes."""
    kubectl = installed("kubectl", "it comes with every Kubernetes distribution")
    built = subprocess.run(
        [kubectl, "kustomize", OVERLAY], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    assert by_name(RESOURCES) == by_name(list(yaml.safe_load_all(built)))


def test_the_manifests_fit_the_schemas_of_kubernetes(tmp_path: Path) -> None:
    """Each resource is complete, and has no field that Kubernetes does not know."""
    program = installed("kubernetes-validate", "pip install kubernetes-validate")
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump_all([r for r in RESOURCES if r["kind"] not in ADDED_BY_OPERATORS]))
    command = [program, "--kubernetes-version", "1.34", "--strict", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("passed") == len(RESOURCES) - len(ADDED_BY_OPERATORS)


@each_pod
def test_pods_are_restricted(resource: Resource) -> None:
    """Not root, no privileges, a file system that cannot be written, no token, and no variables made of Services."""
    spec, held = pod(resource), container(resource)
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert f"USER {spec['securityContext']['runAsUser']}:" in (ROOT / "Dockerfile").read_text()
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert held["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"cpu", "memory"} <= held["resources"]["requests"].keys()
    assert "memory" in held["resources"]["limits"]


@each_pod
def test_secrets_come_by_reference(resource: Resource) -> None:
    """What is secret stands in no manifest; what is not is in the ConfigMap that ORDERS_CONFIG leads to."""
    held = container(resource)
    variables = {variable["name"]: variable for variable in held["env"]}
    assert variables.keys() == {"ORDERS_CONFIG", "ORDERS_PG__DSN", "ORDERS_AUTH__KEYS"}
    assert [name for name, variable in variables.items() if "value" in variable] == ["ORDERS_CONFIG"]
    (mount,) = held["volumeMounts"]
    assert variables["ORDERS_CONFIG"]["value"] == f"{mount['mountPath']}/config.yml"
    assert "config.yml" in one("ConfigMap", "orders-config")["data"]


@each_replica
@pytest.mark.rule("SHUT-CFG")
def test_kubernetes_waits_as_long_as_the_shutdown_takes(resource: Resource) -> None:
    """The grace period, which the preStop is a part of, leaves the service what it was promised."""
    before = container(resource).get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    assert pod(resource)["terminationGracePeriodSeconds"] >= before + settings().shutdown.grace_period


@each_replica
@pytest.mark.rule("HC-4")
def test_probes_ask_the_right_question_and_wait_for_the_answer(resource: Resource) -> None:
    """Liveness and the start depend on nothing outside; readiness is waited for longer than the database's answer."""
    held = container(resource)
    paths = {kind: held[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")}
    assert paths == {"startup": "/health/live", "liveness": "/health/live", "readiness": "/health/ready"}
    slowest = max(settings().pg.ping_timeout, *(client.health.timeout for client in settings().client.values()))
    assert held["readinessProbe"]["timeoutSeconds"] > slowest + 1
    assert held["readinessProbe"]["httpGet"]["port"] in {port["name"] for port in held["ports"]}


def test_roles_are_one_image() -> None:
    """API, worker and migration differ in their arguments only, and these are commands of the service."""
    assert {container(r)["image"] for r in PODS} == {"registry.example.com/orders:0.1.0"}
    arguments = {r["metadata"]["name"]: container(r)["args"] for r in PODS}
    assert arguments["orders-api"][:3] == ["serve", "--role", "api"]
    assert arguments["orders-worker"][:3] == ["serve", "--role", "worker"]
    assert arguments["orders-migrate"] == ["migrate"]


def test_selectors_find_what_they_are_for() -> None:
    """Service, budgets and autoscalers name workloads that exist, and the Service leads to API replicas alone."""
    labels = {r["metadata"]["name"]: r["spec"]["template"]["metadata"]["labels"] for r in PODS}

    def found(selector: dict[str, str]) -> set[str]:
        return {name for name, has in labels.items() if selector.items() <= has.items()}

    assert found(one("Service", "orders")["spec"]["selector"]) == {"orders-api"}
    for name in ("orders-api", "orders-worker"):
        assert found(one("PodDisruptionBudget", name)["spec"]["selector"]["matchLabels"]) == {name}
        assert found(one("Deployment", name)["spec"]["selector"]["matchLabels"]) == {name}
        assert "replicas" not in one("Deployment", name)["spec"]  # the autoscalers' business
    assert found(one("NetworkPolicy", "orders")["spec"]["podSelector"]["matchLabels"]) == labels.keys()
    assert one("HorizontalPodAutoscaler", "orders-api")["spec"]["scaleTargetRef"]["name"] == "orders-api"
    assert one("ScaledObject", "orders-worker")["spec"]["scaleTargetRef"] == {"name": "orders-worker"}


def test_the_database_allows_for_all_replicas() -> None:
    """The sum that the overlay's comment names is the one that the autoscalers can reach."""
    api = one("HorizontalPodAutoscaler", "orders-api")["spec"]["maxReplicas"]
    worker = one("ScaledObject", "orders-worker")["spec"]["maxReplicaCount"]
    said = (OVERLAY / "config.yml").read_text()
    assert f"({api} API + {worker} worker replicas, and 1 more of each in a rollout) * {settings().pg.pool.max}" in said


def test_workers_are_scaled_by_a_metric_that_exists() -> None:
    """KEDA asks for the same figure that the dashboards show; Prometheus calls the job what the rules call it."""
    (trigger,) = one("ScaledObject", "orders-worker")["spec"]["triggers"]
    assert trigger["metadata"]["query"] == "max(task_oldest_due_seconds)"
    assert any("task_oldest_due_seconds" in expression for _, expression in expressions())
    monitor = one("PodMonitor", "orders")["spec"]
    assert monitor["selector"]["matchLabels"][monitor["jobLabel"]] == "orders"
