"""What pages of other sites may do where no key is asked for: nothing. The whole service, over sockets."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.component.api.test_auth import auth_environ, bearing, is_problem
from tests.service import Sandbox, Service, service_running, settings_for

OUTSIDE = {"ORDERS_API__HOST": "0.0.0.0", "ORDERS_AUTH__ALLOW_ANONYMOUS": "true"}
PUBLIC = {"ORDERS_API__PUBLIC_URL": "https://Orders.example:443/api"}


@pytest.fixture
async def outside(pg_dsn: str, sandbox: Sandbox) -> AsyncIterator[Service]:
    """A service for a closed network, where it may have any name."""
    async with service_running(settings_for(pg_dsn, sandbox.url, OUTSIDE)) as service:
        yield service


@pytest.fixture
async def known(pg_dsn: str, sandbox: Sandbox) -> AsyncIterator[Service]:
    """A service on loopback with a proxy in front."""
    async with service_running(settings_for(pg_dsn, sandbox.url, PUBLIC)) as service:
        yield service


async def isolated_by(service: Service, **headers: str) -> int:
    """The status of an isolation; the system is isolated exactly if that is 200."""
    await service.client.post("/ops/systems/sber/release")
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = await service.client.post("/ops/systems/sber/isolate", headers=sent)
    assert service.wiring.systems["sber"].policy.snapshot().isolated == (answer.status_code == 200)
    if answer.status_code != 200:
        assert is_problem(answer, answer.status_code)
    return answer.status_code


async def test_a_browser_that_says_so_is_believed(service: Service, subtests: pytest.Subtests) -> None:
    """A page of another site can send a request without a body, and a browser says where it comes from."""
    for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200)):
        with subtests.test(site=site):
            assert await isolated_by(service, Sec_Fetch_Site=site) == status
            order_id = await service.place()
            cancelled = await service.client.post(f"/orders/{order_id}/cancel", headers={"Sec-Fetch-Site": site})
            assert cancelled.status_code == status
            assert ((await service.order(order_id))["status"] == "CANCELLED") == (status == 200)


ORIGINS = [
    ("http://orders.internal", 200),
    ("https://orders.internal", 200),
    ("http://evil.test", 403),
    ("http://orders.internal:81", 403),
    ("http://orders.internal.evil.test", 403),
    ("null", 403),
    ("", 403),
]


async def test_an_origin_is_the_services_own(outside: Service, subtests: pytest.Subtests) -> None:
    """On plain HTTP a browser sends no Sec-Fetch-Site, but its Origin: it has to be where the request went."""
    for origin, status in ORIGINS:
        with subtests.test(origin=origin):
            assert await isolated_by(outside, Host="orders.internal", Origin=origin) == status


PUBLIC_ORIGINS = [
    ("https://orders.example", "app:8000", 200),
    ("https://orders.example", "orders.example", 200),
    ("http://orders.example", "orders.example", 403),
    ("http://evil.test", "evil.test", 403),
    ("http://localhost:8000", "localhost:8000", 200),
]


async def test_the_public_url_is_the_services_own(pg_dsn: str, sandbox: Sandbox, subtests: pytest.Subtests) -> None:
    """Where it is set, no other name counts, however a proxy passes it on; loopback cannot be another site's."""
    async with service_running(settings_for(pg_dsn, sandbox.url, OUTSIDE | PUBLIC)) as service:
        for origin, host, status in PUBLIC_ORIGINS:
            with subtests.test(origin=origin, host=host):
                assert await isolated_by(service, Host=host, Origin=origin) == status


async def test_forms_are_refused(outside: Service, subtests: pytest.Subtests) -> None:
    """An action without a body is none of a form's business; JSON and nothing at all are fine."""
    for media in ("application/x-www-form-urlencoded", "multipart/form-data; boundary=a", "text/plain"):
        with subtests.test(media=media):
            assert await isolated_by(outside, Content_Type=media) == 415
            assert await isolated_by(outside, Content_Type="application/json") == 200
            order_id = await outside.place()
            refused = await outside.client.post(f"/orders/{order_id}/cancel", headers={"Content-Type": media})
            assert refused.status_code == 415
            assert (await outside.client.post(f"/orders/{order_id}/cancel")).status_code == 200


OTHER_NAMES = ["evil.example", "evil.example:8000", "localhost.evil.example", "10.0.0.1", "[::2]", "["]


async def test_on_loopback_other_names_are_refused(service: Service, subtests: pytest.Subtests) -> None:
    """A name that was given this machine's address (DNS rebinding) neither reads nor acts."""
    order_id = await service.place()
    for host in OTHER_NAMES:
        with subtests.test(host=host):
            sent = {"Host": host, "Origin": f"http://{host}"}
            for path in (f"/orders/{order_id}", "/orders", f"/orders/{order_id}/events", "/ops/systems", "/ops/board"):
                assert is_problem(await service.client.get(path, headers=sent), 421)
            assert await isolated_by(service, **sent) == 421


ITS_NAMES = ["127.0.0.1", "127.0.0.1:1", "LOCALHOST:8000", "[::1]:8000", "orders.localhost"]


async def test_on_loopback_its_names_are_known(service: Service, subtests: pytest.Subtests) -> None:
    """Whatever names this machine, and a page that comes from there."""
    for host in ITS_NAMES:
        with subtests.test(host=host):
            assert await isolated_by(service, Host=host) == 200
            assert await isolated_by(service, Host=host, Origin=f"http://{host.lower()}") == 200


async def test_a_proxy_on_the_same_machine(known: Service) -> None:
    """The host of `api.public_url` is known, too."""
    for host, status in (("orders.example", 200), ("orders.example:443", 200), ("other.example", 421)):
        assert await isolated_by(known, Host=host) == status


async def test_probes_may_ask_by_any_name(service: Service, subtests: pytest.Subtests) -> None:
    """An orchestrator probes a pod by its address."""
    for path in ("/health/live", "/health/ready", "/metrics"):
        with subtests.test(path=path):
            assert (await service.client.get(path, headers={"Host": "10.1.2.3:8000"})).status_code == 200


async def test_keys_are_enough(pg_dsn: str, sandbox: Sandbox) -> None:
    """With keys neither name nor origin matters: a page of another site has no key to send."""
    sent: dict[str, Any] = {"Host": "evil.example", "Origin": "http://elsewhere.example", **bearing("operator")}
    async with service_running(settings_for(pg_dsn, sandbox.url, auth_environ())) as service:
        assert (await service.client.post("/ops/systems/sber/isolate", headers=sent)).status_code == 200
