"""How the task tables stand, for people: each figure is found in an index and counted up to a limit, as are rows."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.tasks.queue import SEEN, TaskView, seen

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
