"""The OpenAPI document: complete, in itself right, and the one that is committed."""

import json
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from openapi_spec_validator import validate

from app.api import orders
from app.api.kinds import Kind
from tests.commands import run
from tests.contract.published import DOCUMENT, FILE, REFRESH, Json, bodies, complaints, operations, resolve

BOUNDED = {
    "string": {"maxLength", "enum", "const", "format"},
    "array": {"maxItems"},
    "integer": {"maximum", "const", "enum"},
}
"""By type: the keywords one of which bounds it."""


def test_the_document_is_openapi() -> None:
    """A validator of OpenAPI 3.1 accepts it."""
    assert DOCUMENT["openapi"].startswith("3.1")
    validate(DOCUMENT)


def test_the_committed_document_is_the_current_one() -> None:
    """openapi.json is what the command prints."""
    printed = run("openapi").stdout
    assert json.loads(printed) == DOCUMENT
    assert FILE.read_text() == printed, f"refresh it: {REFRESH}"


def test_operations_are_named_after_their_functions() -> None:
    """Whoever reads an operation's id finds the function, and no two have the same."""
    names = [name for name, _ in operations()]
    assert len(names) == len(set(names))
    assert {"place_order", "show_order", "list_tasks"} <= set(names)
    assert callable(orders.place_order)


def test_bodies_have_examples_that_fit() -> None:
    """Each request and each answer with a body shows one, and it is as the schema says."""
    without = [f"{place} {media_type}" for place, media_type, media in bodies() if not media.get("examples")]
    assert without == []
    wrong = [
        (place, name, complaint)
        for place, _, media in bodies()
        for name, example in media["examples"].items()
        for complaint in complaints(media.get("schema", {}), resolve(example)["value"])
    ]
    assert wrong == []


def test_parameters_and_headers_have_examples_that_fit() -> None:
    """What is shown as a header's or a parameter's value is one."""
    parameters = [resolve(p) for _, operation in operations() for p in operation.get("parameters", [])]
    in_headers = [(part["schema"], part["example"]) for part in DOCUMENT["components"]["headers"].values()]
    in_parameters = [(part["schema"], e) for part in parameters for e in part["schema"].get("examples", ())]
    assert in_headers
    assert in_parameters
    assert [complaint for shown in in_headers + in_parameters for complaint in complaints(*shown)] == []


def test_no_parameter_is_filled_in() -> None:
    """What stands in a parameter's `example` or `examples`, /docs would send with each request unless it is deleted."""
    parameters = [resolve(p) for _, operation in operations() for p in operation.get("parameters", [])]
    assert parameters
    assert [p["name"] for p in parameters if {"example", "examples"} & {*p} or "example" in p["schema"]] == []


def test_errors_are_problems() -> None:
    """Every answer from 400 on is the one schema of problems; a readiness that is red is no error."""
    told = {
        (name, status): answer.get("content")
        for name, operation in operations(only_paths())
        for status, answer in operation["responses"].items()
        if int(status) >= HTTPStatus.BAD_REQUEST and name != "ready"
    }
    assert told
    for place, content in told.items():
        assert list(content) == ["application/problem+json"], place
        assert content["application/problem+json"]["schema"] == {"$ref": "#/components/schemas/Problem"}, place
        statuses = {resolve(e)["value"]["status"] for e in content["application/problem+json"]["examples"].values()}
        assert statuses == {int(place[1])}, place


def test_every_kind_of_problem_is_an_answer_of_some_operation() -> None:
    """But for those that come before an operation is found, that nobody receives, or that are a mistake of ours."""
    anywhere = {Kind.CUT_SHORT, Kind.MALFORMED, Kind.HEAD_TOO_LARGE, Kind.METHOD_NOT_ALLOWED, Kind.INTERNAL_ERROR}
    browsers = {Kind.OTHER_SITE, Kind.MISDIRECTED}
    assert {kind.slug for kind in Kind if kind not in anywhere | browsers} <= DOCUMENT["components"]["examples"].keys()


def test_every_answer_names_its_request() -> None:
    """X-Request-ID is a header of each answer."""
    for name, operation in operations(only_paths()):
        for status, answer in operation["responses"].items():
            assert "X-Request-ID" in answer["headers"], (name, status)


def test_security_is_stated_for_each_operation() -> None:
    """An operation either wants one scope or says that it wants none; only health wants none."""
    free = {name for name, operation in operations(only_paths()) if operation["security"] == []}
    assert free == {"live", "ready"}
    for name, operation in operations(only_paths()):
        if name not in free:
            ((scope,),) = [next(iter(wanted.values())) for wanted in operation["security"]]
            assert scope in {"orders:read", "orders:write", "ops"}, name
            assert {"401", "403"} <= operation["responses"].keys()


def test_tags_are_described() -> None:
    """Every operation has one tag, and each tag says what it is for."""
    described = {tag["name"] for tag in DOCUMENT["tags"] if tag["description"]}
    assert {tag for _, operation in operations() for tag in operation["tags"]} == described


def test_what_has_a_size_has_a_limit() -> None:
    """No string, list or number in the whole document is without bounds, be it taken or given.

    But for headers that may say anything, whose bound is that of the whole head, and for a stream, which has no end.
    """
    parameters = [resolve(p) for _, operation in operations() for p in operation.get("parameters", [])]
    anything = {id(p["schema"]) for p in parameters if p["name"] in {"If-None-Match", "Prefer", "X-Request-ID"}}
    found = [place for place, schema in schemas(DOCUMENT) if not bounded(schema) and id(schema) not in anything]
    found = [place for place in found if "text/event-stream" not in place]
    assert found == []


def test_the_202_leads_on() -> None:
    """The answer to a new order links to the operations that take its id."""
    links = next(o for n, o in operations() if n == "place_order")["responses"]["202"]["links"]
    assert {link["operationId"] for link in links.values()} == {"show_order", "follow_order", "cancel"}


def only_paths() -> Json:
    return {"paths": DOCUMENT["paths"]}


def schemas(part: Any, place: str = "") -> Iterator[tuple[str, Json]]:
    """Everything in the document that has a type, except examples."""
    if isinstance(part, dict):
        if isinstance(part.get("type"), str):
            yield place, part
        for name, value in part.items():
            if name not in {"examples", "example", "default"}:
                yield from schemas(value, f"{place}/{name}")
    elif isinstance(part, list):
        for number, value in enumerate(part):
            yield from schemas(value, f"{place}/{number}")


def bounded(schema: Json) -> bool:
    wanted = BOUNDED.get(schema["type"])
    return wanted is None or bool(wanted & schema.keys())
