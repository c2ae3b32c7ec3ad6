"""What grows with traffic, and what must not."""

import uuid

import pytest
from prometheus_client import REGISTRY

from tests.faults.scene import Scene
from tests.service import service_running, settings_for

FEW, TEN_THOUSAND = (60, 20), (3_400, 2_000)
"""How many rounds of three strange paths, and how many orders, each of which makes five tasks."""

AT_ONCE = 50


def series() -> int:
    return sum(len(metric.samples) for metric in REGISTRY.collect())


@pytest.mark.parametrize(
    ("rounds", "orders"), [FEW, pytest.param(*TEN_THOUSAND, marks=pytest.mark.release, id="10,000 of each")]
)
async def test_metric_series_do_not_grow_with_traffic(scene: Scene, rounds: int, orders: int) -> None:
    """Paths that nobody knows and orders however many add no series to those that the first few have brought."""
    async with service_running(settings_for(scene.dsn, scene.sandbox.url)) as service:

        async def strange_paths(count: int) -> None:
            for _ in range(count):
                for path in (f"/{uuid.uuid4()}", f"/orders/{uuid.uuid4()}", f"/orders/{uuid.uuid4().int % 10**9}"):
                    assert (await service.client.get(path)).status_code in {404, 422}

        await scene.place(service.client, 3)
        await scene.ends()
        await strange_paths(2)
        await service.client.get("/metrics")
        before = series()
        await strange_paths(rounds)
        for placed in range(0, orders, AT_ONCE):
            await scene.place(service.client, min(AT_ONCE, orders - placed))
        assert scene.refused == []
        await scene.ends(120)
        assert series() == before


@pytest.mark.parametrize("first", [2**31, 2**53 + 1, 2**63 - 2], ids=["2^31", "2^53 + 1", "2^63 - 2"])
async def test_ids_may_be_as_large_as_the_column(scene: Scene, first: int) -> None:
    """Beyond 32 bits, and beyond what a float can hold, an id comes back exactly as it was given."""
    for table, key in (("orders", "id"), ("order_confirmation_task", "task_id"), ("payment_task", "task_id")):
        await scene.rows(f"ALTER TABLE {table} ALTER {key} RESTART WITH {first}")
    async with service_running(settings_for(scene.dsn, scene.sandbox.url)) as service:
        assert await scene.place(service.client) == [first]
        await scene.ends()
        answer = await service.client.get(f"/orders/{first}")
        assert answer.json()["orderId"] == first
        assert f'"orderId":{first},' in answer.text
        assert await scene.sandbox.operations("sber") == {str(first): 1}
