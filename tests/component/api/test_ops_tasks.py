"""Operators look at tasks and give failed ones another chance."""

import pytest
from sqlalchemy import text

from tests.service import Sandbox, Service


async def test_failed_tasks_are_found_and_retried(service: Service, sandbox: Sandbox) -> None:
    """An operator sees why a task failed, which its customer does not, and gives it another chance, once."""
    await sandbox.set("receipt", outcome="FAILED")
    order_id = await service.place()
    await service.reach([order_id], "RECEIPT_FAILED")
    (found,) = (await service.client.get("/ops/tasks", params={"status": "FAILED"})).json()["tasks"]
    assert (found["task"], found["orderId"], found["status"]) == ("receipt_creation_task", order_id, "FAILED")
    assert found["lastError"].startswith("ended: receipt ")
    assert found["lastError"] not in (await service.client.get(f"/orders/{order_id}")).text.replace(
        (await service.order(order_id))["reason"], ""
    )

    await sandbox.set("receipt", outcome="ISSUED")
    retry = f"/ops/tasks/receipt_creation_task/{found['taskId']}/retry"
    answer = await service.client.post(retry)
    assert answer.status_code == 200
    assert (answer.json()["taskId"], answer.json()["orderId"]) == (found["taskId"], order_id)
    assert answer.json()["status"] in {"PENDING", "IN_PROGRESS"}
    await service.reach([order_id], "COMPLETED")
    again = await service.client.post(retry)
    assert again.status_code == 409
    assert "COMPLETED" in again.json()["detail"]


async def test_a_task_whose_order_did_not_fail_is_not_retried(service: Service) -> None:
    """When task and order disagree, nothing is changed, and the answer says how the order stands."""
    async with service.wiring.database.engine.begin() as conn:
        order_id = await conn.scalar(
            text("INSERT INTO orders (customer_id, items, status) VALUES ('c', '[]', 'CANCELLED') RETURNING id")
        )
        task_id = await conn.scalar(
            text(
                "INSERT INTO payment_task (order_id, status, next_attempt_at, payload)"
                " VALUES (:id, 'FAILED', now(), '{}') RETURNING task_id"
            ),
            {"id": order_id},
        )
    answer = await service.client.post(f"/ops/tasks/payment_task/{task_id}/retry")
    assert answer.status_code == 409
    assert "CANCELLED" in answer.json()["detail"]
    (task,) = (await service.client.get("/ops/tasks", params={"task": "payment_task"})).json()["tasks"]
    assert task["status"] == "FAILED"


NOT_RETRIED = [
    ("/ops/tasks/payment_task/999/retry", 404),
    ("/ops/tasks/orders/1/retry", 404),
    ("/ops/tasks/pg_catalog.pg_class/1/retry", 404),
    ("/ops/tasks/payment_task/0/retry", 422),
    ("/ops/tasks/payment_task/first/retry", 422),
    ("/ops/tasks/payment_task/9223372036854775808/retry", 422),
]


async def test_what_cannot_be_retried_is_a_problem(service: Service, subtests: pytest.Subtests) -> None:
    """No such table, no such task, no id at all: each is told apart and changes nothing."""
    for path, status in NOT_RETRIED:
        with subtests.test(path=path):
            answer = await service.client.post(path)
            assert answer.status_code == status
            assert answer.headers["content-type"] == "application/problem+json"


async def fill(service: Service, counts: dict[str, int]) -> None:
    """Make finished and failed tasks: every third one has failed."""
    async with service.wiring.database.engine.begin() as conn:
        for table, count in counts.items():
            await conn.execute(
                text(
                    "WITH o AS (INSERT INTO orders (customer_id, items, status)"
                    " SELECT 'c', '[]', 'CANCELLED' FROM generate_series(1, :count) RETURNING id)"
                    f" INSERT INTO {table} (order_id, status, next_attempt_at, payload)"
                    " SELECT id, CASE WHEN id % 3 = 0 THEN 'FAILED' ELSE 'COMPLETED' END, now(), '{}' FROM o"
                ),
                {"count": count},
            )


async def walk(service: Service, path: str) -> list[list[tuple[str, int]]]:
    """All pages from this one on, as (table, task id)."""
    pages: list[list[tuple[str, int]]] = []
    while path:
        answer = await service.client.get(path)
        assert answer.status_code == 200, answer.text
        pages.append([(task["task"], task["taskId"]) for task in answer.json()["tasks"]])
        link = answer.headers.get("link", "")
        assert link == "" or link.endswith('>; rel="next"')
        path = link.partition(">")[0].removeprefix("<")
    return pages


async def test_tasks_are_listed_page_by_page(service: Service) -> None:
    """The links lead through all tables, newest first, without a gap or a repetition, whatever the page's size."""
    await fill(service, {"order_confirmation_task": 7, "booking_task": 4, "orderbook_task": 5})
    everything = [
        *(("order_confirmation_task", n) for n in range(7, 0, -1)),
        *(("booking_task", n) for n in range(4, 0, -1)),
        *(("orderbook_task", n) for n in range(5, 0, -1)),
    ]
    assert await walk(service, "/ops/tasks") == [everything]
    for limit in (1, 4, 7, 16):
        pages = await walk(service, f"/ops/tasks?limit={limit}")
        assert [task for page in pages for task in page] == everything
        assert {len(page) for page in pages[:-1]} <= {limit}
        assert 0 < len(pages[-1]) <= limit
    assert await walk(service, "/ops/tasks?task=booking_task&limit=3") == [everything[7:10], everything[10:11]]
    assert await walk(service, "/ops/tasks?task=payment_task") == [[]]
    assert await walk(service, f"/ops/tasks?cursor=orderbook_task.{10**19 - 1}") == [everything[-5:]]


async def test_a_filter_goes_along_from_page_to_page(service: Service) -> None:
    """Only what was asked for is on each page, and tasks that come meanwhile shift nothing."""
    await fill(service, {"payment_task": 12, "booking_task": 12})
    pages = await walk(service, "/ops/tasks?status=FAILED&limit=3")
    assert [len(page) for page in pages] == [3, 3, 2]
    first = await service.client.get("/ops/tasks?status=FAILED&status=PENDING&limit=3")
    await fill(service, {"payment_task": 6})
    rest = await walk(service, first.headers["link"].partition(">")[0].removeprefix("<"))
    assert rest == pages[1:]


REFUSED_QUERIES = [
    ("task=orders", "/query/task"),
    ("status=DONE", "/query/status/0"),
    ("limit=0", "/query/limit"),
    ("limit=1001", "/query/limit"),
    ("cursor=x", "/query/cursor"),
    ("cursor=orders.1", "/query/cursor"),
    ("cursor=payment_task.99999999999999999999", "/query/cursor"),
    ("stauts=FAILED", "/query/stauts"),
]


async def test_a_listing_nobody_can_mean_is_refused(service: Service, subtests: pytest.Subtests) -> None:
    """A misspelt filter is an error, and not the list of everything."""
    for query, pointer in REFUSED_QUERIES:
        with subtests.test(query=query):
            answer = await service.client.get(f"/ops/tasks?{query}")
            assert answer.status_code == 422
            assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]
