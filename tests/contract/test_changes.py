"""Clients of the released API go on working: the current document takes nothing back that the released one promises."""

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.contract.changes import NotUnderstood, breaking
from tests.contract.published import DOCUMENT

RELEASED = Path(__file__).resolve().parents[2] / "openapi.released.json"
"""The document of the last release. A release copies openapi.json there; a deliberate break needs that, too."""

Change = Callable[[dict[str, Any]], Any]

SCHEMAS = "components", "schemas"


def at(document: Any, *path: str) -> Any:
    for name in path:
        document = document[name]
    return document


def place_order(document: dict[str, Any]) -> Any:
    return at(document, "paths", "/orders", "post")


def view(document: dict[str, Any]) -> Any:
    return at(document, *SCHEMAS, "OrderView", "properties")


def test_nothing_is_taken_back() -> None:
    """What the released document allows is still allowed, and what it promises is still kept."""
    assert breaking(json.loads(RELEASED.read_text()), DOCUMENT) == []


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda d: at(d, "paths").pop("/orders/{order_id}/cancel"), "removed"),
        (lambda d: at(d, "webhooks").pop("order.paid"), "removed"),
        (lambda d: place_order(d)["responses"].pop("202"), "202: removed"),
        (lambda d: place_order(d)["responses"]["202"]["headers"].pop("Location"), "header Location removed"),
        (lambda d: place_order(d).update(security=[{"apiKey": ["ops"]}]), "another scope"),
        (lambda d: place_order(d)["parameters"].clear(), "Idempotency-Key in header removed"),
        (lambda d: place_order(d)["parameters"][0].update(required=True), "Idempotency-Key in header required"),
        (lambda d: place_order(d)["requestBody"]["content"].clear(), "application/json removed"),
        (lambda d: at(d, *SCHEMAS, "NewOrder", "required").append("note"), "/note: required"),
        (lambda d: at(d, *SCHEMAS, "NewOrder", "properties").pop("customerId"), "/customerId: removed"),
        (lambda d: at(d, *SCHEMAS, "NewOrder", "properties", "items").update(maxItems=10), "maxItems 10, was 100"),
        (lambda d: at(d, *SCHEMAS, "NewOrder", "properties", "customerId").update(minLength=2), "minLength 2, was 1"),
        (lambda d: at(d, *SCHEMAS, "Price", "properties", "currency").update(pattern="^RUB$"), "pattern differs"),
        (lambda d: view(d).pop("paymentUrl"), "/paymentUrl: removed"),
        (lambda d: at(d, *SCHEMAS, "OrderView", "required").remove("final"), "/final: required"),
        (lambda d: view(d)["final"].update(type="string"), "type string, not boolean"),
        (lambda d: view(d).update(total={"anyOf": [view(d)["total"], {"type": "null"}]}), "/total: type null"),
        (lambda d: at(d, *SCHEMAS, "OrderStatus", "enum").append("LOST"), "'LOST'"),
        (lambda d: at(d, *SCHEMAS, "OrderPaid", "properties").pop("data"), "/data: removed"),
    ],
)
def test_a_break_is_found(change: Change, complaint: str) -> None:
    """Whatever a client may rely on is missed when it goes."""
    changed = deepcopy(DOCUMENT)
    change(changed)
    found = breaking(DOCUMENT, changed)
    assert [told for told in found if complaint in told], found


@pytest.mark.parametrize(
    "change",
    [
        lambda d: at(d, "paths").update({"/new": {"get": {}}}),
        lambda d: place_order(d)["responses"].update({"429": {"description": "Too Many Requests"}}),
        lambda d: place_order(d)["parameters"].append({"name": "Prefer", "in": "header", "schema": {"type": "string"}}),
        lambda d: at(d, *SCHEMAS, "NewOrder", "properties").update(note={"type": "string"}),
        lambda d: at(d, *SCHEMAS, "NewOrder", "properties", "items").update(maxItems=1000),
        lambda d: view(d).update(note={"type": "string"}),
        lambda d: at(d, *SCHEMAS, "OrderView", "properties", "reason").update({"anyOf": [{"type": "null"}]}),
        lambda d: at(d, "info").update(description="Another one."),
    ],
)
def test_what_adds_is_no_break(change: Change) -> None:
    """More operations, more choice in what is taken, more said in what is given: clients need not know."""
    changed = deepcopy(DOCUMENT)
    change(changed)
    assert breaking(DOCUMENT, changed) == []


def test_an_unknown_keyword_is_no_consent() -> None:
    """A schema that the comparison does not understand stops it."""
    changed = deepcopy(DOCUMENT)
    view(changed)["final"]["not"] = {"const": True}
    with pytest.raises(NotUnderstood, match="not"):
        breaking(DOCUMENT, changed)
