"""Who may do what, on the whole service."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Any

import httpx
import pytest
import structlog

from app.api import auth
from app.api.schemas import NewOrder
from app.cli.checks import check_config
from app.settings import Settings, load_settings
from tests.service import ORDER, Sandbox, Service, service_running, settings_for

KEYS: dict[str, dict[str, Any]] = {
    "shop": {"scopes": ["orders:write", "orders:read"]},
    "writer": {"scopes": ["orders:write"]},
    "reader": {"scopes": ["orders:read"]},
    "operator": {"scopes": ["ops"]},
    "desk": {"scopes": ["orders:write", "orders:read"], "customers": ["c-1", "c-2"]},
}
OPEN = {"/health/live", "/health/ready"}


def key_of(name: str) -> str:
    return f"k-{name}-xyzzy"


def hash_of(name: str) -> str:
    return sha256(key_of(name).encode()).hexdigest()


def bearing(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key_of(name)}"}


def auth_environ() -> dict[str, str]:
    keys = [{"name": name, "sha256": hash_of(name), **rest} for name, rest in KEYS.items()]
    return {"ORDERS_AUTH__MODE": "api_key", "ORDERS_AUTH__KEYS": json.dumps(keys)}


@pytest.fixture
def guarded_settings(pg_dsn: str, sandbox: Sandbox) -> Settings:
    return settings_for(pg_dsn, sandbox.url, auth_environ())


@pytest.fixture
async def guarded(guarded_settings: Settings) -> AsyncIterator[Service]:
    async with service_running(guarded_settings) as service:
        yield service


def is_problem(answer: httpx.Response, status: int) -> bool:
    problem = answer.headers["content-type"] == "application/problem+json"
    return problem and answer.status_code == status == answer.json()["status"]


async def test_nothing_but_health_is_answered_without_a_key(guarded: Service, subtests: pytest.Subtests) -> None:
    """Whatever operations there are, each answers 401 and says what it wants; health, metrics and docs are open."""
    document = (await guarded.client.get("/openapi.json")).json()
    operations = [(method, path) for path, methods in document["paths"].items() for method in methods]
    assert ("post", "/orders") in operations
    for method, path in operations:
        with subtests.test(method=method, path=path):
            target = path.replace("{name}", "sber").replace("{task}", "payment_task")
            target = target.replace("{order_id}", "1").replace("{task_id}", "1")
            answer = await guarded.client.request(method, target)
            if path in OPEN:
                assert answer.status_code == 200
                continue
            assert is_problem(answer, 401)
            assert answer.headers["www-authenticate"] == "Bearer"
            assert {"401", "403"} <= document["paths"][path][method]["responses"].keys()
            assert document["paths"][path][method]["security"]
    for path in ("/metrics", "/docs"):
        assert (await guarded.client.get(path)).status_code == 200


NO_KEYS: list[str | bytes] = [
    "",
    "Bearer",
    "Bearer ",
    "Bearer wrong",
    f"Bearer {key_of('shop').upper()}",
    f"Bearer {key_of('shop')} {key_of('shop')}",
    f"Bearer {hash_of('shop')}",
    f"Basic {key_of('shop')}",
    key_of("shop"),
    b"Bearer \xff\xfe",
]


async def test_what_is_no_known_key_is_refused(guarded: Service, subtests: pytest.Subtests) -> None:
    """401 whatever is sent in a key's place, the hash in the configuration included."""
    for authorization in NO_KEYS:
        with subtests.test(authorization=authorization):
            headers = httpx.Headers(
                {b"Authorization": authorization if isinstance(authorization, bytes) else authorization.encode()}
            )
            assert is_problem(await guarded.client.get("/orders/1", headers=headers), 401)


