"""The OpenAPI document: what FastAPI knows of each operation, and what is true of all of them."""

import json
import re
from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from app import VERSION
from app.api.described import HEADERS, REQUEST_ID, given, problem_answers
from app.api.examples import EXAMPLES
from app.api.kinds import Kind
from app.api.problems import Problem
from app.api.schemas import NewOrder
from app.api.schemas.actions import Reason
from app.api.webhooks import MODELS, PARAMETERS, webhooks

Json = dict[str, Any]

ABOUT: Json = {
    "title": "Orders",
    "version": VERSION,
    "summary": "Takes orders in and brings each to its end, however slow or flaky the systems it needs are.",
    "description": """\
An order is placed with one request and goes its way by itself: it is confirmed, paid, booked and recorded by systems
that may take their time. Ask for it again, or receive the events.

Every error is a problem (RFC 9457) whose `type` is the address of a page about it. Each operation names the errors
that are its own. Besides, any request may be answered with 400 or 431 if its head cannot be read, with 404 or 405 if it
means no operation, and with 500 if the service itself is at fault. Where no API key is asked for, what a browser sends
for another site's page gets 403, 415 if it is a form, or 421 if it is under another name. These are problems, too.""",
    "contact": {"name": "Whoever runs this service"},
    "license_info": {"name": "MIT", "identifier": "MIT"},
    "tags": [
        {"name": "orders", "description": "For clients: place an order, follow it, cancel it."},
        {"name": "ops", "description": "For operators: external systems as one replica sees them, and all tasks."},
        {"name": "health", "description": "For the orchestrator; no API key is asked for."},
        {"name": "events", "description": "What the service tells others, where `events.sink` is `webhook`."},
    ],
}
"""What the document says of the whole."""

UNSEEN: tuple[type[BaseModel], ...] = (Problem, NewOrder, Reason, *MODELS)
"""Types that no operation declares to FastAPI: errors, bodies that are read by hand, events."""

NEVER_ANSWERED = {"HTTPValidationError", "ValidationError"}

REFERENCE = re.compile(r'"#/components/(\w+)/([\w.-]+)"')


def install(app: FastAPI, *, url: str, guarded: bool) -> None:
    """Let the application serve the document: at which address it is, and whether it asks its callers for keys."""

    def openapi() -> Json:
        if app.openapi_schema is None:
            app.openapi_schema = describe(app, url=url, guarded=guarded)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # the documented way to extend it


def describe(app: FastAPI, *, url: str = "/", guarded: bool = True) -> Json:
    """What FastAPI knows of the operations, with what holds for many of them."""
    document = get_openapi(**ABOUT, servers=[{"url": url, "description": "This service"}], routes=app.routes)
    unseen = models_json_schema([(m, "validation") for m in UNSEEN], ref_template="#/components/schemas/{model}")[1]
    schemas = document["components"]["schemas"] | unseen["$defs"]
    _drop_titles(schemas)
    for path in document["paths"].values():
        for operation in path.values():
            _complete(operation, guarded=guarded)
    document["webhooks"] = webhooks()
    for media_type, media in _media(document):
        _show_example(media_type, media)
    parameters = PARAMETERS | {"X-Request-ID": REQUEST_ID}
    parts = {"schemas": schemas, "headers": HEADERS, "examples": EXAMPLES, "parameters": parameters}
    document["components"] |= {kind: _used(kind, known, [document, schemas]) for kind, known in parts.items()}
    return document


def _complete(operation: Json, *, guarded: bool) -> None:
    """Whoever asks for a key may refuse; what takes parameters may find them wrong; each answer names its request."""
    answers, always = operation["responses"], []
    operation["security"] = operation.get("security", []) if guarded else []
    if operation["security"]:
        always += [Kind.UNAUTHORIZED, Kind.FORBIDDEN]
    if "HTTPValidationError" in json.dumps(answers.get("422")):
        always += [Kind.INVALID_REQUEST]
    answers |= {str(status): answer for status, answer in problem_answers(*always).items()}
    for answer in answers.values():
        answer["headers"] = answer.get("headers", {}) | given("X-Request-ID")["headers"]
    operation["responses"] = dict(sorted(answers.items()))
    _drop_titles(operation.get("parameters", []))
    operation.setdefault("parameters", []).append({"$ref": "#/components/parameters/X-Request-ID"})


def _media(part: Any) -> Iterator[tuple[str, Json]]:
    """The type and the description of every body in this part of the document."""
    if isinstance(part, dict):
        for name, value in part.items():
            yield from value.items() if name == "content" else _media(value)


def _show_example(media_type: str, media: Json) -> None:
    """A body's example goes by the name of its schema, or by its type if it is no JSON."""
    name = media["schema"].get("$ref", media_type).rpartition("/")[2]
    if name in EXAMPLES:
        media.setdefault("examples", {name: {"$ref": f"#/components/examples/{name}"}})


def _used(kind: str, known: Json, where: list[Json]) -> Json:
    """Those components that are referred to there, but for FastAPI's own errors."""
    used = {name for found, name in REFERENCE.findall(json.dumps(where)) if found == kind}
    return {name: known[name] for name in sorted(used - NEVER_ANSWERED)}


def _drop_titles(part: Any) -> None:
    """Drop pydantic's titles: they are the names again, in other letters."""
    if isinstance(part, list):
        for item in part:
            _drop_titles(item)
    elif isinstance(part, dict):
        if isinstance(part.get("title"), str):
            del part["title"]
        for value in part.values():
            _drop_titles(value)
