"""Listing orders over HTTP."""

from collections.abc import AsyncIterator

import pytest
from httpx_aiohttp import HttpxAiohttpClient
from sqlalchemy import text

from app.db import Database
from tests.service import Sandbox, Service, service_running, settings_for

ORDERS = 1000


@pytest.fixture
async def listing(database: Database, pg_dsn: str, sandbox: Sandbox) -> AsyncIterator[Service]:
    """A service whose database holds a thousand orders of one transaction, of three customers in turn."""
    async with database.engine.begin() as conn:
        await conn.execute(
            text("""INSERT INTO orders (customer_id, items, status)
                    SELECT 'c-' || n % 3,
                           '[{"sku": "A", "quantity": 1, "price": {"amount": "10.00", "currency": "RUB"}}]',
                           CASE WHEN n % 2 = 0 THEN 'COMPLETED' ELSE 'REJECTED' END
                    FROM generate_series(1, 1000) AS n""")
        )
    async with service_running(settings_for(pg_dsn, sandbox.url), "api") as service:
        yield service


async def pages(client: HttpxAiohttpClient, url: str) -> AsyncIterator[list[dict[str, object]]]:
    """Follow the links from page to page."""
    while True:
        answer = await client.get(url)
        assert answer.status_code == 200, answer.text
        yield answer.json()["orders"]
        if "link" not in answer.headers:
            return
        url, _, relation = answer.headers["link"].partition(";")
        assert relation.strip() == 'rel="next"'
        url = url.strip("<>")


async def test_paging_neither_skips_nor_repeats(listing: Service) -> None:
    """A thousand orders of one instant come out once each, though more are placed while the pages are read."""
    seen: list[object] = []
    async for page in pages(listing.client, "/orders?limit=70"):
        assert len(page) <= 70
        seen += [order["orderId"] for order in page]
        await listing.place()
    assert seen == sorted(seen, key=lambda i: -int(str(i)))
    assert len(seen) == len(set(seen)) == ORDERS


async def test_filters_hold_on_every_page(listing: Service) -> None:
    """Status and customer narrow the list down, on the following pages as well."""
    found = [
        o async for page in pages(listing.client, "/orders?status=COMPLETED&customerId=c-1&limit=50") for o in page
    ]
    assert {(o["status"], o["customerId"]) for o in found} == {("COMPLETED", "c-1")}
    assert len(found) == sum(n % 2 == 0 and n % 3 == 1 for n in range(1, ORDERS + 1))
    both = [o async for page in pages(listing.client, "/orders?status=COMPLETED&status=REJECTED") for o in page]
    assert len(both) == ORDERS


async def test_a_query_that_makes_no_sense_is_refused(service: Service, subtests: pytest.Subtests) -> None:
    """A wrong value or an unknown parameter is a 422 that names it."""
    for query in ("limit=0", "limit=1001", "cursor=x", "status=LOST", "colour=red", "customerId="):
        with subtests.test(query=query):
            answer = await service.client.get(f"/orders?{query}")
            assert answer.status_code == 422
            assert query.split("=", maxsplit=1)[0] in answer.text
