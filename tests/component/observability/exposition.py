"""What `/metrics` shows."""

from collections.abc import Iterable

from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain
from prometheus_client.samples import Sample

from tests.service import Service

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


async def text_of(service: Service, accept: str = "text/plain") -> str:
    answer = await service.client.get("/metrics", headers={"accept": accept})
    assert answer.status_code == 200
    return answer.text


async def families(service: Service, accept: str = "text/plain") -> list[Metric]:
    read = openmetrics if accept == OPENMETRICS else plain
    return list(read(await text_of(service, accept)))


def samples(shown: Iterable[Metric]) -> list[Sample]:
    return [sample for family in shown for sample in family.samples]


async def value(service: Service, name: str, **labels: str) -> float | None:
    found = [s.value for s in samples(await families(service)) if s.name == name and s.labels == labels]
    return found[0] if found else None
