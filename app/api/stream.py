"""An order's events as a stream (server-sent events): what has happened, then what happens, until it is final."""

import random
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Depends, Header, Response
from fastapi.responses import StreamingResponse
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event

from app.api.auth import OrderReader
from app.api.described import answers, problem_answers
from app.api.kinds import Kind
from app.api.orders import OrderId
from app.api.problems import invalid, not_found, unavailable
from app.api.schemas.wire import DIGITS
from app.api.wired import Wired
from app.orders.follow import History, is_last, read_history
from app.outbox.cloudevent import encode
from app.outbox.news import TooManyWatches, Watch
from app.settings import Settings

router = APIRouter(tags=["orders"])

LAST_EVENT_ID = "Last-Event-ID"

LastEventId = Annotated[
    int,
    Header(alias=LAST_EVENT_ID, ge=0, le=2**31 - 1, description="The id of the last event that the client has."),
    DIGITS,
]


class EventStream(StreamingResponse):
    """Not FastAPI's own, which serves generators: the bound, the 404 and the 204 are known before anything streams."""

    media_type = "text/event-stream"


class Followed(NamedTuple):
    history: History
    watch: Watch


async def _follow(
    caller: OrderReader, order_id: OrderId, wiring: Wired, last_event_id: LastEventId = 0
) -> AsyncIterator[Followed]:
    """Look the order up and watch it until the answer has been sent; raises 404, 422 and 503 problems before."""
    history = await read_history(wiring.database.engine, order_id, last_event_id, caller.customers)
    if history is None:
        raise not_found(f"order {order_id}")
    if last_event_id > history.order.version:
        raise invalid([{"loc": ("header", LAST_EVENT_ID), "msg": f"order {order_id} has no event {last_event_id}"}])
    try:
        with wiring.news.watch(order_id, history.events[-1].sequence if history.events else last_event_id) as watch:
            yield Followed(history, watch)
    except TooManyWatches:
        limits = wiring.settings.api
        raise unavailable(f"{limits.max_streams} clients follow orders here, more are not let in.") from None


@router.get(
    "/orders/{order_id}/events",
    response_class=EventStream,
    responses=answers(HTTPStatus.OK, "The events, each with its CloudEvent as data")
    | answers(HTTPStatus.NO_CONTENT, "The client has all events that there will be")
    | problem_answers(Kind.NOT_FOUND, Kind.UNAVAILABLE),
)
async def follow_order(followed: Annotated[Followed, Depends(_follow)], wiring: Wired) -> Response:
    """Follow the order: its events so far, then each as it happens, until the order is final.

    A stream may end before; the client comes again with `Last-Event-ID` and gets what it has not had. Once it has all,
    the answer is 204, which tells a browser's EventSource to stop asking. What the events say stands in docs/events.md.
    """
    if followed.history.known:
        return Response(status_code=HTTPStatus.NO_CONTENT)
    headers = {"X-Accel-Buffering": "no"}  # keeps nginx from collecting it
    return EventStream(_told(followed, wiring.settings), headers=headers)


async def _told(followed: Followed, settings: Settings) -> AsyncIterator[bytes]:
    history, watch = followed
    yield format_sse_event(retry=_come_again(settings.api.retry_after))
    events = history.events
    while True:
        for event in events:
            data = encode(event, settings.events.source).decode()
            yield format_sse_event(data_str=data, event=event.type, id=str(event.sequence))
        if watch.over or (events and is_last(events[-1])):
            return
        events = await watch.events(settings.api.stream_keep_alive)
        if not events and not watch.over:
            yield KEEPALIVE_COMMENT


def _come_again(after: float) -> int:
    """Milliseconds until a client whose stream ended comes again: not all of them at once."""
    return round(1000 * after * random.uniform(1, 2))  # noqa: S311
