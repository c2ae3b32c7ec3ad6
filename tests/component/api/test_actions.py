"""What operators do leaves its reason behind, on the whole service."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import text

from tests.component.api.test_auth import auth_environ, bearing
from tests.faults.proxy import proxy_to_postgres
from tests.service import Sandbox, Service, service_running, settings_for

QUICK = {"ORDERS_TASKS__DEFAULT__MAX_ATTEMPTS": "2", "ORDERS_TASKS__DEFAULT__BACKOFF_CAP": "1"}


@pytest.fixture
async def hasty(pg_dsn: str, sandbox: Sandbox) -> AsyncIterator[Service]:
    """A service that gives up after the second attempt."""
    async with service_running(settings_for(pg_dsn, sandbox.url, QUICK)) as service:
        yield service


async def actions(service: Service, **headers: str) -> list[dict[str, Any]]:
    answer = await service.client.get("/ops/actions", headers=headers)
    assert answer.status_code == 200
    return list(answer.json()["actions"])


async def task_of(service: Service, order_id: int, status: str) -> str:
    """The path of the order's one task that has this status."""
    found = (await service.client.get("/ops/tasks", params={"status": status})).json()["tasks"]
    (task,) = (t for t in found if t["orderId"] == order_id)
    return f"/ops/tasks/{task['task']}/{task['taskId']}"


async def is_isolated(service: Service, system: str) -> bool:
    return bool((await service.client.get("/ops/systems")).json()["systems"][system]["breaker"]["isolated"])


async def execute(service: Service, statement: str) -> None:
    async with service.wiring.database.engine.begin() as conn:
        await conn.execute(text(statement))


async def test_an_action_is_kept_with_its_reason(service: Service, sandbox: Sandbox) -> None:
    """Who, what, why, when and where: for systems and for tasks, the newest first, and without a reason as well."""
    await sandbox.set("receipt", outcome="FAILED")
    await service.reach([order_id := await service.place()], "RECEIPT_FAILED")
    await sandbox.set("receipt", outcome="ISSUED")
    task = await task_of(service, order_id, "FAILED")
    assert (await service.client.post("/ops/systems/sber/isolate", json={"reason": "a drill"})).status_code == 200
    assert (await service.client.post("/ops/systems/sber/release")).status_code == 200
    assert (await service.client.post(f"{task}/retry", json={"reason": "repaired"})).status_code == 200
    kept = await actions(service)
    target = task.removeprefix("/ops/tasks/")
    assert [(a["action"], a["target"], a["reason"]) for a in kept] == [
        ("retry", target, "repaired"),
        ("release", "sber", None),
        ("isolate", "sber", "a drill"),
    ]
    assert {(a["caller"], a["replica"] != "") for a in kept} == {("anonymous", True)}
    assert [a["id"] for a in kept] == [3, 2, 1]


async def test_an_action_bears_the_name_of_the_key(pg_dsn: str, sandbox: Sandbox) -> None:
    """Where keys are asked for, the audit names them, and is for those with the scope only."""
    async with service_running(settings_for(pg_dsn, sandbox.url, auth_environ())) as service:
        await service.client.post("/ops/systems/sber/reset", headers=bearing("operator"))
        assert [a["caller"] for a in await actions(service, **bearing("operator"))] == ["operator"]
        assert (await service.client.get("/ops/actions", headers=bearing("shop"))).status_code == 403


REFUSED_REASONS = [
    ("{}", "application/json", 422),
    ('{"reason": null}', "application/json", 422),
    ('{"reason": ""}', "application/json", 422),
    ('{"reason": "a\\u0000b"}', "application/json", 422),
    ('{"reason": "a\\nb"}', "application/json", 422),
    ('{"reason": "a", "why": "b"}', "application/json", 422),
    ('{"reason": "%s"}' % ("x" * 501), "application/json", 422),
    ('{"reason": "a"}', "text/plain", 415),
    ("reason=a", "application/x-www-form-urlencoded", 415),
]


async def test_a_reason_nobody_can_mean_is_refused(service: Service, subtests: pytest.Subtests) -> None:
    """And nothing is done."""
    for content, media_type, status in REFUSED_REASONS:
        with subtests.test(content=content[:30], media_type=media_type):
            answer = await service.client.post(
                "/ops/systems/sber/isolate", content=content, headers={"Content-Type": media_type}
            )
            assert answer.status_code == status
            assert not await is_isolated(service, "sber")
            assert await actions(service) == []


async def test_what_was_refused_is_not_kept(service: Service) -> None:
    """An action that did not happen leaves no row."""
    await service.reach([order_id := await service.place()], "COMPLETED")
    found = (await service.client.get("/ops/tasks", params={"task": "payment_task"})).json()["tasks"]
    (task,) = (t["taskId"] for t in found if t["orderId"] == order_id)
    for verb in ("retry", "cancel"):
        assert (await service.client.post(f"/ops/tasks/payment_task/{task}/{verb}")).status_code == 409
    assert await actions(service) == []


