"""The ways a call can go wrong."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import random

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from app.sandbox.knobs import Knobs

Endpoint = Callable[[Request], Awaitable[Response]]


async def call(endpoint: Endpoint, request: Request, knobs: Knobs) -> Response:
    """Let the call through to the endpoint as the knobs say. A slow one takes effect before its answer is held back."""
    fault = FAULTS.get(knobs.mode)
    if fault is None and random() < knobs.error_rate:  # noqa: S311 - no secret depends on it
        fault = _error
    if fault is not None:
        return await fault(request)
    response = await endpoint(request)
    if knobs.mode == "slow":
        await _wait(request, knobs.latency_ms / 1_000)
    return response


async def _error(_: Request) -> Response:
    return JSONResponse({"error": "out of service"}, 503)


async def _garbage(_: Request) -> Response:
    return HTMLResponse(b"<html><title>Welcome</title>\x00\xff\xfe")


async def _hang(request: Request) -> Response:
    await _wait(request)
    return Response()


async def _reset(request: Request) -> Response:
    request.state.reset_connection()
    return await _hang(request)


FAULTS: dict[str, Endpoint] = {"error": _error, "garbage": _garbage, "hang": _hang, "reset": _reset}


async def _wait(request: Request, seconds: float | None = None) -> None:
    """Wait `seconds`, or for ever, but no longer than the caller does."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while (await request.receive())["type"] != "http.disconnect":
                pass
