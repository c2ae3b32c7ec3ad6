"""An order's events as they were written, for people who look at its journey."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from pydantic import TypeAdapter
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

_HISTORY = text("""
SELECT sequence, type, data, occurred_at, traceparent, status, attempts, last_error FROM outbox_event
WHERE order_id = :order_id ORDER BY sequence LIMIT :most""")

_DATA = TypeAdapter(dict[str, Any])


@dataclass(frozen=True, slots=True)
class PastEvent:
    """An event of the outbox; `attempts` and `last_error` are about its publication."""

    sequence: int
    type: str
    data: dict[str, Any]
    occurred_at: datetime
    traceparent: str | None
    status: Literal["PENDING", "PUBLISHED", "PARKED"]
    attempts: int
    last_error: str | None


async def history(conn: AsyncConnection, order_id: int, most: int) -> list[PastEvent]:
    """The order's first `most` events that retention has left, in their sequence."""
    rows = await conn.execute(_HISTORY, {"order_id": order_id, "most": most})
    return [PastEvent(row.sequence, row.type, _DATA.validate_json(row.data), *row[3:]) for row in rows]
