"""The Idempotency-Key: however often a request comes, it makes one order."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from decimal import Decimal
from hashlib import sha256
from typing import Any

import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from app.db import Database, open_database
from app.orders import repository
from app.orders.create import Answer, Created, KeyInFlight, KeyReused, Placement, create_orders
from app.orders.idempotency import Key
from app.orders.intake import Intake
from app.orders.money import Money
from app.orders.moves import StepQueues
from app.orders.order import NOT_SAVED, Item, Order
from app.orders.repository import NewOrder
from app.orders.snapshot import dump_payload
from app.settings import load_settings
from app.tasks.queue import TaskQueue
from tests.service import ORDER, Service, service_running, settings_for

NOWHERE = "http://127.0.0.1:1"
ITEMS = (Item("TICKET", 2, Money(Decimal("1990.00"), "RUB")),)
KEY = Key("shop", "k-1", b"a")
OTHER = {**ORDER, "customerId": "c-43"}


@pytest.fixture
async def service(pg_dsn: str) -> AsyncIterator[Service]:
    async with service_running(settings_for(pg_dsn, NOWHERE), "api") as service:
        yield service


@pytest.fixture
def steps(database: Database) -> StepQueues:
    return {"order.accepted": TaskQueue("order_confirmation_task", database.engine)}


def keyed(key: Key | None = KEY) -> Placement:
    return Placement("c-42", ITEMS, key=key)


async def hold(conn: AsyncConnection, key: Key) -> None:
    """Use a key, as a request under way does, in a transaction that stays open."""
    new = NewOrder(dump_payload(Order(NOT_SAVED, "c-42", ITEMS)), None, key)
    opening = Order(NOT_SAVED, "c-42", ITEMS).accepted()
    assert await conn.run_sync(repository.place, [new], opening, "order_confirmation_task") != [None]


async def count(database: Database, table: str) -> int:
    async with database.engine.connect() as conn:
        return int(await conn.scalar(text(f"SELECT count(*) FROM {table}")) or 0)


@contextmanager
def statements(database: Database) -> Iterator[list[str]]:
    """Collects what is sent to the database."""
    sent: list[str] = []

    def note(_conn: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        sent.append(statement)

    event.listen(database.engine.sync_engine, "before_cursor_execute", note)
    yield sent
    event.remove(database.engine.sync_engine, "before_cursor_execute", note)


# Over HTTP


async def test_a_repeated_request_gets_the_first_answer(service: Service) -> None:
    """The same key and body: the same order, task and Location, marked as replayed, and nothing new is saved."""
    first, second = [
        await service.client.post("/orders", json=ORDER, headers={"Idempotency-Key": key}) for key in ('"k-1"', "k-1")
    ]
    assert (first.status_code, second.status_code) == (202, 202)
    assert first.json() == second.json()
    assert first.headers["location"] == second.headers["location"]
    assert "idempotent-replayed" not in first.headers
    assert second.headers["idempotent-replayed"] == "true"
    for table in ("orders", "order_confirmation_task", "outbox_event"):
        assert await count(service.wiring.database, table) == 1


async def test_how_a_body_is_spelt_does_not_matter(service: Service) -> None:
    """Spaces, the order of the fields and escaped characters make no other body."""
    spellings = [json.dumps(ORDER), json.dumps(dict(reversed(ORDER.items())), indent=3).replace("c-42", "\\u0063-42")]
    headers = {"Idempotency-Key": "k-1", "Content-Type": "application/json"}
    answers = [await service.client.post("/orders", content=body, headers=headers) for body in spellings]
    assert [answer.status_code for answer in answers] == [202, 202]
    assert answers[0].json() == answers[1].json()


async def test_a_key_with_another_body_is_refused(service: Service) -> None:
    """422 as a problem that says so, and no order."""
    headers = {"Idempotency-Key": "k-1"}
    assert (await service.client.post("/orders", json=ORDER, headers=headers)).status_code == 202
    refused = await service.client.post("/orders", json=OTHER, headers=headers)
    assert (refused.status_code, refused.headers["content-type"]) == (422, "application/problem+json")
    assert refused.json()["type"] == "/problems/idempotency-key-reused"
    assert await count(service.wiring.database, "orders") == 1


async def test_a_request_whose_first_is_under_way_is_told_to_come_again(service: Service) -> None:
    """409 with Retry-After while another transaction holds the key; when that one is rolled back, a repetition wins."""
    headers = {"Idempotency-Key": "k-1"}
    async with service.wiring.database.engine.connect() as conn:
        await hold(conn, Key("anonymous", "k-1", b"a"))
        refused = await service.client.post("/orders", json=ORDER, headers=headers)
        await conn.rollback()
    assert (refused.status_code, refused.headers["content-type"]) == (409, "application/problem+json")
    assert refused.json()["type"] == "/problems/idempotency-key-in-flight"
    assert int(refused.headers["retry-after"]) >= 1
    accepted = await service.client.post("/orders", json=ORDER, headers=headers)
    assert accepted.status_code == 202
    assert "idempotent-replayed" not in accepted.headers
    assert await count(service.wiring.database, "orders") == 1


async def test_fifty_equal_requests_make_one_order(service: Service) -> None:
    """Sent side by side they get one and the same answer, or 409 while the first is under way."""
    headers = {"Idempotency-Key": "k-1"}
    answers = await asyncio.gather(*(service.client.post("/orders", json=ORDER, headers=headers) for _ in range(50)))
    accepted = [answer for answer in answers if answer.status_code == 202]
    assert {answer.status_code for answer in answers} <= {202, 409}
    assert len({answer.text for answer in accepted}) == 1
    assert len([answer for answer in accepted if "idempotent-replayed" not in answer.headers]) == 1
    for table in ("orders", "order_confirmation_task", "outbox_event"):
        assert await count(service.wiring.database, table) == 1


async def test_a_refused_request_does_not_use_its_key_up(service: Service) -> None:
    """Once its body is put right, the request is accepted under the same key."""
    headers = {"Idempotency-Key": "k-1"}
    assert (await service.client.post("/orders", json={**ORDER, "items": []}, headers=headers)).status_code == 422
    assert (await service.client.post("/orders", json=ORDER, headers=headers)).status_code == 202


async def test_callers_do_not_share_keys(pg_dsn: str) -> None:
    """The same key of two callers makes two orders."""
    keys = [
        {"name": name, "sha256": sha256(name.encode()).hexdigest(), "scopes": ["orders:write"]} for name in ("a", "b")
    ]
    environ = {"ORDERS_AUTH": json.dumps({"mode": "api_key", "keys": keys})}
    async with service_running(settings_for(pg_dsn, NOWHERE, environ), "api") as service:
        orders = []
        for name in ("a", "b", "a"):
            headers = {"Idempotency-Key": "k-1", "Authorization": f"Bearer {name}"}
            orders.append((await service.client.post("/orders", json=ORDER, headers=headers)).json()["orderId"])
    assert orders[0] == orders[2] != orders[1]


MALFORMED = ["", '""', "a b", '"a b"', '"a', '"a"b"', '"a\\"', '"a"; q=1', 'a, "b"', "ключ", "k" * 256]


async def test_a_malformed_key_is_refused(service: Service, subtests: pytest.Subtests) -> None:
    """400 as a problem that says how a key looks; two headers are no key either."""
    headers: list[list[tuple[bytes, bytes]]] = [
        *([(b"Idempotency-Key", key.encode())] for key in MALFORMED),
        [(b"Idempotency-Key", b"a"), (b"Idempotency-Key", b"b")],
    ]
    for sent in headers:
        with subtests.test(sent=str(sent)[:80]):
            answer = await service.client.post("/orders", json=ORDER, headers=sent)
            assert answer.status_code == 400
            assert answer.headers["content-type"] == "application/problem+json"
            assert "1 to 255 visible ASCII characters" in answer.json()["detail"]
    assert await count(service.wiring.database, "orders") == 0


MEANT = {
    "k": ["k", '"k"'],
    "k" * 255: ["k" * 255],
    'a"b\\c': ['"a\\"b\\\\c"'],
    "{a}/%20;=": ["{a}/%20;=", '"{a}/%20;="'],
}


async def test_a_key_is_kept_as_it_is_meant(service: Service) -> None:
    """Quotes and escapes are spelling: what they stand for is the key."""
    for spellings in MEANT.values():
        for spelling in spellings:
            answer = await service.client.post("/orders", json=ORDER, headers={"Idempotency-Key": spelling})
            assert answer.status_code == 202, spelling
    async with service.wiring.database.engine.connect() as conn:
        rows = await conn.execute(text("SELECT caller, key FROM idempotency_key"))
        assert sorted(tuple(row) for row in rows) == sorted(("anonymous", key) for key in MEANT)


async def test_the_header_is_documented(service: Service) -> None:
    """OpenAPI names the header and the answers it brings."""
    operation = (await service.client.get("/openapi.json")).json()["paths"]["/orders"]["post"]
    assert "Idempotency-Key" in [parameter.get("name") for parameter in operation["parameters"]]
    assert {"400", "409", "422"} <= set(operation["responses"])


# In the database


async def test_one_statement_takes_an_order_in(database: Database, steps: StepQueues) -> None:
    """With a key or without one; only a repetition costs a second, which finds the first answer."""
    costs = []
    for key in (None, KEY, KEY):
        with statements(database) as sent:
            await Intake(database.engine, steps, most=64).place(keyed(key))
        costs.append(len(sent))
    assert costs == [1, 1, 2]


async def test_a_small_pool_is_enough_for_equal_requests(pg_dsn: str) -> None:
    """Fifty of them at once over two connections: none waits for another one's transaction, all end, one order."""
    pg = load_settings({"ORDERS_PG__DSN": pg_dsn, "ORDERS_PG__POOL__MAX": "60"}).pg
    small = pg.model_copy(update={"pool": pg.pool.model_copy(update={"max": 2})})
    async with open_database(small, application_name="test") as database:
        steps = {"order.accepted": TaskQueue("order_confirmation_task", database.engine)}
        work = (Intake(database.engine, steps, most=64).place(keyed()) for _ in range(50))
        async with asyncio.timeout(20):
            outcomes = await asyncio.gather(*work, return_exceptions=True)
        created = [outcome for outcome in outcomes if isinstance(outcome, Created)]
        assert [o for o in outcomes if not isinstance(o, Created | KeyInFlight)] == []
        assert [c.replayed for c in created].count(False) == 1
        assert len({c.order_id for c in created}) == 1
        assert await count(database, "orders") == 1


