from collections.abc import AsyncIterator, Callable

import pytest

from tests.faults.scene import Report, Scene, scene_on
from tests.service import Sandbox


@pytest.fixture
def report(record_property: Callable[[str, object], None]) -> Report:
    """Hands a scenario's figures to the table at the end of the run."""
    return lambda tally, orders: record_property("tally", {"orders": orders, **tally._asdict()})


@pytest.fixture
async def scene(pg_dsn: str, sandbox: Sandbox, report: Report) -> AsyncIterator[Scene]:
    async with scene_on(pg_dsn, sandbox, report) as scene:
        yield scene
