"""Orders over HTTP: take one in, show how far it has come, cancel it."""

import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response, Security
from pydantic import BaseModel, ConfigDict, Field

from app.api import body, etag, idempotency, prefer
from app.api.auth import Caller, OrderReader, OrderWriter, bearer_key, caller_of
from app.api.body import documented, read_json
from app.api.described import answers, problem_answers
from app.api.idempotency import fingerprint, idempotency_key, key_problem
from app.api.kinds import Kind
from app.api.links import link, next_page
from app.api.problems import ProblemError, not_found
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
from app.api.schemas.wire import DIGITS
from app.api.straight import Straight
from app.api.wired import Wired, wiring_of
from app.observability.traces import current_traceparent
from app.orders.create import KeyInFlight, KeyReused, Placement
from app.orders.follow import wait_for_move
from app.orders.idempotency import Key
from app.orders.intervene import NoSuchOrder, cancel_order
from app.orders.order import Order, OrderStatus, WrongMove
from app.orders.read import OrderWithSteps, exists, list_orders, read_order
from app.outbox.news import TooManyWatches
from app.settings import TaskSettings
from app.tasks.queue import NEWEST

OrderId = Annotated[Int64, Path(description="The order's id")]


PLACING = ["orders:write"]
"""The scopes that placing an order takes."""

router = APIRouter(
    tags=["orders"],
    responses=problem_answers(Kind.UNAVAILABLE),
)


async def place_order(request: Request) -> Response:
    """Save the order and queue its journey. The answer comes once both are safe; the journey goes on by itself.

    With the same `Idempotency-Key` and body again, it gives the first answer again and `Idempotent-Replayed: true`.
    """
    wiring, caller, key = wiring_of(request), caller_of(request, PLACING), idempotency_key(request)
    order = await read_json(request, NewOrder)
    if not caller.acts_for(order.customer_id):
        detail = f"The key {caller.name} may not act for the customer {order.customer_id}."
        raise ProblemError(Kind.FORBIDDEN, detail)
    named = Key(caller.name, key, fingerprint(order)) if key else None
    placement = Placement(order.customer_id, order.to_domain(), current_traceparent(), named)
    try:
        created = await wiring.intake.place(placement)
    except (KeyInFlight, KeyReused) as refusal:
        raise key_problem(refusal) from None
    headers = {
        "Location": link(request.scope, f"/orders/{created.order_id}"),
        "Retry-After": str(math.ceil(wiring.settings.api.retry_after)),
        **({"Idempotent-Replayed": "true"} if created.replayed else {}),
    }
    queued = Queued(order_id=created.order_id, task_id=created.task_id)
    return Response(queued.model_dump_json(by_alias=True), HTTPStatus.ACCEPTED, headers, "application/json")


router.add_api_route(
    "/orders",
    place_order,
    methods=["POST"],
    route_class_override=Straight,
    status_code=HTTPStatus.ACCEPTED,
    response_model=Queued,
    dependencies=[Security(bearer_key, scopes=PLACING)],
    responses=answers(
        HTTPStatus.ACCEPTED,
        "The order is saved",
        *("Location", "Retry-After", "Idempotent-Replayed"),
        leads_to=("show_order", "follow_order", "cancel"),
    )
    | problem_answers(*body.PROBLEMS, *idempotency.PROBLEMS),
    openapi_extra={**documented(NewOrder), "parameters": [idempotency.PARAMETER]},
)


class OrderQuery(BaseModel):
    """Which orders, and how many on a page; `cursor` is from the Link of the page before."""

    model_config = ConfigDict(extra="forbid")

    status: Annotated[list[OrderStatus] | None, Field(max_length=len(OrderStatus))] = None
    customer_id: Annotated[CustomerId | None, Field(alias="customerId")] = None
    limit: Annotated[int, Field(ge=1, le=1000), DIGITS] = 100
    cursor: Annotated[str | None, Field(max_length=19, pattern=r"^[0-9]{1,19}$")] = None


