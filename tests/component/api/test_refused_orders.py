"""What is no order is refused, with the place of the error and what to do."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import text

from tests.service import ORDER, Service

JSON = {"content-type": "application/json"}


BAD_BODIES: list[tuple[str, Any]] = [
    ("/customerId", {**ORDER, "customerId": ""}),
    ("/customerId", {**ORDER, "customerId": "c" * 65}),
    ("/customerId", {**ORDER, "customerId": "c\x00"}),
    ("/customerId", {**ORDER, "customerId": 42}),
    ("/customerId", {"items": ORDER["items"]}),
    ("/items", {**ORDER, "items": []}),
    ("/items", {**ORDER, "items": ORDER["items"] * 101}),
    ("/surprise", {**ORDER, "surprise": 1}),
    ("/sur~1pri~0se", {**ORDER, "sur/pri~se": 1}),
    *(
        (f"/items/0/{field}", {**ORDER, "items": [{**ORDER["items"][0], field: value}]})
        for field, value in [
            ("quantity", 0),
            ("quantity", True),
            ("quantity", 1.5),
            ("quantity", 2**53 + 1),
            ("sku", ""),
        ]
    ),
    *(
        (
            "/items/0/price/amount",
            {**ORDER, "items": [{**ORDER["items"][0], "price": {"amount": a, "currency": "RUB"}}]},
        )
        for a in ["0", "0.00", "-1", "1e3", "NaN", "1.999", "1,5", "", 1990, 1990.0, "1" * 13]
    ),
    (
        "/items/0/price/currency",
        {**ORDER, "items": [{**ORDER["items"][0], "price": {"amount": "1", "currency": "rub"}}]},
    ),
]


async def test_a_bad_order_is_refused_with_the_place_of_the_error(service: Service, subtests: pytest.Subtests) -> None:
    """422 as problem+json names the field that is wrong, and nothing is saved."""
    for pointer, body in BAD_BODIES:
        with subtests.test(pointer=pointer, body=str(body)[:100]):
            answer = await service.client.post("/orders", json=body)
            assert answer.status_code == 422
            assert answer.headers["content-type"] == "application/problem+json"
            problem = answer.json()
            assert pointer in [e["pointer"] for e in problem["errors"]]
            assert (problem["status"], problem["type"]) == (422, "/problems/invalid-request")
    async with service.wiring.database.engine.connect() as conn:
        assert await conn.scalar(text("SELECT count(*) FROM orders")) == 0


FOOLING = ["\0", "\n", "\x7f", "\x80", "\x9b31m", "\u202a", "\u202e", "\u2066", "\u2069"]


async def test_text_that_others_could_be_fooled_with_is_refused(service: Service, subtests: pytest.Subtests) -> None:
    """Control characters, C1 as well, and those that turn the direction of writing; the 422 says so in words."""
    for wrong in FOOLING:
        with subtests.test(wrong=wrong):
            said = f"c-{wrong}42"
            for path, body in (
                ("/orders", {**ORDER, "customerId": said}),
                ("/orders", {**ORDER, "items": [{**ORDER["items"][0], "sku": said}]}),
                ("/ops/systems/sber/isolate", {"reason": said}),
            ):
                answer = await service.client.post(path, json=body)
                assert answer.status_code == 422
                assert "control characters" in answer.json()["errors"][0]["detail"]


async def test_one_currency_per_order(service: Service) -> None:
    """Prices in two currencies are refused: their sum would mean nothing."""
    euro = {**ORDER["items"][0], "price": {"amount": "5", "currency": "EUR"}}
    answer = await service.client.post("/orders", json={**ORDER, "items": [*ORDER["items"], euro]})
    assert answer.status_code == 422
    assert "EUR, RUB" in answer.json()["detail"]


GARBAGE = [
    b"",
    b"{",
    b"null",
    b"[]",
    b'"\xff"',
    b"[" * 10_000,
    b'{"customerId":NaN}',
    b'{"customerId":"\\ud800","items":[]}',
]


async def test_garbage_is_refused(service: Service, subtests: pytest.Subtests) -> None:
    """A body that is no JSON, or not an order's, is the client's error, never ours."""
    for content in GARBAGE:
        with subtests.test(content=content[:20]):
            answer = await service.client.post("/orders", content=content, headers=JSON)
            assert answer.status_code == 422
            assert answer.headers["content-type"] == "application/problem+json"


async def chunks() -> AsyncIterator[bytes]:
    for _ in range(3):
        yield b" " * 600_000


ERRORS: list[tuple[str, str, dict[str, Any], int]] = [
    ("GET", "/nothing", {}, 404),
    ("GET", "/orders/999", {}, 404),
    ("POST", "/orders/999/cancel", {}, 404),
    ("GET", "/orders/0", {}, 422),
    ("GET", "/orders/99999999999999999999", {}, 422),
    ("GET", "/orders/abc", {}, 422),
    ("GET", "/orders/1.0", {}, 422),
    ("GET", "/orders/+1", {}, 422),
    ("GET", "/orders/1_0", {}, 422),
    ("GET", "/orders?limit=1_0", {}, 422),
    ("GET", "/orders/1_0/events", {}, 422),
    ("POST", "/orders/1_0/cancel", {}, 422),
    ("GET", "/ops/tasks?limit=1.0", {}, 422),
    ("DELETE", "/orders", {}, 405),
    ("POST", "/orders", {"content": chunks(), "headers": JSON}, 413),
    ("POST", "/orders", {"content": chunks(), "headers": {**JSON, "content-length": "1800000"}}, 413),
    ("POST", "/orders", {"content": b"a=1", "headers": {"content-type": "text/plain"}}, 415),
    ("POST", "/orders", {"content": b"{}"}, 415),
]


@pytest.mark.rule("WHERE-4")
async def test_every_error_is_a_problem(service: Service, subtests: pytest.Subtests) -> None:
    """Whatever is wrong, the answer is problem+json with the status in it and a text that says what."""
    for method, path, options, status in ERRORS:
        with subtests.test(method=method, path=path, status=status):
            answer = await service.client.request(method, path, **options)
            assert answer.status_code == status
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.json()["status"] == status
            assert answer.json()["detail"]
