"""The alert rules: valid, each tested both ways, each with a severity, a text and a section of the runbook."""

import re
import subprocess

import pytest
import yaml

from tests.deploy.sources import ALERTS, PROMETHEUS, ROOT, STORIES
from tests.tools import installed

RUNBOOK = (ROOT / "docs/runbook.md").read_text()
ON_ALERTS = RUNBOOK.partition("\n## Alerts\n")[2].partition("\n## ")[0]
SECTIONS = {
    name: " ".join(text.split())
    for name, text in re.findall(r"^### (\w+)\n((?:(?!###).*\n?)*)", ON_ALERTS, re.MULTILINE)
}
"""By an alert's name: what the runbook says about it, in one line."""


def promtool(*arguments: str) -> str:
    """Run it on the files of deploy/prometheus; returns what it says when it is content."""
    program = installed("promtool", "apt-get install prometheus")
    done = subprocess.run(
        [program, *arguments], cwd=PROMETHEUS, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("check", ["check config prometheus.yml", "check rules rules.yml"])
def test_prometheus_accepts_the_files(check: str) -> None:
    """The configuration and the rules are what Prometheus reads without a complaint."""
    assert "SUCCESS" in promtool(*check.split())


def test_alerts_fire_when_they_should_and_only_then() -> None:
    """Each alert's story in rules.test.yml comes out as written."""
    assert "SUCCESS" in promtool("test", "rules", "rules.test.yml")


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_has_a_story_with_both_ends(alert: str) -> None:
    """rules.test.yml looks at the alert when all is well and when it is not."""
    (story,) = [story for story in STORIES if story["name"] == alert]
    looks = story["promql_expr_test"]
    assert all(f'alertname="{alert}"' in look["expr"] for look in looks)
    assert [bool(look["exp_samples"]) for look in looks] == [False, True]


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_says_what_to_do(alert: str) -> None:
    """Severity, summary, description, and a link to the alert's own section of the runbook."""
    rule = ALERTS[alert]
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
    assert rule["annotations"]["runbook_url"].endswith(f"/docs/runbook.md#{alert.lower()}")


def test_the_runbook_has_a_section_for_each_alert() -> None:
    """As many sections as alerts, in the order of the rules, and each answers the same five questions."""
    assert list(SECTIONS) == list(ALERTS)
    questions = ["**Means**", "**Users notice**", "**Look**", "**Do**", "**Wake somebody**"]
    for name, section in SECTIONS.items():
        assert re.findall(r"\*\*[A-Z][a-z ]+\*\*", section) == questions, name


@pytest.mark.parametrize("alert", ALERTS)
def test_critical_alerts_are_those_that_wake_somebody(alert: str) -> None:
    """The runbook and the rules agree on who is woken."""
    answer = {"critical": "yes", "warning": "no"}[ALERTS[alert]["labels"]["severity"]]
    assert re.search(rf"\*\*Wake somebody\*\* {answer}\b", SECTIONS[alert])


def test_the_runbook_makes_a_prometheus_rule() -> None:
    """The command that it gives for clusters turns rules.yml into the operator's resource and changes nothing."""
    (command,) = re.findall(r"^(\{ printf .*)\| kubectl apply -f -$", RUNBOOK, re.MULTILINE | re.DOTALL)
    done = subprocess.run(["bash", "-euc", command], cwd=ROOT, capture_output=True, text=True, timeout=10, check=True)
    resource = yaml.safe_load(done.stdout)
    assert (resource["apiVersion"], resource["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    assert resource["spec"] == yaml.safe_load((PROMETHEUS / "rules.yml").read_text())