@router.get("/orders", responses=answers(HTTPStatus.OK, "A page of orders", "Link"))
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
    root = link(request.scope, "")
    return OrderPage(orders=[order_row(record, root) for record in found[: wanted.limit]])


@router.get(
    "/orders/{order_id}",
    response_model=OrderView,
    responses=answers(HTTPStatus.OK, "The order", "ETag", "Retry-After", "Preference-Applied")
    | answers(HTTPStatus.NOT_MODIFIED, "As the client knows it", "ETag", "Retry-After", "Preference-Applied")
    | problem_answers(Kind.NOT_FOUND),
    openapi_extra={"parameters": [etag.PARAMETER, prefer.PARAMETER]},
)
async def show_order(caller: OrderReader, order_id: OrderId, wiring: Wired, request: Request) -> Response:
    """Show the order, its steps, and what the systems answered; `Retry-After` says when to look again.

    With `Prefer: wait=10` the answer comes when the order is final or, with `If-None-Match`, when it has moved; after
    10 s at the latest, as it then is.
    """
    order, answer = await _show(caller, order_id, request)
    wait = prefer.wait_wanted(request, wiring.settings.api.max_wait)
    if wait is None:
        return answer
    known = answer.status_code == HTTPStatus.NOT_MODIFIED
    if not order.status.final and (known or etag.NAME not in request.headers):
        try:
            await prefer.unless_gone(request, wait_for_move(wiring.news, order, wait, to_the_end=not known))
        except TooManyWatches:
            return answer
        _, answer = await _show(caller, order_id, request)
    answer.headers["Preference-Applied"] = f"wait={wait}"
    return answer


@router.post(
    "/orders/{order_id}/cancel",
    responses=answers(HTTPStatus.OK, "The cancelled order") | problem_answers(Kind.NOT_FOUND, Kind.WRONG_STATE),
)
async def cancel(caller: OrderWriter, order_id: OrderId, wiring: Wired, request: Request) -> OrderView:
    """Cancel the order; possible until its payment is registered."""
    if caller.customers is not None and not await exists(wiring.database.engine, order_id, caller.customers):
        raise not_found(f"order {order_id}")
    try:
        await cancel_order(wiring.database.engine, wiring.queues, order_id)
    except NoSuchOrder:
        raise not_found(f"order {order_id}") from None
    except WrongMove as error:
        raise ProblemError(Kind.WRONG_STATE, f"{error}.") from error
    found = await read_order(wiring.database.engine, [step.table for step in wiring.steps], order_id)
    assert found is not None
    return _view(found, request)


async def _show(caller: Caller, order_id: int, request: Request) -> tuple[Order, Response]:
    """The order as it stands now, and the answer that shows it; raises a 404 problem."""
    wiring = wiring_of(request)
    tables = [step.table for step in wiring.steps]
    found = await read_order(wiring.database.engine, tables, order_id, caller.customers)
    if found is None:
        raise not_found(f"order {order_id}")
    answer = etag.conditional(request, _view(found, request).model_dump_json(by_alias=True).encode())
    if not found.record.order.status.final:
        answer.headers["Retry-After"] = str(_next_news(found, wiring.settings.tasks))
    return found.record.order, answer


def _view(found: OrderWithSteps, request: Request) -> OrderView:
    systems = {step.table: step.system for step in wiring_of(request).steps}
    steps = [step_view(view, systems[table]) for table, view in found.tasks.items()]
    return order_view(found.record, steps, link(request.scope, ""))


def _next_news(found: OrderWithSteps, rules: Mapping[str, TaskSettings]) -> int:
    """Whole seconds until the open step's next attempt, at least one; where one is under way, that is all we know."""
    waits = [t.due_in for t in found.tasks.values() if t.open and not t.under_way(rules[t.name].lease)]
    return max(1, math.ceil(min(waits, default=1.0)))