async def test_who_tries_keys_is_seen(guarded: Service) -> None:
    """The console's parts are fetched all the time and not logged, but for those who may not have them."""
    with structlog.testing.capture_logs() as lines:
        for name in ("nobody", "shop", "operator"):
            await guarded.client.get("/ops/board", headers=bearing(name))
    seen = [(line["status"], line["log_level"]) for line in lines if line["event"] == "request"]
    assert seen == [(401, "info"), (403, "info"), (200, "debug")]


async def test_a_key_is_looked_for_in_its_header_only(guarded: Service) -> None:
    """A key in the address would end up in logs, so it is none."""
    assert is_problem(await guarded.client.get("/orders/1", params={"key": key_of("shop")}), 401)


async def test_the_scheme_is_written_in_any_case(guarded: Service) -> None:
    """`bearer` and `Bearer` are the same scheme, and spaces around the key do not belong to it."""
    answer = await guarded.client.get("/orders/1", headers={"Authorization": f"bearer   {key_of('shop')}"})
    assert is_problem(answer, 404)


async def test_each_operation_needs_its_scope(guarded: Service, subtests: pytest.Subtests) -> None:
    """A key does what its scopes say, and is told which scope it lacks for the rest."""
    needs = [
        ("POST", "/orders", "orders:write"),
        ("POST", "/orders/999/cancel", "orders:write"),
        ("GET", "/orders/999", "orders:read"),
        ("GET", "/ops/systems", "ops"),
        ("POST", "/ops/systems/sber/reset", "ops"),
        ("GET", "/ops/tasks", "ops"),
        ("POST", "/ops/tasks/payment_task/999/retry", "ops"),
    ]
    for name, key in KEYS.items():
        for method, path, scope in needs:
            with subtests.test(key=name, method=method, path=path):
                answer = await guarded.client.request(method, path, headers=bearing(name))
                if scope in key["scopes"]:
                    assert answer.status_code in {200, 404, 415}
                else:
                    assert is_problem(answer, 403)
                    assert scope in answer.json()["detail"]


async def test_a_body_is_not_read_for_a_stranger(guarded: Service) -> None:
    """Whoever may not place orders learns nothing of what is wrong with one."""
    assert is_problem(await guarded.client.post("/orders", json={}), 401)
    assert is_problem(await guarded.client.post("/orders", json={}, headers=bearing("reader")), 403)
    assert is_problem(await guarded.client.post("/orders", json={}, headers=bearing("shop")), 422)


async def test_a_bound_key_acts_for_its_customers_only(guarded: Service, sandbox: Sandbox) -> None:
    """It places orders for them and for nobody else; other customers' orders do not exist for it."""
    await sandbox.set("insurance", mode="hang")
    mine, other = {**ORDER, "customerId": "c-2"}, {**ORDER, "customerId": "c-3"}
    placed = await guarded.client.post("/orders", json=mine, headers=bearing("desk"))
    assert placed.status_code == 202
    assert is_problem(await guarded.client.post("/orders", json=other, headers=bearing("desk")), 403)
    own = placed.headers["location"]
    foreign = (await guarded.client.post("/orders", json=other, headers=bearing("shop"))).headers["location"]

    assert (await guarded.client.get(own, headers=bearing("desk"))).json()["customerId"] == "c-2"
    missing = await guarded.client.get("/orders/999", headers=bearing("desk"))
    tag = (await guarded.client.get(foreign, headers=bearing("shop"))).headers["etag"]
    for method, path, more in (
        ("GET", foreign, {}),
        ("GET", foreign, {"If-None-Match": "*"}),
        ("GET", foreign, {"If-None-Match": tag, "Prefer": "wait=30"}),
        ("GET", f"{foreign}/events", {"Last-Event-ID": "99"}),
        ("POST", f"{foreign}/cancel", {}),
    ):
        answer = await guarded.client.request(method, path, headers=bearing("desk") | more)
        assert is_problem(answer, 404)
        told = answer.text.replace(answer.headers["x-request-id"], "").replace(foreign.split("/")[2], "999")
        assert told == missing.text.replace(missing.headers["x-request-id"], "")
    assert (await guarded.client.get(foreign, headers=bearing("shop"))).json()["status"] == "ACCEPTED"
    for query, seen in (("", {"c-2"}), ("?customerId=c-2", {"c-2"}), ("?customerId=c-3", set())):
        listed = (await guarded.client.get(f"/orders{query}", headers=bearing("desk"))).json()["orders"]
        assert {order["customerId"] for order in listed} == seen
    assert (await guarded.client.post(f"{own}/cancel", headers=bearing("desk"))).json()["status"] == "CANCELLED"


