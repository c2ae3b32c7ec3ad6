"""For operators: the external systems as this replica sees them, the tasks of all orders, and what operators did."""

import asyncio
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Annotated, Any

import structlog
from fastapi import APIRouter, Depends, Path, Query, Request, Response, Security
from pydantic import BaseModel, ConfigDict, Field

from app import audit
from app.api import body
from app.api.auth import Operator, bearer_key
from app.api.body import documented, read_json
from app.api.described import answers, problem_answers
from app.api.kinds import Kind
from app.api.links import next_page
from app.api.problems import ProblemError, not_found
from app.api.schemas import Int64, SystemsView, SystemView, TaskPage, TaskRow, not_called, system_view, task_row
from app.api.schemas.actions import ActionPage, Reason, action_row
from app.api.schemas.wire import DIGITS
from app.api.wired import Wired
from app.audit import REPLICA, Action, By, record_done
from app.orders.intervene import NotFailed, cancel_step, retry_step, step_of
from app.orders.journey import STEPS, Step
from app.orders.order import WrongMove
from app.resilience import Policy
from app.systems.system import ExternalSystem
from app.tasks.queue import NEWEST
from app.tasks.task import TaskStatus
from app.wiring import Wiring

log = structlog.get_logger()

SystemName = Annotated[str, Path(description="The system's name", max_length=63, examples=["sber"])]
TaskTable = Annotated[str, Path(description="The task table's name", max_length=63, examples=["payment_task"])]
TaskId = Annotated[Int64, Path(description="The task's id")]

CONTROL = answers(HTTPStatus.OK, "The system as it is now") | problem_answers(
    *body.PROBLEMS, Kind.NOT_FOUND, Kind.NOT_CALLED_HERE
)
INTERVENTION = answers(HTTPStatus.OK, "The task as it is now") | problem_answers(
    *body.PROBLEMS, Kind.NOT_FOUND, Kind.WRONG_STATE, Kind.UNAVAILABLE
)

TABLES = tuple(step.table for step in STEPS)

router = APIRouter(
    prefix="/ops",
    tags=["ops"],
    dependencies=[Security(bearer_key, scopes=["ops"])],
)


REASONED = documented(Reason, required=False)
"""What OpenAPI says of the body that an action may have."""


async def _hand(operator: Operator, request: Request) -> By:
    """Who acts, and the reason if the body gives one."""
    has_body = "transfer-encoding" in request.headers or request.headers.get("content-length", "0") != "0"
    return By(operator.name, (await read_json(request, Reason)).reason if has_body else None)


Hand = Annotated[By, Depends(_hand)]


@router.get("/systems", responses=answers(HTTPStatus.OK, "All systems"))
async def show_systems(wiring: Wired) -> SystemsView:
    """Show each external system as this replica sees it. Another replica has breakers and pools of its own.

    One that works on no tasks of a system does not call it: `note` says so, and each worker answers this for itself.
    """
    await asyncio.gather(*(system.health.check() for system in wiring.systems.values()))
    return SystemsView(systems={name: _view(wiring, system) for name, system in wiring.systems.items()})


@router.post("/systems/{name}/isolate", responses=CONTROL, openapi_extra=REASONED)
async def isolate_system(hand: Hand, name: SystemName, wiring: Wired) -> SystemView:
    """Refuse every call from this replica to the system until it is released or reset, or the replica ends.

    Tasks wait and lose no attempt. Other replicas go on calling: isolate the system on each of them.
    """
    return await _change(wiring, hand, name, "isolate", Policy.isolate)


@router.post("/systems/{name}/release", responses=CONTROL, openapi_extra=REASONED)
async def release_system(hand: Hand, name: SystemName, wiring: Wired) -> SystemView:
    """End this replica's isolation of the system, if there is one: its breaker is closed, its window empty."""
    return await _change(wiring, hand, name, "release", Policy.release)


@router.post("/systems/{name}/reset", responses=CONTROL, openapi_extra=REASONED)
async def reset_system(hand: Hand, name: SystemName, wiring: Wired) -> SystemView:
    """Close this replica's breaker of the system, whatever its state, with an empty window; this ends an isolation."""
    return await _change(wiring, hand, name, "reset", Policy.reset)


class TaskQuery(BaseModel):
    """Which tasks, and how many on a page; `cursor` is from the Link of the page before."""

    model_config = ConfigDict(extra="forbid")

    task: Annotated[str | None, Field(max_length=63, pattern=rf"^({'|'.join(TABLES)})$")] = None
    status: Annotated[list[TaskStatus], Field(max_length=len(TaskStatus))] = list(TaskStatus)
    limit: Annotated[int, Field(ge=1, le=1000), DIGITS] = 100
    cursor: Annotated[str | None, Field(max_length=83, pattern=rf"^({'|'.join(TABLES)})\.[0-9]{{1,19}}$")] = None

    def rest(self) -> Iterator[tuple[str, int]]:
        """The tables that are still to be listed, each with the task id below which it goes on."""
        first, _, last = (self.cursor or f"{TABLES[0]}.{NEWEST}").partition(".")
        for table in TABLES[TABLES.index(first) :]:
            if self.task in {None, table}:
                yield table, min(int(last), NEWEST) if table == first else NEWEST


