"""The API behind a proxy that serves it below a prefix: every address that is given away leads back to it."""

import asyncio
import re
from collections.abc import AsyncIterator
from urllib.parse import urljoin

import pytest
from httpx_aiohttp import HttpxAiohttpClient

from tests.component.api.prefixing import prefixing
from tests.processes import free_port
from tests.service import ORDER, Sandbox, Service, service_running, settings_for

STRANGERS = {
    "Host": "evil.example",
    "Forwarded": "host=evil.example;proto=https",
    "X-Forwarded-Host": "evil.example",
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Prefix": "/evil",
}


@pytest.fixture
async def shop(pg_dsn: str, sandbox: Sandbox) -> AsyncIterator[HttpxAiohttpClient]:
    """A client in front of the proxy; its base_url is what the service knows as api.public_url."""
    port = free_port()
    public = f"http://127.0.0.1:{port}/shop/api"
    async with (
        service_running(settings_for(pg_dsn, sandbox.url, {"ORDERS_API__PUBLIC_URL": f"{public}/"}), "api") as service,
        prefixing(str(service.client.base_url).rstrip("/"), "/shop/api", port),
        HttpxAiohttpClient(base_url=public) as client,
    ):
        yield client


async def test_a_placed_order_is_found_where_it_is_said_to_be(shop: HttpxAiohttpClient) -> None:
    """Location is absolute and leads through the proxy to the order."""
    placed = await shop.post("/orders", json=ORDER)
    order_id = placed.json()["orderId"]
    assert placed.headers["location"] == f"{str(shop.base_url).rstrip('/')}/orders/{order_id}"
    order = await shop.get(placed.headers["location"])
    assert (order.status_code, order.json()["orderId"]) == (200, order_id)
    assert order.json()["links"]["self"] == placed.headers["location"]


async def test_pages_link_through_the_proxy(shop: HttpxAiohttpClient) -> None:
    """Link keeps the query and the way through the proxy."""
    orders = [(await shop.post("/orders", json=ORDER)).json()["orderId"] for _ in range(3)]
    url, seen = "/orders?limit=1&status=ACCEPTED", []
    while url:
        page = await shop.get(url)
        seen += [order["orderId"] for order in page.json()["orders"]]
        assert all(order["links"]["self"].startswith(f"{shop.base_url}orders/") for order in page.json()["orders"])
        url = page.links.get("next", {}).get("url", "")
        assert not url or url.startswith(str(shop.base_url))
    assert seen == orders[::-1]
    tasks = await shop.get("/ops/tasks?limit=1")
    assert (await shop.get(tasks.links["next"]["url"])).status_code == 200


async def test_problems_lead_to_their_pages(shop: HttpxAiohttpClient) -> None:
    """The type of a problem is the absolute address of its page, whose links work there, too."""
    problem = (await shop.get("/orders/999999")).json()
    page = await shop.get(problem["type"])
    assert f"<h1>{problem['title']}</h1>" in page.text
    for link in re.findall(r'href="([^"]+problems[^"]*)"', page.text):
        assert (await shop.get(urljoin(problem["type"], link))).status_code == 200


async def test_what_is_not_http_is_told_the_same_address(pg_dsn: str, sandbox: Sandbox) -> None:
    """A problem that is told before there is a request has the public address in its type as well."""
    settings = settings_for(pg_dsn, sandbox.url, {"ORDERS_API__PUBLIC_URL": "https://shop.example/api"})
    async with service_running(settings, "api") as service:
        reader, writer = await asyncio.open_connection("127.0.0.1", service.client.base_url.port)
        writer.write(b"\x16\x03\x01")
        answer = await reader.read()
        writer.close()
    assert b'"type":"https://shop.example/api/problems/malformed"' in answer


async def test_the_documentation_works_behind_the_proxy(shop: HttpxAiohttpClient) -> None:
    """The page finds the document and its files, and the document names the address to call."""
    page = await shop.get("/docs")
    needed = re.findall(r"""(?:src|href)="([^"]+)"|url: ['"]([^'"]+)['"]""", page.text)
    addresses = [urljoin(f"{shop.base_url}docs", a or b) for a, b in needed if not (a or b).startswith("data:")]
    assert [a for a in addresses if "openapi.json" in a]
    for address in addresses:
        assert (await shop.get(address)).status_code == 200, address
    document = (await shop.get("/openapi.json")).json()
    assert [server["url"] for server in document["servers"]] == [str(shop.base_url).rstrip("/")]


async def test_strangers_do_not_choose_the_address(pg_dsn: str, sandbox: Sandbox, subtests: pytest.Subtests) -> None:
    """Host and the headers of proxies change no address: without api.public_url all of them are paths."""
    anywhere = {"ORDERS_API__HOST": "0.0.0.0", "ORDERS_AUTH__ALLOW_ANONYMOUS": "true"}
    async with service_running(settings_for(pg_dsn, sandbox.url, anywhere), "api") as service:
        for _ in range(2):
            await service.place()
        for path in ("/orders/999999", "/orders?limit=1", "/openapi.json", "/docs", "/problems/not-found"):
            with subtests.test(path=path):
                answer = await service.client.get(path, headers=STRANGERS)
                assert answer.status_code in {200, 404}
                assert "evil" not in answer.text + str(answer.headers)
                if "limit" in path:
                    assert answer.headers["link"].startswith("</orders?limit=1&cursor=")


@pytest.mark.parametrize("prefix", ["", "/mounted"])
async def test_without_a_public_address_links_are_paths(
    service: Service, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They begin with the prefix that the server says the application is mounted at, and nothing else."""
    monkeypatch.setattr(service.server.config, "root_path", prefix)
    placed = await service.client.post("/orders", json=ORDER)
    assert placed.headers["location"] == f"{prefix}/orders/{placed.json()['orderId']}"
    missing = await service.client.get("/orders/999999")
    assert missing.json()["type"] == f"{prefix}/problems/not-found"
