"""All benchmarks, or those named: `python -m benchmarks [NAME ...]`; `--guard` fails when one got much worse."""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable

from rich.console import Console
from rich.table import Table

from benchmarks import ceiling, chart, claim, drain, guard, intake, latency, memory, policy, scale_out, startup
from benchmarks.rig import Rig, open_rig
from benchmarks.row import Row, record, recorded

Measured = Callable[[Rig, int], Awaitable[list[Row]]]

BENCHMARKS: dict[str, Measured] = {
    "intake": lambda rig, rounds: intake.measure(rig, rounds=rounds, seconds=6),
    "drain": lambda rig, rounds: drain.measure(rig, rounds=rounds, count=6000),
    "wake-up": lambda rig, rounds: latency.measure(rig, rounds=rounds, seconds=10),
    "claim": lambda rig, rounds: claim.measure(rig, rounds=rounds, finished=5_000_000, held=60),
    "policy": lambda rig, rounds: policy.measure(rig, rounds=rounds),
    "memory": lambda rig, rounds: memory.measure(rig, rounds=rounds, waiting=50_000),
    "start-up": lambda rig, rounds: startup.measure(rig, rounds=rounds),
    "scale-out": lambda rig, rounds: scale_out.measure(rig, rounds=rounds, replicas=4, seconds=12),
    "ceiling": lambda rig, rounds: ceiling.measure(rig, rounds=rounds, seconds=4),
}
"""By name. Isolation has a command of its own, and limits that it fails at: `python -m benchmarks.isolation`."""


def main() -> None:
    options = _options()
    with open_rig() as rig:
        if options.guard:
            sys.exit(asyncio.run(guard.watch(rig)))
        rows = asyncio.run(_measure(rig, options.names or list(BENCHMARKS), options.rounds))
    show(rows)
    if options.record:
        record(rows)
        chart.draw(recorded().values())


def show(rows: list[Row]) -> None:
    table = Table("", "", "the service", "the peer", "ratio", "goal", "peer")
    for row in rows:
        goal = "" if row.goal is None else f"{row.goal:.2f}"
        figures = [f"{figure:,.4g} {row.unit}" for figure in (row.ours, row.theirs)]
        table.add_row(row.benchmark, row.what, *figures, f"{row.ratio:.2f}", goal, row.peer)
    Console(width=160).print(table)


async def _measure(rig: Rig, names: list[str], rounds: int) -> list[Row]:
    rows: list[Row] = []
    for name in names:
        print(f"measuring {name} ...", file=sys.stderr)
        rows += await BENCHMARKS[name](rig, rounds)
    return rows


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}; all of them by default")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured beside its peers (default 3)")
    parser.add_argument("--record", action="store_true", help="keep them: the chart, and what the guard holds to")
    parser.add_argument("--guard", action="store_true", help="in short: fail when a ratio is below half its record")
    options = parser.parse_args()
    if unknown := set(options.names) - BENCHMARKS.keys():
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}")
    return options


if __name__ == "__main__":
    main()
