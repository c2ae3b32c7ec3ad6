"""A hook of schemathesis: it makes requests keep the rules that no schema can state, and which have tests of their own.

What breaks a rule that the schema does state is left alone: it has to be refused.
"""

import re
import uuid
from typing import Any

import schemathesis

from app.api.idempotency import NAME, PATTERN
from app.api.stream import LAST_EVENT_ID


@schemathesis.hook
def before_call(_context: schemathesis.HookContext, case: schemathesis.Case[Any], _kwargs: dict[str, Any]) -> None:
    """One key for one order, only events that there are, and all prices in one currency."""
    if re.fullmatch(PATTERN, str(case.headers.get(NAME, ""))):
        case.headers[NAME] = str(uuid.uuid4())
    if re.fullmatch("[0-9]+", str(case.headers.get(LAST_EVENT_ID, ""))):
        case.headers[LAST_EVENT_ID] = "1"
    if case.operation.label == "POST /orders":
        for price in _prices(case.body):
            if re.fullmatch("[A-Z]{3}", str(price.get("currency", ""))):
                price["currency"] = "RUB"


def _prices(body: Any) -> list[dict[str, Any]]:
    items = body.get("items") if isinstance(body, dict) else None
    found = [item.get("price") for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    return [price for price in found if isinstance(price, dict)]