@router.get("/tasks", responses=answers(HTTPStatus.OK, "A page of tasks", "Link") | problem_answers(Kind.UNAVAILABLE))
async def list_tasks(
    wiring: Wired, wanted: Annotated[TaskQuery, Query()], request: Request, response: Response
) -> TaskPage:
    """List tasks, table by table in the order of the journey, the newest of each table first."""
    rows: list[TaskRow] = []
    for table, before in wanted.rest():
        more = await wiring.queues[table].listing(wanted.status, wanted.limit + 1 - len(rows), before)
        rows += [task_row(order_id, task) for order_id, task in more]
        if len(rows) > wanted.limit:
            last = rows[wanted.limit - 1]
            response.headers["Link"] = next_page(request, f"{last.task}.{last.task_id}")
            break
    return TaskPage(tasks=rows[: wanted.limit])


@router.post("/tasks/{task}/{task_id}/retry", responses=INTERVENTION, openapi_extra=REASONED)
async def retry_task(hand: Hand, task: TaskTable, task_id: TaskId, wiring: Wired) -> TaskRow:
    """Give a FAILED task its attempts back, due now, and its order the status it failed from."""
    step, found = _step(wiring, task), await _find(wiring, task, task_id)
    try:
        await retry_step(wiring.database.engine, wiring.queues, step, task_id, hand)
    except NotFailed:
        raise _conflict(f"Task {task_id} of {task} is {found.status}; only a FAILED task can be retried.") from None
    except WrongMove as error:
        raise _conflict(f"{error}.") from error
    log.info("operator retried a task", table=task, task_id=task_id, order_id=found.order_id, **hand._asdict())
    return await _find(wiring, task, task_id)


@router.post("/tasks/{task}/{task_id}/cancel", responses=INTERVENTION, openapi_extra=REASONED)
async def cancel_task(hand: Hand, task: TaskTable, task_id: TaskId, wiring: Wired) -> TaskRow:
    """Give the task up and cancel its order; possible while it is certain that no payment is registered."""
    step, found = _step(wiring, task), await _find(wiring, task, task_id)
    try:
        await cancel_step(wiring.database.engine, wiring.queues, step, task_id, found.order_id, by=hand)
    except WrongMove as error:
        raise _conflict(f"{error}.") from error
    log.info("operator cancelled a task", table=task, task_id=task_id, order_id=found.order_id, **hand._asdict())
    return await _find(wiring, task, task_id)


class ActionQuery(BaseModel):
    """How many actions on a page; `cursor` is from the Link of the page before."""

    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, le=1000), DIGITS] = 100
    cursor: Annotated[str | None, Field(max_length=19, pattern=r"^[0-9]{1,19}$")] = None


@router.get(
    "/actions", responses=answers(HTTPStatus.OK, "A page of actions", "Link") | problem_answers(Kind.UNAVAILABLE)
)
async def list_actions(
    wiring: Wired, wanted: Annotated[ActionQuery, Query()], request: Request, response: Response
) -> ActionPage:
    """List what operators did, the newest first. Nothing is ever deleted."""
    before = min(int(wanted.cursor), NEWEST) if wanted.cursor else NEWEST
    async with wiring.database.engine.connect() as conn:
        found = await audit.page(conn, most=wanted.limit + 1, before=before)
    if len(found) > wanted.limit:
        response.headers["Link"] = next_page(request, str(found[wanted.limit - 1].id))
    return ActionPage(actions=[action_row(action) for action in found[: wanted.limit]])


def _step(wiring: Wiring, task: str) -> Step:
    step = step_of(wiring.steps, task)
    if step is None:
        raise not_found(f"task table {task}; there are {', '.join(wiring.queues)}")
    return step


async def _find(wiring: Wiring, task: str, task_id: int) -> TaskRow:
    found = await wiring.queues[task].find(task_id)
    if found is None:
        raise not_found(f"task {task_id} in {task}")
    return task_row(*found)


async def _change(wiring: Wiring, hand: By, name: str, action: Action, change: Callable[[Policy], None]) -> SystemView:
    """Change the system first: that must be possible even when the database, which records it, is what is broken."""
    if name not in wiring.systems:
        raise not_found(f"system {name}; there are {', '.join(wiring.systems)}")
    if not wiring.calls(name):
        raise ProblemError(Kind.NOT_CALLED_HERE, not_called(name))
    system = wiring.systems[name]
    change(system.policy)
    changed = _view(wiring, system)
    log.info("operator changed a system", system=name, change=action, **hand._asdict())
    await record_done(wiring.database.engine, hand, action, name)
    return changed


def _view(wiring: Wiring, system: ExternalSystem[Any]) -> SystemView:
    connections, called = wiring.settings.client[system.name].pool_size, wiring.calls(system.name)
    return system_view(system.snapshot(), connections=connections, replica=REPLICA, called=called)


def _conflict(detail: str) -> ProblemError:
    return ProblemError(Kind.WRONG_STATE, detail)
