"""Reading a request's JSON body: once, in bounds, straight into the type that the operation wants."""

import asyncio
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from app.api.kinds import Kind
from app.api.problems import ProblemError, invalid
from app.api.wired import wiring_of

PROBLEMS = (
    Kind.REQUEST_TIMEOUT,
    Kind.TOO_LARGE,
    Kind.UNSUPPORTED_MEDIA_TYPE,
    Kind.INVALID_REQUEST,
)
"""What may be wrong with a body; nobody is there to be told that it was cut short."""

ARRIVED = "arrived"
"""Under this name the state of a request's scope says that its whole body is here."""

Body = TypeVar("Body", bound=BaseModel)


async def read_json(request: Request, model: type[Body]) -> Body:
    """Read the body as a `model`; raises one of PROBLEMS, or a 400."""
    if (media_type := media_type_of(request)) != "application/json":
        raise wrong_type(media_type)
    limits = wiring_of(request).settings.api
    try:
        if request.scope["state"].get(ARRIVED):  # there is nothing to wait for, and a timer costs much
            content = await _content(request, limits.max_body_bytes)
        else:
            async with asyncio.timeout(limits.body_timeout):
                content = await _content(request, limits.max_body_bytes)
    except TimeoutError:
        detail = f"The body did not arrive within {limits.body_timeout:g} s."
        raise ProblemError(Kind.REQUEST_TIMEOUT, detail) from None
    except ClientDisconnect:
        raise ProblemError(Kind.CUT_SHORT, "The connection ended before the body.") from None
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        raise invalid(error.errors(include_url=False, include_input=False)) from None


def documented(model: type[BaseModel], *, required: bool = True) -> dict[str, Any]:
    """What OpenAPI says of a body that `read_json` reads."""
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}}


def media_type_of(request: Request) -> str:
    """What the request says that its body is, in lower case and without parameters; "" when it says nothing."""
    return request.headers.get("content-type", "").split(";")[0].strip().lower()


async def _content(request: Request, limit: int) -> bytes:
    content = bytearray()
    if int(request.headers.get("content-length", 0)) > limit:
        raise _too_large(limit)
    more = True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        content += message.get("body", b"")
        if len(content) > limit:
            raise _too_large(limit)
        more = message.get("more_body", False)
    return bytes(content)


def _too_large(limit: int) -> ProblemError:
    detail = f"The body is larger than {limit} bytes, which is the most this service takes."
    headers = {"Connection": "close"}  # the rest of the body is not read
    return ProblemError(Kind.TOO_LARGE, detail, headers=headers)


def wrong_type(media_type: str) -> ProblemError:
    sent = f"sent was {media_type}" if media_type else "the request names none"
    detail = f"The body must be application/json; {sent}. Set the Content-Type header."
    return ProblemError(Kind.UNSUPPORTED_MEDIA_TYPE, detail)