async def test_without_authentication_everybody_may_do_everything(service: Service) -> None:
    """On loopback, as shipped, no key is asked for, and one that is sent does not matter."""
    order_id = await service.place()
    assert (await service.client.get(f"/orders/{order_id}", headers=bearing("shop"))).status_code == 200
    assert (await service.client.get("/ops/systems")).status_code == 200


async def test_every_key_is_compared_whatever_was_found(
    guarded: Service, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    """The first key takes as many comparisons as the last and as an unknown one: time tells nothing."""
    compared: list[str] = []

    def compare(known: str, given: str) -> bool:
        compared.append(known)
        return known == given

    monkeypatch.setattr(auth, "compare_digest", compare)
    for name in ("shop", "desk", "nobody"):
        with subtests.test(name=name):
            compared.clear()
            await guarded.client.get("/orders/1", headers=bearing(name))
            assert compared == [hash_of(key) for key in KEYS]


async def test_a_hash_is_written_in_any_case(pg_dsn: str, sandbox: Sandbox) -> None:
    """Tools print hashes in upper and in lower case."""
    keys = [{"name": "shop", "sha256": hash_of("shop").upper(), "scopes": ["ops"]}]
    environ = {"ORDERS_AUTH__MODE": "api_key", "ORDERS_AUTH__KEYS": json.dumps(keys)}
    async with service_running(settings_for(pg_dsn, sandbox.url, environ), "worker") as service:
        assert (await service.client.get("/ops/systems", headers=bearing("shop"))).status_code == 200
        assert is_problem(await service.client.get("/ops/systems"), 401)


async def test_secrets_are_told_to_nobody(
    sandbox: Sandbox,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No log line, answer or repr holds a key, a key's hash or the database's password, even when all goes wrong."""
    dsn = "postgresql://orders:unspeakable@127.0.0.1:1/orders"
    settings = settings_for(dsn, sandbox.url, auth_environ())
    caplog.set_level(logging.DEBUG)
    told = []
    async with service_running(settings) as service:

        def broken(_: NewOrder) -> None:
            raise RuntimeError("a bug")

        for headers in ({}, {"Authorization": "Bearer k-guess-xyzzy"}, *(bearing(name) for name in KEYS)):
            for method, path in (
                ("GET", "/orders/1"),
                ("GET", "/ops/systems"),
                ("GET", "/ops/tasks"),
                ("GET", "/health/ready"),
            ):
                told.append((await service.client.request(method, path, headers=headers)).text)
            told.append((await service.client.post("/orders", json=ORDER, headers=headers)).text)
        monkeypatch.setattr(NewOrder, "to_domain", broken)
        told.append((await service.client.post("/orders", json=ORDER, headers=bearing("shop"))).text)
        assert "internal-error" in told[-1]
        told += [repr(service.wiring.settings), repr(service.wiring.database.engine), str(vars(service.wiring))]
        await asyncio.sleep(0.2)
    for name, value in auth_environ().items() | {("ORDERS_PG__DSN", dsn)}:
        monkeypatch.setenv(name, value)
    check_config()
    told += [capsys.readouterr().out, str(load_settings().model_dump())]
    told += [str(vars(record)) for record in caplog.records]
    assert "database cannot be reached" in "".join(told)
    secrets = ["unspeakable", "xyzzy", *(hash_of(name) for name in KEYS)]
    assert [secret for secret in secrets for text in told if secret in text] == []
