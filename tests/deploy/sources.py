"""What lies in deploy/ for Prometheus and Grafana, read once."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
PROMETHEUS = ROOT / "deploy/prometheus"
GRAFANA = ROOT / "deploy/grafana"


def _yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


RULES: list[dict[str, Any]] = [rule for group in _yaml(PROMETHEUS / "rules.yml")["groups"] for rule in group["rules"]]
ALERTS: dict[str, dict[str, Any]] = {rule["alert"]: rule for rule in RULES if "alert" in rule}
RECORDED = {rule["record"] for rule in RULES if "record" in rule}
STORIES: list[dict[str, Any]] = _yaml(PROMETHEUS / "rules.test.yml")["tests"]
DASHBOARDS: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text()) for path in sorted((GRAFANA / "dashboards").glob("*.json"))
}
COMPOSE: dict[str, Any] = _yaml(ROOT / "docker-compose.yml")


def expressions() -> Iterator[tuple[str, str]]:
    """Every PromQL expression, with the place where it stands."""
    for rule in RULES:
        yield rule.get("alert") or rule["record"], rule["expr"]
    for name, board in DASHBOARDS.items():
        for panel in board["panels"]:
            for target in panel["targets"]:
                yield f"{name}: {panel['title']}", target["expr"]
