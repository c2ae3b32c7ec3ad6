"""Orders over HTTP: take one in, show how far it has come, cancel it."""

import math
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from app.api.auth import REFUSALS, OrderReader, OrderWriter
from app.api.body import documented, read_json
from app.api.idempotency import PARAMETER, fingerprint, idempotency_key, key_problem
from app.api.paging import next_page
from app.api.problems import ProblemError, not_found, problem_answers
from app.api.schemas import (
    CustomerId,
    Int64,
    NewOrder,
    OrderPage,
    OrderView,
    Queued,
    order_row,
    order_view,
    step_view,
)
from app.api.wired import Wired, wiring_of
from app.observability.traces import current_traceparent
from app.orders.create import KeyInFlight, KeyReused, Placement
from app.orders.idempotency import Key
from app.orders.intervene import NoSuchOrder, cancel_order
from app.orders.order import OrderStatus, WrongMove
from app.orders.read import OrderWithSteps, exists, list_orders, read_order
from app.tasks.queue import NEWEST
from app.wiring import Wiring

OrderId = Annotated[Int64, Path(description="The order's id")]


router = APIRouter(
    tags=["orders"],
    responses=problem_answers(*REFUSALS, HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.SERVICE_UNAVAILABLE),
)


@router.post(
    "/orders",
    status_code=HTTPStatus.ACCEPTED,
    responses=problem_answers(
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.CONFLICT,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    ),
    openapi_extra={**documented(NewOrder), "parameters": [PARAMETER]},
)
async def place_order(request: Request, response: Response, caller: OrderWriter) -> Queued:
    """Save the order and queue its journey. The answer comes once both are safe; the journey goes on by itself.

    With the same `Idempotency-Key` and body again, it gives the first answer again and `Idempotent-Replayed: true`.
    """
    wiring, key = wiring_of(request), idempotency_key(request)
    order = await read_json(request, NewOrder)
    if not caller.acts_for(order.customer_id):
        detail = f"The key {caller.name} may not act for the customer {order.customer_id}."
        raise ProblemError(HTTPStatus.FORBIDDEN, "forbidden", detail)
    named = Key(caller.name, key, fingerprint(order)) if key else None
    placement = Placement(order.customer_id, order.to_domain(), current_traceparent(), named)
    try:
        created = await wiring.intake.place(placement)
    except (KeyInFlight, KeyReused) as refusal:
        raise key_problem(refusal) from None
    if created.replayed:
        response.headers["Idempotent-Replayed"] = "true"
    response.headers["Location"] = f"/orders/{created.order_id}"
    response.headers["Retry-After"] = str(math.ceil(wiring.settings.api.retry_after))
    return Queued(order_id=created.order_id, task_id=created.task_id)


class OrderQuery(BaseModel):
    """Which orders, and how many on a page; `cursor` is from the Link of the page before."""

    model_config = ConfigDict(extra="forbid")

    status: list[OrderStatus] | None = None
    customer_id: Annotated[CustomerId | None, Field(alias="customerId")] = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    cursor: Annotated[str | None, Field(pattern=r"^[0-9]{1,19}$")] = None


@router.get("/orders")
async def list_all_orders(
    caller: OrderReader, wiring: Wired, wanted: Annotated[OrderQuery, Query()], request: Request, response: Response
) -> OrderPage:
    """List orders, the newest first; `Link` leads to the next page. Orders that come meanwhile disturb no page."""
    customers = caller.customers
    if wanted.customer_id is not None:
        customers = frozenset({wanted.customer_id} if caller.acts_for(wanted.customer_id) else ())
    found = await list_orders(
        wiring.database.engine,
        before=min(int(wanted.cursor), NEWEST) if wanted.cursor else NEWEST,
        most=wanted.limit + 1,
        statuses=wanted.status,
        customers=customers,
    )
    if len(found) > wanted.limit:
        response.headers["Link"] = next_page(request, str(found[wanted.limit - 1].order.id))
    return OrderPage(orders=[order_row(record) for record in found[: wanted.limit]])


@router.get("/orders/{order_id}", responses=problem_answers(HTTPStatus.NOT_FOUND))
async def show_order(caller: OrderReader, order_id: OrderId, wiring: Wired, response: Response) -> OrderView:
    """Show the order, its steps, and what the systems answered; `Retry-After` says when to look again."""
    tables = [step.table for step in wiring.steps]
    found = await read_order(wiring.database.engine, tables, order_id, caller.customers)
    if found is None:
        raise not_found(f"order {order_id}")
    if not found.record.order.status.final:
        response.headers["Retry-After"] = str(_next_news(found))
    return _view(found, wiring)


@router.post("/orders/{order_id}/cancel", responses=problem_answers(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT))
async def cancel(caller: OrderWriter, order_id: OrderId, wiring: Wired) -> OrderView:
    """Cancel the order; possible until its payment is registered."""
    if caller.customers is not None and not await exists(wiring.database.engine, order_id, caller.customers):
        raise not_found(f"order {order_id}")
    try:
        await cancel_order(wiring.database.engine, wiring.queues, order_id)
    except NoSuchOrder:
        raise not_found(f"order {order_id}") from None
    except WrongMove as error:
        raise ProblemError(HTTPStatus.CONFLICT, "wrong-state", f"{error}.", title="Not possible any more") from error
    found = await read_order(wiring.database.engine, [step.table for step in wiring.steps], order_id)
    assert found is not None
    return _view(found, wiring)


def _view(found: OrderWithSteps, wiring: Wiring) -> OrderView:
    systems = {step.table: step.system for step in wiring.steps}
    return order_view(found.record, [step_view(view, systems[table]) for table, view in found.tasks.items()])


def _next_news(found: OrderWithSteps) -> int:
    """Whole seconds until the open step's next attempt, at least one."""
    return max(1, math.ceil(min((t.due_in for t in found.tasks.values() if t.open), default=1.0)))
