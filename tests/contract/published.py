"""The document as the tree has it, as the code makes it, and what it consists of."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker

from app.api.document import describe
from app.main import create_app
from app.settings import load_settings

FILE = Path(__file__).resolve().parents[2] / "openapi.json"
REFRESH = "python -m app openapi > openapi.json"

Json = dict[str, Any]

DOCUMENT: Json = json.loads(json.dumps(describe(create_app(load_settings({})))))


def operations(document: Json = DOCUMENT) -> Iterator[tuple[str, Json]]:
    """Every operation with its name, webhooks too."""
    for section in ("paths", "webhooks"):
        for path in document.get(section, {}).values():
            for operation in path.values():
                yield operation["operationId"], operation


def resolve(part: Json) -> Json:
    """What a reference refers to; anything else is itself."""
    while "$ref" in part:
        target: Any = DOCUMENT
        for name in part["$ref"].removeprefix("#/").split("/"):
            target = target[name.replace("~1", "/")]
        part = target
    return part


def bodies() -> Iterator[tuple[str, str, Json]]:
    """Every body: its place, its media type and the description of both."""
    for name, operation in operations():
        told = {"request": operation["requestBody"]} if "requestBody" in operation else {}
        for place, part in {**told, **operation["responses"]}.items():
            for media_type, media in part.get("content", {}).items():
                yield f"{name} {place}", media_type, media


def complaints(schema: Json, value: Any) -> list[str]:
    """What a schema of the document has against the value."""
    whole = {"components": DOCUMENT["components"], **schema}
    return [error.message for error in Draft202012Validator(whole, format_checker=FormatChecker()).iter_errors(value)]
