"""How a request reaches the running service."""

from typing import Annotated

from fastapi import Depends, Request

from app.wiring import Wiring


def _wiring(request: Request) -> Wiring:
    wiring = request.app.state.wiring
    assert isinstance(wiring, Wiring)
    return wiring


Wired = Annotated[Wiring, Depends(_wiring)]