async def test_a_winner_that_fails_leaves_the_key_to_the_others(database: Database, steps: StepQueues) -> None:
    """Its key goes with its order: the next request with the key creates one."""

    nameless = keyed()._replace(customer_id="")
    with pytest.raises(IntegrityError):
        await Intake(database.engine, steps, most=64).place(nameless)
    assert await count(database, "idempotency_key") == 0
    assert not (await Intake(database.engine, steps, most=64).place(keyed())).replayed


async def test_a_batch_answers_each_request_in_its_place(database: Database, steps: StepQueues) -> None:
    """Orders that are new are saved together; what a key stands in the way of is answered and harms no other."""
    earlier = await Intake(database.engine, steps, most=64).place(keyed(Key("shop", "earlier", b"a")))
    async with database.engine.connect() as conn:
        await hold(conn, Key("shop", "busy", b"a"))
        keys = [None, KEY, KEY, KEY._replace(fingerprint=b"b"), None, KEY._replace(caller="kiosk")]
        keys += [Key("shop", name, b"a") for name in ("earlier", "busy", "new")]
        answers = await create_orders(database.engine, steps, [keyed(key) for key in keys])
        await conn.rollback()
    assert [outcome(answer) for answer in answers] == [
        *("created", "created", "replayed", "reused", "created", "created", "replayed", "in flight", "created")
    ]
    assert answers[6] == earlier._replace(replayed=True)
    ids = [answer.order_id for answer in answers if isinstance(answer, Created) and not answer.replayed]
    assert ids == sorted(set(ids))
    assert isinstance(answers[1], Created)
    assert answers[2] == answers[1]._replace(replayed=True)
    assert await count(database, "orders") == 1 + len(ids)
    assert await count(database, "outbox_event") == 1 + len(ids)


def outcome(answer: Answer) -> str:
    match answer:
        case Created(replayed=replayed):
            return "replayed" if replayed else "created"
        case KeyInFlight():
            return "in flight"
        case KeyReused():
            return "reused"


async def test_batches_with_the_same_keys_do_not_block_each_other(database: Database, steps: StepQueues) -> None:
    """Transactions that want each other's keys, in opposite orders, all end, and each key has one order."""
    keys = [Key("shop", f"k-{n}", b"a") for n in range(20)]
    batches = [[keyed(key) for key in (keys if n % 2 else keys[::-1])] for n in range(10)]
    async with asyncio.timeout(20):
        answers = await asyncio.gather(*(create_orders(database.engine, steps, batch) for batch in batches))
    created = [a for batch in answers for a in batch if isinstance(a, Created) and not a.replayed]
    assert len(created) == await count(database, "orders") == 20
