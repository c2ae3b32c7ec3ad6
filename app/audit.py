"""What operators did and why: rows are added, in the transaction of what they tell of, and are kept for ever."""

import asyncio
import os
import socket
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Literal, NamedTuple

import structlog
from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.transaction import transact

log = structlog.get_logger()

REPLICA = f"{socket.gethostname()}:{os.getpid()}"
"""This process, by the name that operators see."""

NEWEST = 2**63 - 1
"""Above every action's id but the very last that there can be."""

PATIENCE = 2
"""Seconds: whoever isolates a system while the database hangs is in a hurry."""

Action = Literal["isolate", "release", "reset", "retry", "cancel"]

_ADD = text("""
INSERT INTO operator_action (caller, action, target, reason, replica)
VALUES (:caller, :action, :target, :reason, :replica)""")

_PAGE = text("""
SELECT id, at, caller, action, target, reason, replica FROM operator_action
WHERE id < :before ORDER BY id DESC LIMIT :most""")

_ABOUT = text("""
SELECT id, at, caller, action, target, reason, replica FROM operator_action
WHERE target = ANY (CAST(:targets AS text[])) ORDER BY id""")


class By(NamedTuple):
    """Whose hand it was, the reason that was given, and the process that did it."""

    caller: str
    reason: str | None = None
    replica: str = REPLICA


@dataclass(frozen=True, slots=True)
class OperatorAction:
    """A row of the table. `target` is a system's name, or a task as `table/id`."""

    id: int
    at: datetime
    caller: str
    action: Action
    target: str
    reason: str | None
    replica: str


def record(conn: Connection, by: By, action: Action, target: str) -> None:
    """Add a row in the transaction of what it tells of."""
    conn.execute(_ADD, {**by._asdict(), "action": action, "target": target})


async def record_done(engine: AsyncEngine, by: By, action: Action, target: str) -> None:
    """Add a row for what this process has done to itself already.

    Without a database that answers within PATIENCE seconds the log alone keeps it.
    """
    try:
        async with asyncio.timeout(PATIENCE):
            await transact(engine, partial(record, by=by, action=action, target=target))
    except (SQLAlchemyError, OSError) as error:
        log.error("operator action not recorded", action=action, target=target, error=repr(error))  # noqa: TRY400


async def page(conn: AsyncConnection, *, most: int, before: int = NEWEST) -> list[OperatorAction]:
    """At most `most` actions with ids below `before`, the newest first."""
    return [OperatorAction(*row) for row in await conn.execute(_PAGE, {"before": before, "most": most})]


async def about(conn: AsyncConnection, targets: Collection[str]) -> list[OperatorAction]:
    """All actions on these targets, the oldest first."""
    return [OperatorAction(*row) for row in await conn.execute(_ABOUT, {"targets": list(targets)})]
