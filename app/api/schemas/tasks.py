"""Tasks as operators see them."""

from dataclasses import asdict
from datetime import datetime
from typing import Annotated

from app.api.schemas.wire import Count, Int64, Name, Seconds, Text, View, told
from app.tasks.standing import TaskView
from app.tasks.task import TaskStatus


class TaskRow(View):
    """A task as operators see it; `due_in` in seconds, 0 when due; one under way is due at its lease's end."""

    task: Name
    task_id: Int64
    order_id: Int64
    status: TaskStatus
    attempts: Count
    last_error: Text | None
    next_attempt_at: datetime
    due_in: Seconds
    created_at: datetime
    updated_at: datetime


class TaskPage(View):
    tasks: Annotated[list[TaskRow], told(maxItems=1000)]


def task_row(order_id: int, task: TaskView) -> TaskRow:
    values = asdict(task)
    return TaskRow(task=values.pop("name"), order_id=order_id, **values)
