"""What the console lists of a task table: the tasks that are due, that wait, or that have failed."""

from dataclasses import dataclass
from typing import Literal

from app.tasks.standing import TaskView, open_tasks
from app.tasks.task import TaskStatus
from app.wiring import Wiring

SHOWN = 50

Which = Literal["due", "waiting", "failed"]


@dataclass(frozen=True, slots=True)
class ListedTask:
    order_id: int
    task: TaskView
    may_be_cancelled: bool


@dataclass(frozen=True, slots=True)
class Listing:
    """The first `shown` tasks; `more` says that there are others."""

    table: str
    system: str
    which: Which
    tasks: list[ListedTask]
    more: bool
    shown: int = SHOWN


async def read_listing(wiring: Wiring, table: str, which: Which) -> Listing | None:
    """None when there is no such table."""
    step = next((step for step in wiring.steps if step.table == table), None)
    if step is None:
        return None
    if which == "failed":
        tasks = await failed_tasks(wiring, table, SHOWN + 1)
    else:
        async with wiring.database.engine.connect() as conn:
            found = await open_tasks(conn, table, SHOWN + 1, due=which == "due")
        tasks = [ListedTask(order_id, task, may_be_cancelled=False) for order_id, task in found]
    return Listing(table, step.system, which, tasks[:SHOWN], more=len(tasks) > SHOWN)


async def failed_tasks(wiring: Wiring, table: str, most: int) -> list[ListedTask]:
    """The newest failed tasks of the table. Only a confirmation's order can be cancelled: nothing is paid yet."""
    cancellable = table == wiring.steps[0].table
    found = await wiring.queues[table].listing([TaskStatus.FAILED], most)
    return [ListedTask(order_id, task, cancellable) for order_id, task in found]
