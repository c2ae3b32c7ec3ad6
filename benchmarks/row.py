"""What a benchmark has to say: figures, each beside that of a peer which was measured in the same run."""

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

RECORDED = Path(__file__).with_name("recorded.json")


class Row(NamedTuple):
    """`ours` and `theirs` in `unit`; `ratio` says how many times better ours is, `goal` how many it is meant to be."""

    benchmark: str
    what: str
    peer: str
    ours: float
    theirs: float
    unit: str
    ratio: float
    goal: float | None = None

    @property
    def name(self) -> str:
        return f"{self.benchmark}: {self.what} / {self.peer}"


def compared(
    benchmark: str,
    what: str,
    peer: str,
    pairs: Sequence[tuple[float, float]],
    unit: str,
    *,
    more_is_better: bool = True,
    goal: float | None = None,
) -> Row:
    """The row for (ours, theirs) of several rounds: the ratio is the median of the rounds' own ratios."""
    ratios = [ours / theirs if more_is_better else theirs / ours for ours, theirs in pairs]
    ours, theirs = (median(figures) for figures in zip(*pairs, strict=True))
    return Row(benchmark, what, peer, ours, theirs, unit, median(ratios), goal)


def recorded() -> dict[str, Row]:
    """By name: what was measured when it was last recorded."""
    rows = json.loads(RECORDED.read_text()) if RECORDED.exists() else []
    return {row.name: row for row in (Row(**kept) for kept in rows)}


def record(rows: Sequence[Row]) -> None:
    """Keep the rows; those of benchmarks that were not measured stay as they are."""
    benchmarks = {row.benchmark for row in rows}
    kept = [row for row in recorded().values() if row.benchmark not in benchmarks]
    text = json.dumps([row._asdict() for row in (*kept, *rows)], indent=1, ensure_ascii=False)
    RECORDED.write_text(text + "\n")
