"""Reading a request's JSON body: once, in bounds, straight into the type that the operation wants."""

import asyncio
from http import HTTPStatus
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from app.api.problems import ProblemError, invalid
from app.api.wired import wiring_of

Body = TypeVar("Body", bound=BaseModel)


async def read_json(request: Request, model: type[Body]) -> Body:
    """Read the body as a `model`; raises 400, 408, 413, 415 and 422 problems."""
    media_type = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if media_type != "application/json":
        raise _wrong_type(media_type)
    limits = wiring_of(request).settings.api
    try:
        async with asyncio.timeout(limits.body_timeout):
            content = await _content(request, limits.max_body_bytes)
    except TimeoutError:
        detail = f"The body did not arrive within {limits.body_timeout:g} s."
        raise ProblemError(HTTPStatus.REQUEST_TIMEOUT, "request-timeout", detail) from None
    except ClientDisconnect:
        raise ProblemError(HTTPStatus.BAD_REQUEST, "cut-short", "The connection ended before the body.") from None
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        raise invalid(error.errors(include_url=False, include_input=False)) from None


def documented(model: type[BaseModel]) -> dict[str, Any]:
    """What OpenAPI says of a body that `read_json` reads."""
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


async def _content(request: Request, limit: int) -> bytes:
    content = bytearray()
    if int(request.headers.get("content-length", 0)) > limit:
        raise _too_large(limit)
    async for chunk in request.stream():
        content += chunk
        if len(content) > limit:
            raise _too_large(limit)
    return bytes(content)


def _too_large(limit: int) -> ProblemError:
    detail = f"The body is larger than {limit} bytes, which is the most this service takes."
    headers = {"Connection": "close"}  # the rest of the body is not read
    return ProblemError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too-large", detail, headers=headers)


def _wrong_type(media_type: str) -> ProblemError:
    sent = f"sent was {media_type}" if media_type else "the request names none"
    detail = f"The body must be application/json; {sent}. Set the Content-Type header."
    return ProblemError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", detail)
