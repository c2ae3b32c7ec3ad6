"""What CloudEvents 1.0 asks of an event in structured JSON, as a JSON Schema and a few rules that none can state."""

import re
from datetime import datetime, timedelta
from typing import Any

from jsonschema import Draft202012Validator

TEXT = {"type": "string", "minLength": 1}

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["id", "source", "specversion", "type"],
    "properties": {
        "id": TEXT,
        "source": {**TEXT, "pattern": r"^[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]+$"},
        "specversion": {"const": "1.0"},
        "type": TEXT,
        "datacontenttype": {**TEXT, "pattern": r"^[\w.+-]+/[\w.+-]+"},
        "dataschema": TEXT,
        "subject": TEXT,
        "time": {**TEXT, "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$"},
        "data": {"type": ["object", "array", "string", "number", "boolean", "null"]},
        "data_base64": {"type": "string"},
        # extensions that CloudEvents documents
        "sequence": TEXT,
        "traceparent": {"type": "string", "pattern": "^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$"},
    },
    "not": {"required": ["data", "data_base64"]},
    "propertyNames": {"anyOf": [{"pattern": "^[a-z0-9]{1,20}$"}, {"const": "data_base64"}]},
    "additionalProperties": {"type": ["string", "integer", "boolean"]},
}

Draft202012Validator.check_schema(SCHEMA)


def check(event: dict[str, Any]) -> None:
    """Raise when this is no CloudEvent, or its time is not UTC."""
    Draft202012Validator(SCHEMA).validate(event)
    assert datetime.fromisoformat(event["time"]).utcoffset() == timedelta(0)
    assert re.fullmatch(r"\d{10}", event["sequence"])
