"""The page about observability says what the code does."""

import re
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.metrics import MetricWrapperBase

from app.observability import metrics

PAGE = Path(__file__).resolve().parents[3] / "docs" / "observability.md"


def declared() -> Iterator[tuple[str, str, frozenset[str]]]:
    """The metrics of the code: name as shown, type, labels."""
    for metric in vars(metrics).values():
        if isinstance(metric, MetricWrapperBase):
            family: Metric = next(iter(metric.collect()))
            suffix = {"counter": "_total"}.get(family.type, "")
            yield family.name + suffix, family.type, frozenset(metric._labelnames)
    yield "orders_build_info", "gauge", frozenset({"version"})


def documented() -> Iterator[tuple[str, str, frozenset[str]]]:
    for name, kind, labels in re.findall(r"^\| `(\w+)` \| (\w+)[ *]*\|([^|]*)\|", PAGE.read_text(), re.MULTILINE):
        yield name, kind, frozenset(re.findall(r"`(\w+)`", labels))


def test_the_page_lists_every_metric() -> None:
    """Each metric stands on the page with its type and its labels, and nothing stands there that is not one."""
    assert set(documented()) == set(declared())
