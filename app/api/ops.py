"""For operators: the external systems as this replica sees them, and the tasks of all orders."""

import asyncio
import os
import socket
from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Any

import structlog
from fastapi import APIRouter, Path, Query, Request, Response, Security
from pydantic import BaseModel, ConfigDict, Field

from app.api.auth import REFUSALS, Operator, bearer_key
from app.api.paging import next_page
from app.api.problems import ProblemError, invalid, not_found, problem_answers
from app.api.schemas import Int64, SystemsView, SystemView, TaskPage, TaskRow, system_view, task_row
from app.api.wired import Wired
from app.orders.intervene import NotFailed, retry_step, step_of
from app.orders.order import WrongMove
from app.resilience import Policy
from app.systems.system import ExternalSystem
from app.tasks.queue import NEWEST
from app.tasks.task import TaskStatus
from app.wiring import Wiring

log = structlog.get_logger()

REPLICA = f"{socket.gethostname()}:{os.getpid()}"

SystemName = Annotated[str, Path(description="The system's name")]
TaskTable = Annotated[str, Path(description="The task table's name")]
TaskId = Annotated[Int64, Path(description="The task's id")]

router = APIRouter(
    prefix="/ops",
    tags=["ops"],
    dependencies=[Security(bearer_key, scopes=["ops"])],
    responses=problem_answers(*REFUSALS, HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.SERVICE_UNAVAILABLE),
)


@router.get("/systems")
async def show_systems(wiring: Wired) -> SystemsView:
    """Show each external system as this replica sees it. Another replica has breakers and pools of its own."""
    await asyncio.gather(*(system.health.check() for system in wiring.systems.values()))
    return SystemsView(systems={name: _view(wiring, system) for name, system in wiring.systems.items()})


@router.post("/systems/{name}/isolate", responses=problem_answers(HTTPStatus.NOT_FOUND))
async def isolate_system(operator: Operator, name: SystemName, wiring: Wired) -> SystemView:
    """Refuse every call from this replica to the system until it is released or reset, or the replica ends.

    Tasks wait and lose no attempt. Other replicas go on calling: isolate the system on each of them.
    """
    return _changed(wiring, operator.name, name, Policy.isolate)


@router.post("/systems/{name}/release", responses=problem_answers(HTTPStatus.NOT_FOUND))
async def release_system(operator: Operator, name: SystemName, wiring: Wired) -> SystemView:
    """End this replica's isolation of the system, if there is one: its breaker is closed, its window empty."""
    return _changed(wiring, operator.name, name, Policy.release)


@router.post("/systems/{name}/reset", responses=problem_answers(HTTPStatus.NOT_FOUND))
async def reset_system(operator: Operator, name: SystemName, wiring: Wired) -> SystemView:
    """Close this replica's breaker of the system, whatever its state, with an empty window; this ends an isolation."""
    return _changed(wiring, operator.name, name, Policy.reset)


class TaskQuery(BaseModel):
    """Which tasks, and how many on a page; `cursor` is from the Link of the page before."""

    model_config = ConfigDict(extra="forbid")

    task: str | None = None
    status: list[TaskStatus] = list(TaskStatus)
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    cursor: Annotated[str | None, Field(pattern=r"^\w{1,63}\.[0-9]{1,19}$")] = None

    def rest(self, tables: list[str]) -> tuple[list[str], int]:
        """The tables that are still to be listed, and the task id below which the first of them goes on."""
        if self.task is not None:
            tables = _from("task", self.task, tables)[:1]
        if self.cursor is None:
            return tables, NEWEST
        table, last = self.cursor.split(".")
        return _from("cursor", table, tables), min(int(last), NEWEST)


@router.get("/tasks")
async def list_tasks(
    wiring: Wired, wanted: Annotated[TaskQuery, Query()], request: Request, response: Response
) -> TaskPage:
    """List tasks, table by table in the order of the journey, the newest of each table first."""
    tables, before = wanted.rest(list(wiring.queues))
    rows: list[TaskRow] = []
    for table in tables:
        more = await wiring.queues[table].listing(wanted.status, wanted.limit + 1 - len(rows), before)
        rows += [task_row(order_id, task) for order_id, task in more]
        if len(rows) > wanted.limit:
            last = rows[wanted.limit - 1]
            response.headers["Link"] = next_page(request, f"{last.task}.{last.task_id}")
            break
        before = NEWEST
    return TaskPage(tasks=rows[: wanted.limit])


@router.post("/tasks/{task}/{task_id}/retry", responses=problem_answers(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT))
async def retry_task(operator: Operator, task: TaskTable, task_id: TaskId, wiring: Wired) -> TaskRow:
    """Give a FAILED task its attempts back, due now, and its order the status it failed from."""
    step = step_of(wiring.steps, task)
    if step is None:
        raise not_found(f"task table {task}; there are {', '.join(wiring.queues)}")
    try:
        order = await retry_step(wiring.database.engine, wiring.queues, step, task_id)
    except NotFailed:
        found = await wiring.queues[task].find(task_id)
        if found is None:
            raise not_found(f"task {task_id} in {task}") from None
        raise _conflict(f"Task {task_id} of {task} is {found[1].status}; only a FAILED task can be retried.") from None
    except WrongMove as error:
        raise _conflict(f"{error}.") from error
    log.info("operator retried a task", table=task, task_id=task_id, order_id=order.id, caller=operator.name)
    retried = await wiring.queues[task].find(task_id)
    assert retried is not None
    return task_row(*retried)


def _changed(wiring: Wiring, caller: str, name: str, change: Callable[[Policy], None]) -> SystemView:
    if name not in wiring.systems:
        raise not_found(f"system {name}; there are {', '.join(wiring.systems)}")
    system = wiring.systems[name]
    change(system.policy)
    log.info("operator changed a system", system=name, change=change.__name__, caller=caller)
    return _view(wiring, system)


def _view(wiring: Wiring, system: ExternalSystem[Any]) -> SystemView:
    connections = wiring.settings.client[system.name].pool_size
    return system_view(system.snapshot(), connections=connections, replica=REPLICA)


def _from(parameter: str, table: str, tables: list[str]) -> list[str]:
    """The tables from this one on; a 422 problem that blames the parameter when it is none of them."""
    if table not in tables:
        raise invalid([{"loc": ("query", parameter), "msg": f"{table} is none of {', '.join(tables)}"}])
    return tables[tables.index(table) :]


def _conflict(detail: str) -> ProblemError:
    return ProblemError(HTTPStatus.CONFLICT, "wrong-state", detail, title="Not possible now")
