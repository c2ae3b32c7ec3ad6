"""The scenarios of docs/scenarios.md: which tests prove them, and a table of what became of them."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "scenarios.md"

ROW = re.compile(r"^\| (\d+) \| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)
OUTCOMES = ("passed", "failed", "error", "skipped")
COUNTS = ("orders", "lost", "doubled_operations", "doubled_events", "burnt")
HEAD = ("orders", "lost", "doubled", "told twice", "burnt")
WIDTH = 64


class Scenario(NamedTuple):
    """A line of the page; `proofs` are tests by their ids below tests/, without parameters."""

    number: int
    happens: str
    holds: str
    proofs: tuple[str, ...]


def scenarios() -> list[Scenario]:
    return [
        Scenario(int(number), happens, holds, tuple(re.findall(r"`([\w/]+\.py::\w+)`", proofs)))
        for number, happens, holds, proofs in ROW.findall(PAGE.read_text())
    ]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Show every scenario, if this run had one of those that keep count of their orders."""
    reports = _by_test(terminalreporter.stats)
    if not _tallies(report for several in reports.values() for report in several):
        return
    terminalreporter.section("scenarios")
    terminalreporter.write_line(" " * (WIDTH + 13) + "".join(f"{word:>11}" for word in HEAD))
    for scenario in scenarios():
        of_scenario = [report for proof in scenario.proofs for report in reports.get(proof, ())]
        terminalreporter.write_line(
            f"{scenario.number:>2}  {_shortened(scenario.happens)}  {_outcome(of_scenario):7}" + _counts(of_scenario)
        )


def _by_test(stats: dict[str, list[Any]]) -> dict[str, list[pytest.TestReport]]:
    reports = defaultdict(list)
    for report in (report for outcome in OUTCOMES for report in stats.get(outcome, ())):
        if isinstance(report, pytest.TestReport):  # a file that cannot be collected leaves a report of its own
            reports[report.nodeid.partition("[")[0].removeprefix("tests/")].append(report)
    return reports


def _outcome(reports: Sequence[pytest.TestReport]) -> str:
    outcomes = {report.outcome for report in reports}
    return next((outcome for outcome in ("failed", "passed", "skipped") if outcome in outcomes), "-")


def _tallies(reports: Iterable[pytest.TestReport]) -> list[dict[str, int]]:
    found = [dict(report.user_properties).get("tally") for report in reports]
    return [tally for tally in found if isinstance(tally, dict)]


def _counts(reports: Sequence[pytest.TestReport]) -> str:
    tallies = _tallies(reports)
    return "".join(f"{sum(tally[count] for tally in tallies):>11}" for count in COUNTS) if tallies else ""


def _shortened(text: str) -> str:
    return f"{text if len(text) <= WIDTH else text[: WIDTH - 1] + '…':{WIDTH}}"
