"""Every error answer: application/problem+json (RFC 9457), with what went wrong and what to do."""

import math
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, ProgrammingError
from sqlalchemy.exc import TimeoutError as NoConnection
from starlette.exceptions import HTTPException

from app.orders.ports import SystemUnavailable

log = structlog.get_logger()

MEDIA_TYPE = "application/problem+json"


class FieldError(BaseModel):
    """Where in the request something is wrong, as a JSON pointer (`/items/0/price`), and what."""

    pointer: str
    detail: str


class Problem(BaseModel):
    """An error as RFC 9457 describes it; `type` is a page about this kind of error."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    errors: list[FieldError] | None = None


class ProblemError(Exception):
    """An error answer, raised where it is noticed."""

    def __init__(
        self,
        status: HTTPStatus,
        slug: str,
        detail: str,
        *,
        title: str | None = None,
        errors: list[FieldError] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.headers = headers or {}
        self.problem = Problem(
            type=f"/problems/{slug}", title=title or status.phrase, status=status, detail=detail, errors=errors
        )


def answer(error: ProblemError) -> Response:
    body = error.problem.model_dump_json(exclude_none=True)
    return Response(body, error.problem.status, error.headers, MEDIA_TYPE)


def problem_answers(*statuses: HTTPStatus) -> dict[int | str, dict[str, Any]]:
    """The error answers of an operation, for OpenAPI."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {int(s): {"description": s.phrase, "content": content} for s in statuses}


def not_found(what: str) -> ProblemError:
    return ProblemError(HTTPStatus.NOT_FOUND, "not-found", f"There is no {what}.")


def unavailable(detail: str, after: float = 5) -> ProblemError:
    """A 503 that asks to come back in `after` seconds."""
    headers = {"Retry-After": str(max(math.ceil(after), 1))}
    return ProblemError(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", detail, headers=headers)


def install(app: FastAPI) -> None:
    """Let every error of the application leave as a problem."""
    app.add_exception_handler(ProblemError, _problem)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    for kind in (DBAPIError, NoConnection, OSError):
        app.add_exception_handler(kind, _database)
    app.add_exception_handler(SystemUnavailable, _system)
    app.add_exception_handler(Exception, _bug)


async def _problem(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ProblemError)
    return answer(error)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    details = {
        HTTPStatus.NOT_FOUND: f"There is nothing at {request.url.path}.",
        HTTPStatus.METHOD_NOT_ALLOWED: f"{request.method} is not possible here; see the Allow header.",
    }
    slug = status.phrase.lower().replace(" ", "-").replace("'", "")
    detail = details.get(status, str(error.detail))
    return answer(ProblemError(status, slug, detail, headers=dict(error.headers or {})))


async def _invalid(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return answer(invalid(error.errors()))


def invalid(errors: Any) -> ProblemError:
    """A 422 that names each wrong field, from pydantic's or FastAPI's list of errors."""
    fields = [FieldError(pointer=_pointer(e["loc"]), detail=e["msg"]) for e in errors[:20]]
    detail = "The request does not fit: " + "; ".join(f"{f.pointer or 'body'}: {f.detail}" for f in fields[:3])
    return ProblemError(
        HTTPStatus.UNPROCESSABLE_ENTITY, "invalid-request", detail, title="Invalid request", errors=fields
    )


def _pointer(loc: tuple[int | str, ...]) -> str:
    return "".join(f"/{part}" for part in loc)


async def _database(request: Request, error: Exception) -> Response:
    if isinstance(error, (IntegrityError, DataError, ProgrammingError)):
        return await _bug(request, error)
    log.error("request failed for want of the database", path=request.url.path, error=repr(error))
    return answer(unavailable("The database cannot be reached; nothing was saved by this request as far as we know."))


async def _system(_request: Request, error: Exception) -> Response:
    """For an operation that needs a system's answer at once; those of today leave that to their tasks (CB-6)."""
    assert isinstance(error, SystemUnavailable)
    return answer(unavailable(f"{error.system} cannot be asked now.", error.retry_after or 5))


async def _bug(request: Request, error: Exception) -> Response:
    log.error("request failed in our own code", path=request.url.path, exc_info=error)
    return answer(
        ProblemError(HTTPStatus.INTERNAL_SERVER_ERROR, "internal-error", "Something broke on our side; it was logged.")
    )
