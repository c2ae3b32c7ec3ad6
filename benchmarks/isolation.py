"""What a system that hangs costs the others: `python -m benchmarks.isolation` (ISO-X1).

Runs with a healthy and with a hanging sber take turns, so that what drifts on the machine drifts for both. A ratio
compares two neighbouring runs: how many times worse the second kind was. The median of the ratios counts.
"""

import argparse
import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median, quantiles
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.rig import Rig, open_rig
from benchmarks.sber_hangs import Run, measured_run

VARIANTS = {"isolated": "app", "shared": "benchmarks.shared"}
"""The modules whose `serve` is measured: the service, and for comparison the same without isolation."""


class Pair(NamedTuple):
    healthy: Run
    hanging: Run


@dataclass(frozen=True)
class Measure:
    """A figure of a run. With `limited` its ratio must stay within the limit."""

    name: str
    of: Callable[[Run], float]
    more_is_better: bool
    limited: bool = True

    def ratio(self, pair: Pair) -> float:
        healthy, hanging = self.of(pair.healthy), self.of(pair.hanging)
        return healthy / hanging if self.more_is_better else hanging / healthy


MEASURES = (
    Measure("confirmation, median, ms", lambda run: 1000 * median(run.latencies), more_is_better=False),
    Measure(
        "confirmation, 95th percentile, ms", lambda run: 1000 * _p95(run.latencies), more_is_better=False, limited=False
    ),
    Measure("confirmed out of a backlog, orders/s", lambda run: run.confirmed, more_is_better=True),
    Measure("completed beyond sber, orders/s", lambda run: run.completed, more_is_better=True),
)


def main() -> None:
    options = _options()
    problems: list[str] = []
    with open_rig() as rig:
        for variant in options.variant or VARIANTS:
            pairs = asyncio.run(_pairs(rig, variant, options))
            _show(variant, pairs)
            if variant == "isolated":
                problems = [*_too_slow(pairs, options.limit), *_attempts_lost(pairs)]
    for problem in problems:
        print(f"FAILED: {problem}")
    sys.exit(bool(problems))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.isolation", description=__doc__)
    parser.add_argument("--runs", type=int, default=7, help="pairs of runs of each variant (default 7)")
    parser.add_argument("--limit", type=float, default=1.1, help="largest ratio of the isolated service (default 1.1)")
    parser.add_argument("--seconds", type=float, default=6, help="how long orders come at a steady rate (default 6)")
    parser.add_argument("--backlog", type=int, default=150, help="orders in the backlog (default 150)")
    parser.add_argument("--variant", action="append", choices=VARIANTS, help="only this one; may be repeated")
    return parser.parse_args()


async def _pairs(rig: Rig, variant: str, options: argparse.Namespace) -> list[Pair]:
    """Every other pair begins with the hanging run, so that neither is always the later one."""
    pairs = []
    for number in range(options.runs):
        runs: dict[bool, Run] = {}
        for hangs in (number % 2 == 1, number % 2 == 0):
            runs[hangs] = await measured_run(rig, VARIANTS[variant], hangs, options.seconds, options.backlog)
        pairs.append(Pair(runs[False], runs[True]))
        print(f"{variant}: pair {number + 1} of {options.runs} measured", file=sys.stderr)
    return pairs


def _show(variant: str, pairs: list[Pair]) -> None:
    table = Table("", "sber healthy", "sber hangs", "ratio", "lowest", "highest", title=variant, title_justify="left")
    for measure in MEASURES:
        both = [median(measure.of(run) for run in runs) for runs in zip(*pairs, strict=True)]
        ratios = [measure.ratio(pair) for pair in pairs]
        cells = [f"{value:.1f}" for value in both] + [
            f"{value:.2f}" for value in (median(ratios), min(ratios), max(ratios))
        ]
        table.add_row(measure.name, *cells)
    Console(width=110).print(table)
    for _, hanging in pairs:
        sber = hanging.sber
        print(
            f"rows waiting for sber: {sber.rows}; attempts counted: {sber.attempts}; calls made: {sber.calls}; "
            f"breaker opened: {'yes' if sber.opened else 'no'}"
        )


def _too_slow(pairs: list[Pair], limit: float) -> list[str]:
    ratios = {measure.name: median(map(measure.ratio, pairs)) for measure in MEASURES if measure.limited}
    return [
        f"{name}: {ratio:.2f} times worse, the limit is {limit:g}" for name, ratio in ratios.items() if ratio > limit
    ]


def _attempts_lost(pairs: list[Pair]) -> list[str]:
    """While the breaker is open rows wait in numbers, and none of them loses an attempt without a call (CB-6)."""
    problems = []
    for _, hanging in pairs:
        sber = hanging.sber
        if not sber.opened:
            problems.append("sber's breaker did not open")
        if sber.attempts > sber.calls:
            problems.append(f"{sber.attempts} attempts were counted on sber's rows for {sber.calls} calls")
    return problems


def _p95(values: list[float]) -> float:
    return quantiles(values, n=20)[-1]


if __name__ == "__main__":
    main()
