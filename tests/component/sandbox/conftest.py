from collections.abc import AsyncIterator

import pytest

from app.sandbox.server import running_sandbox
from tests.component.sandbox.caller import Caller, client


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with running_sandbox() as base:
        yield base


@pytest.fixture
async def sandbox(url: str) -> AsyncIterator[Caller]:
    async with client(url) as http:
        yield Caller(http)