async def test_what_cannot_be_kept_is_not_done_to_a_task(service: Service, sandbox: Sandbox) -> None:
    """The retry and its audit are one transaction: when the one fails, the other has not happened."""
    await sandbox.set("receipt", outcome="FAILED")
    await service.reach([order_id := await service.place()], "RECEIPT_FAILED")
    task = await task_of(service, order_id, "FAILED")
    await execute(service, "ALTER TABLE operator_action RENAME TO elsewhere")
    assert (await service.client.post(f"{task}/retry")).status_code == 500
    assert (await service.order(order_id))["status"] == "RECEIPT_FAILED"
    assert await task_of(service, order_id, "FAILED") == task


async def test_a_system_is_isolated_even_if_that_cannot_be_kept(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    """A broken database must not keep an operator from it; the log keeps it instead."""
    caplog.set_level(logging.INFO)
    await execute(service, "ALTER TABLE operator_action RENAME TO elsewhere")
    assert (await service.client.post("/ops/systems/sber/isolate", json={"reason": "a drill"})).status_code == 200
    assert await is_isolated(service, "sber")
    lines = [record.msg for record in caplog.records if isinstance(record.msg, dict)]
    assert [line["reason"] for line in lines if line["event"] == "operator changed a system"] == ["a drill"]
    assert [line["target"] for line in lines if line["event"] == "operator action not recorded"] == ["sber"]


async def test_a_system_is_isolated_while_the_database_hangs(
    pg_dsn: str, sandbox: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    """It does not wait for the audit as long as statements may take."""
    patient = {"ORDERS_PG__STATEMENT_TIMEOUT": "60", "ORDERS_PG__LOCK_TIMEOUT": "60"}
    async with (
        proxy_to_postgres(pg_dsn) as (proxy, dsn),
        service_running(settings_for(dsn, sandbox.url, patient)) as service,
    ):
        assert await actions(service) == []
        proxy.hold()
        async with asyncio.timeout(8):
            answer = await service.client.post("/ops/systems/sber/isolate")
        assert (answer.status_code, answer.json()["breaker"]["isolated"]) == (200, True)
        proxy.pass_on()
    lines = [record.msg for record in caplog.records if isinstance(record.msg, dict)]
    assert [line["target"] for line in lines if line["event"] == "operator action not recorded"] == ["sber"]


async def test_actions_are_listed_page_by_page(service: Service) -> None:
    """The links lead through all of them, the newest first; a wrong cursor is an error."""
    for _ in range(7):
        await service.client.post("/ops/systems/sber/reset")
    seen, path = [], "/ops/actions?limit=3"
    while path:
        answer = await service.client.get(path)
        seen.append([a["id"] for a in answer.json()["actions"]])
        path = answer.headers.get("link", "").partition(">")[0].removeprefix("<")
    assert seen == [[7, 6, 5], [4, 3, 2], [1]]
    for query in ("limit=0", "cursor=x", "limits=3"):
        assert (await service.client.get(f"/ops/actions?{query}")).status_code == 422


# Cancelling


@pytest.mark.parametrize("mode", ["hang", "error"])
async def test_a_confirmation_is_given_up(hasty: Service, sandbox: Sandbox, mode: str) -> None:
    """Whether it is under way or has failed, its order is cancelled, for good and with the reason kept."""
    await sandbox.set("insurance", mode=mode)
    order_id = await hasty.place()
    if mode == "error":
        await hasty.reach([order_id], "CONFIRMATION_FAILED")
    task = await task_of(hasty, order_id, "FAILED" if mode == "error" else "PENDING")
    answer = await hasty.client.post(f"{task}/cancel", json={"reason": "the customer has left"})
    assert answer.status_code == 200
    assert answer.json()["status"] == "COMPLETED"
    assert (await hasty.order(order_id))["status"] == "CANCELLED"
    assert [(a["action"], a["reason"]) for a in await actions(hasty)] == [("cancel", "the customer has left")]
    assert (await hasty.client.post(f"{task}/cancel")).status_code == 409


async def test_what_is_not_there_is_not_cancelled(service: Service, subtests: pytest.Subtests) -> None:
    """No such task and no such table are problems."""
    for path in ("payment_task/999", "orders/1"):
        with subtests.test(path=path):
            assert (await service.client.post(f"/ops/tasks/{path}/cancel")).status_code == 404


async def test_a_payment_that_may_be_registered_is_never_given_up(hasty: Service, sandbox: Sandbox) -> None:
    """Its attempts have failed, and one of them may have reached the bank: neither before nor after a retry, which
    counts attempts anew, can anybody cancel the order."""
    await sandbox.set("sber", mode="error")
    await hasty.reach([order_id := await hasty.place()], "PAYMENT_FAILED")
    task = await task_of(hasty, order_id, "FAILED")
    assert (await hasty.client.post(f"{task}/cancel")).status_code == 409
    assert (await hasty.order(order_id))["status"] == "PAYMENT_FAILED"
    await hasty.client.post("/ops/systems/sber/isolate")
    assert (await hasty.client.post(f"{task}/retry")).status_code == 200
    assert (await hasty.client.post(f"{task}/cancel")).status_code == 409
    assert (await hasty.client.post(f"/orders/{order_id}/cancel")).status_code == 409
    assert (await hasty.order(order_id))["status"] == "CONFIRMED"
