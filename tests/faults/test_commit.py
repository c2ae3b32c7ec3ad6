"""Connections cut around a COMMIT: the effect is kept and its answer lost, or neither happens."""

import random

import pytest

from tests.faults.proxy import Fate, proxy_to_postgres
from tests.faults.scene import Scene
from tests.faults.short import LASTING
from tests.service import service_running, settings_for

ORDERS, CUTS = 45, 30


@pytest.mark.parametrize("cut", ["cut after", "cut before"])
async def test_a_lost_answer_doubles_and_loses_nothing(scene: Scene, cut: Fate) -> None:
    """Every fifth COMMIT of intake, claims, settles and relay loses its connection; each order is done exactly once."""
    dice = random.Random(13)
    async with proxy_to_postgres(scene.dsn) as (postgres, dsn):
        settings = settings_for(dsn, scene.sandbox.url, LASTING)
        async with service_running(settings) as service:
            cuts = set(dice.sample(range(1, CUTS * 5), CUTS))
            postgres.fate = lambda number: cut if number in cuts else "passes"
            for _ in range(3):
                await scene.place(service.client, ORDERS // 3)
            assert scene.placed
            await scene.until("SELECT count(*) > 0 FROM order_confirmation_task WHERE status = 'COMPLETED'")
            await scene.ends(60)
            assert postgres.commits > max(cuts)
