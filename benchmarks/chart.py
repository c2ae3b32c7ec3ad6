"""The results as a picture: one bar for each ratio, on a logarithmic scale, with the peer's own result as a line."""

from collections.abc import Collection
from html import escape
from math import log10
from pathlib import Path

from benchmarks.row import Row

CHART = Path(__file__).with_name("results.svg")

LINE, LABELS, WIDTH = 26, 560, 360
LOWEST, HIGHEST = 0.1, 100.0


def draw(rows: Collection[Row]) -> None:
    height = LINE * (len(rows) + 2)
    width, middle = LABELS + WIDTH + 90, _at(1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">',
        '<style>text {font-size: 13px}</style><rect width="100%" height="100%" fill="white"/>',
        '<text x="10" y="18" font-weight="bold">How many times better than the peer it was measured beside</text>',
        f'<path d="M {middle} {LINE} V {height - LINE / 2}" stroke="#888" stroke-dasharray="3 3"/>',
        *(_bar(row, LINE * (number + 1)) for number, row in enumerate(rows)),
        "</svg>",
    ]
    CHART.write_text("\n".join(parts) + "\n")


def _bar(row: Row, top: float) -> str:
    """From the line, which is the peer, to the right where the service is better, to the left where it is worse."""
    left, right = sorted((_at(1), _at(row.ratio)))
    met = row.goal is None or row.ratio >= row.goal
    return (
        f'<text x="10" y="{top + 17}">{escape(row.name)}</text>'
        f'<rect x="{left:.0f}" y="{top + 5}" width="{max(right - left, 1):.0f}" height="{LINE - 10}" '
        f'fill="{"#3a7" if met else "#c63"}"/>'
        f'<text x="{right + 6:.0f}" y="{top + 17}">{row.ratio:.2f}</text>'
    )


def _at(ratio: float) -> float:
    share = log10(min(max(ratio, LOWEST), HIGHEST) / LOWEST) / log10(HIGHEST / LOWEST)
    return LABELS + share * WIDTH
