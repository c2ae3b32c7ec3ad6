"""Every error answer: application/problem+json (RFC 9457), with what went wrong and what to do."""

import math
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Annotated, Any

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, ProgrammingError
from sqlalchemy.exc import TimeoutError as NoConnection
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import Scope

from app.api.kinds import Kind
from app.api.links import link
from app.api.schemas.wire import LONGEST_TEXT, PRINTABLE, Address, Text, told
from app.orders.ports import SystemUnavailable

log = structlog.get_logger()

MEDIA_TYPE = "application/problem+json"

REQUEST_ID = "request_id"
"""Under this name the state of a request's scope holds its id."""

MOST_ERRORS = 20


class FieldError(BaseModel):
    """Where in the request something is wrong, as a JSON pointer (`/items/0/price`), and what."""

    pointer: Text
    detail: Text


class Problem(BaseModel):
    """An error as RFC 9457 describes it; `type` is a page about this kind of error, `requestId` leads to the logs."""

    model_config = ConfigDict(extra="allow", alias_generator=to_camel, populate_by_name=True)

    type: Address
    title: Text
    status: Annotated[int, told(minimum=400, maximum=599)]
    detail: Text
    request_id: Annotated[str, told(minLength=1, maxLength=128)]
    errors: Annotated[list[FieldError], told(maxItems=MOST_ERRORS)] | None = None


class ProblemError(Exception):
    """An error answer, raised where it is noticed."""

    def __init__(
        self,
        kind: Kind,
        detail: str,
        *,
        errors: list[FieldError] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind, self.detail, self.errors, self.headers = kind, detail, errors, headers or {}


def answer(error: ProblemError, scope: Scope) -> Response:
    """The problem as an answer to the request of this scope."""
    kind = error.kind
    problem = Problem(
        type=link(scope, f"/problems/{kind.slug}"),
        title=kind.title,
        status=kind.status,
        detail=error.detail[:LONGEST_TEXT],
        request_id=scope["state"][REQUEST_ID],
        errors=error.errors,
    )
    return Response(problem.model_dump_json(exclude_none=True, by_alias=True), kind.status, error.headers, MEDIA_TYPE)


def not_found(what: str) -> ProblemError:
    return ProblemError(Kind.NOT_FOUND, f"There is no {what}.")


def unavailable(detail: str, after: float = 5) -> ProblemError:
    """A 503 that asks to come back in `after` seconds."""
    headers = {"Retry-After": str(max(math.ceil(after), 1))}
    return ProblemError(Kind.UNAVAILABLE, detail, headers=headers)


def install(app: FastAPI) -> None:
    """Let every error that the application knows leave as a problem; the rest is `bug`'s."""
    for kind, handler in _HANDLERS.items():
        app.add_exception_handler(kind, handler)


async def answer_to(request: Request, error: Exception) -> Response:
    """The answer to an error that the application knows; raises it again if it does not."""
    for kind in type(error).__mro__:
        if (handler := _HANDLERS.get(kind)) is not None:
            return await handler(request, error)
    raise error


async def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, ProblemError)
    return answer(error, request.scope)


async def _http(request: Request, error: Exception) -> Response:
    """What the framework raises by itself, 404 and 405: it names only the methods of the first route that fits."""
    assert isinstance(error, HTTPException)
    match error.status_code:
        case HTTPStatus.NOT_FOUND:
            return answer(ProblemError(Kind.NOT_FOUND, _nothing_at(request)), request.scope)
        case HTTPStatus.METHOD_NOT_ALLOWED:
            allow = {"Allow": ", ".join(_methods_at(request, request.scope["path"]))}
            if request.method == "OPTIONS":
                return Response(status_code=HTTPStatus.NO_CONTENT, headers=allow)
            detail = f"{request.method} is not possible here; possible are {allow['Allow']}."
            return answer(ProblemError(Kind.METHOD_NOT_ALLOWED, detail, headers=allow), request.scope)
    return await bug(request, error)


def _nothing_at(request: Request) -> str:
    path = request.scope["path"]
    without = path.rstrip("/")
    if without != path and _methods_at(request, without):
        return f"There is nothing at {path}; without the slash at its end there is: {without}."
    return f"There is nothing at {path}."


def _methods_at(request: Request, path: str) -> list[str]:
    asked = {**request.scope, "path": path}
    found = [
        method
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE")
        if any(route.matches({**asked, "method": method})[0] is Match.FULL for route in request.app.routes)
    ]
    return [*(["HEAD"] if "GET" in found else []), *found, *(["OPTIONS"] if found else [])]


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return answer(invalid(error.errors()), request.scope)


def invalid(errors: Any) -> ProblemError:
    """A 422 that names each wrong field, from pydantic's or FastAPI's list of errors."""
    fields = [FieldError(pointer=_pointer(e["loc"]), detail=_wrong(e)) for e in errors[:MOST_ERRORS]]
    detail = "The request does not fit: " + "; ".join(f"{f.pointer or 'body'}: {f.detail}" for f in fields[:3])
    return ProblemError(Kind.INVALID_REQUEST, detail, errors=fields)


def _wrong(error: Any) -> str:
    if error.get("ctx", {}).get("pattern") == PRINTABLE:
        return "must have no control characters, nor such as turn the direction of writing (U+202A-202E, U+2066-2069)"
    return str(error["msg"])


def _pointer(loc: tuple[int | str, ...]) -> str:
    """The JSON pointer (RFC 6901); it may lead through names that the client has chosen, at any length."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in loc)[:LONGEST_TEXT]


async def _database(request: Request, error: Exception) -> Response:
    if isinstance(error, (IntegrityError, DataError, ProgrammingError)):
        return await bug(request, error)
    log.error("request failed for want of the database", error=repr(error))
    detail = "The database cannot be reached; nothing was saved by this request as far as we know."
    return answer(unavailable(detail), request.scope)


async def _system(request: Request, error: Exception) -> Response:
    """For an operation that needs a system's answer at once; those of today leave that to their tasks (CB-6)."""
    assert isinstance(error, SystemUnavailable)
    return answer(unavailable(f"{error.system} cannot be asked now.", error.retry_after or 5), request.scope)


async def bug(request: Request, error: Exception) -> Response:
    """The answer to an error that nobody foresaw; all that is known about it goes to the log."""
    log.error("request failed in our own code", exc_info=error)
    return answer(ProblemError(Kind.INTERNAL_ERROR, "Something broke on our side; it was logged."), request.scope)


_HANDLERS: dict[type[Exception], Callable[[Request, Exception], Awaitable[Response]]] = {
    ProblemError: _problem,
    HTTPException: _http,
    RequestValidationError: _invalid,
    DBAPIError: _database,
    NoConnection: _database,
    OSError: _database,
    SystemUnavailable: _system,
}
