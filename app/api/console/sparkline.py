"""Samples as a small curve."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from app.observability.history import SAMPLES, Sample

HEIGHT = 28
FLOOR = 0.02
"""Seconds: a curve that stays below is drawn low, and not blown up to full height."""


@dataclass(frozen=True, slots=True)
class Sparkline:
    """Paths in a box of `width` x `height`: the latency, the area below it, and the moments in which calls failed."""

    curve: str
    area: str
    failures: str
    peak: float
    """Seconds."""
    width: int = SAMPLES
    height: int = HEIGHT


def sparkline(samples: Sequence[Sample]) -> Sparkline:
    """Draw the samples, the newest at the right edge; where there was no call there is a gap."""
    first = SAMPLES - len(samples)
    peak = max((sample.latency or 0.0 for sample in samples), default=0.0)
    scale = (HEIGHT - 2) / max(peak, FLOOR)
    points = [(x, None if s.latency is None else HEIGHT - 1 - s.latency * scale) for x, s in enumerate(samples, first)]
    runs = [list(run) for drawn, run in groupby(points, key=lambda point: point[1] is not None) if drawn]
    curves = [("L".join(f"{x} {y:.1f}" for x, y in run), run[0][0], run[-1][0] + 1) for run in runs]
    return Sparkline(
        curve="".join(f"M{curve}H{end}" for curve, _, end in curves),
        area="".join(f"M{start} {HEIGHT}L{curve}H{end}V{HEIGHT}Z" for curve, start, end in curves),
        failures="".join(f"M{x} 0V{HEIGHT}" for x, sample in enumerate(samples, first) if sample.failing),
        peak=peak,
    )
