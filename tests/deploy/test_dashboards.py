"""The dashboards: what Grafana is told to load is there and consistent."""

from typing import Any

import pytest
import yaml

from tests.deploy.promql import metric_names
from tests.deploy.sources import COMPOSE, DASHBOARDS, GRAFANA

PROVISIONING = GRAFANA / "provisioning"
((DATASOURCE,),) = (yaml.safe_load((PROVISIONING / "datasources/prometheus.yml").read_text())["datasources"],)


def test_grafana_finds_what_it_is_told_to_load() -> None:
    """The provider looks where compose mounts the dashboards, and the data source is compose's Prometheus."""
    (provider,) = yaml.safe_load((PROVISIONING / "dashboards/orders.yml").read_text())["providers"]
    mounts = dict(volume.split(":")[:2] for volume in COMPOSE["services"]["grafana"]["volumes"])
    assert mounts == {
        "./deploy/grafana/provisioning": "/etc/grafana/provisioning",
        "./deploy/grafana/dashboards": provider["options"]["path"],
    }
    assert DATASOURCE["url"] == "http://prometheus:9090"
    assert "./deploy/prometheus:/etc/prometheus:ro" in COMPOSE["services"]["prometheus"]["volumes"]


def test_there_are_three_dashboards_with_names_of_their_own() -> None:
    """Service, systems and queue; Grafana tells them apart by their uid."""
    assert {name: board["uid"] for name, board in DASHBOARDS.items()} == {
        name: f"orders-{name}" for name in ("queue", "service", "systems")
    }


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panels_are_whole(name: str) -> None:
    """Each panel has its own id and place, a title, and asks the provisioned data source for some series."""
    panels: list[dict[str, Any]] = DASHBOARDS[name]["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["title"]
        sources = [panel["datasource"], *(target["datasource"] for target in panel["targets"])]
        assert all(source == {"type": "prometheus", "uid": DATASOURCE["uid"]} for source in sources)
        assert any(metric_names(target["expr"]) for target in panel["targets"])


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ('sum by (task) (increase(a_total{task="b_total"}[15m])) > 0', {"a_total"}),
        ("histogram_quantile(0.9, sum by (le, x) (rate(a_bucket[$__rate_interval])))", {"a_bucket"}),
        ("max(avg_over_time((a > bool 0)[10m:30s])) or a:b:c and on (x) d unless vector(0.001)", {"a", "a:b:c", "d"}),
    ],
)
def test_metric_names_are_read_from_expressions(expression: str, names: set[str]) -> None:
    """Functions, labels, groupings and numbers are no metrics."""
    assert metric_names(expression) == names
