"""How a request reaches the running service."""

from typing import Annotated

from fastapi import Depends, Request

from app.wiring import Wiring


def wiring_of(request: Request) -> Wiring:
    wiring: Wiring = request.app.state.wiring
    return wiring


async def _wiring(request: Request) -> Wiring:
    """Async, so that FastAPI calls it here and not in a thread."""
    return wiring_of(request)


Wired = Annotated[Wiring, Depends(_wiring)]
