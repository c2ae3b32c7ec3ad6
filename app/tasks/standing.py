"""How the task tables stand, for people: each figure is found in an index and counted up to a limit, as are rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.tasks.task import ACTIVE, TaskStatus

SEEN = """
SELECT order_id, '{table}' AS name, task_id, status, retry_count, last_error, next_attempt_at, created_at, updated_at,
       greatest(extract(epoch FROM next_attempt_at - now()), 0)::float8 AS due_in
FROM {table} WHERE """

_OF_ORDER = f"{SEEN} order_id = :order_id"

_STANDING = """
SELECT '{table}' AS name,
  (SELECT count(*) FROM (SELECT FROM {table} WHERE status IN ('PENDING', 'IN_PROGRESS') AND next_attempt_at <= now()
                         LIMIT :most) AS d) AS due,
  (SELECT count(*) FROM (SELECT FROM {table} WHERE status IN ('PENDING', 'IN_PROGRESS') AND next_attempt_at > now()
                         LIMIT :most) AS w) AS waiting,
  (SELECT count(*) FROM (SELECT FROM {table} WHERE status = 'FAILED' LIMIT :most) AS f) AS failed,
  (SELECT greatest(extract(epoch FROM now() - min(next_attempt_at)), 0)::float8 FROM {table}
   WHERE status IN ('PENDING', 'IN_PROGRESS')) AS oldest"""

_OPEN = f"""{SEEN}
status IN ('PENDING', 'IN_PROGRESS') AND next_attempt_at {{side}} now() ORDER BY next_attempt_at LIMIT :most"""


@dataclass(frozen=True, slots=True)
class TaskView:
    """A task as its order's reader sees it; `due_in` in seconds, 0 when due. Under way it is due at its lease's end."""

    name: str
    task_id: int
    status: TaskStatus
    attempts: int
    last_error: str | None
    next_attempt_at: datetime
    created_at: datetime
    updated_at: datetime
    due_in: float

    @property
    def open(self) -> bool:
        return self.status in ACTIVE

    def under_way(self, lease: float) -> bool:
        """Whether a worker holds it: nothing else puts a row off for exactly the `lease` of its table."""
        return self.open and self.next_attempt_at - self.updated_at == timedelta(seconds=lease)


@dataclass(frozen=True, slots=True)
class Standing:
    """Rows of a task table that are due, that wait for their time or are under way, and that have failed.

    `oldest`: for how many seconds the first of the due rows has been due; 0 when there is none.
    """

    table: str
    due: int
    waiting: int
    failed: int
    oldest: float


async def standing(conn: AsyncConnection, tables: Sequence[str], most: int) -> list[Standing]:
    """How each table stands; no count goes beyond `most`."""
    union = " UNION ALL ".join(_STANDING.format(table=table) for table in tables)
    rows = {row.name: Standing(*row) for row in await conn.execute(text(union), {"most": most})}
    return [rows[table] for table in tables]


async def open_tasks(conn: AsyncConnection, table: str, most: int, *, due: bool) -> list[tuple[int, TaskView]]:
    """The first `most` tasks that are due, or that wait or are under way, by their time; each with its order's id."""
    statement = _OPEN.format(table=table, side="<=" if due else ">")
    return [seen(row) for row in await conn.execute(text(statement), {"most": most})]


async def tasks_of_order(conn: AsyncConnection, tables: Sequence[str], order_id: int) -> dict[str, TaskView]:
    """The order's task in each table that has one, by table name."""
    union = " UNION ALL ".join(_OF_ORDER.format(table=table) for table in tables)
    rows = await conn.execute(text(union), {"order_id": order_id})
    return {task.name: task for _, task in map(seen, rows)}


def seen(row: Any) -> tuple[int, TaskView]:
    return row.order_id, TaskView(row.name, row.task_id, TaskStatus(row.status), *row[4:])
