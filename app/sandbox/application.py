"""The sandbox as one ASGI application: a stand-in for each external system under its name."""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from app.sandbox.contracts import CONTRACTS
from app.sandbox.control import Control
from app.sandbox.stand_in import StandIn

KEPT_OPERATIONS = 100_000
MAX_BODY_BYTES = 1 << 20


def create_sandbox(kept_operations: int = KEPT_OPERATIONS) -> Starlette:
    """Fresh stand-ins for all systems; each remembers `kept_operations`. Mode reset needs the server of server.py."""
    controls = {contract.name: Control(StandIn(contract, kept_operations)) for contract in CONTRACTS}

    async def overview(_: Request) -> Response:
        return JSONResponse({name: control.view() for name, control in controls.items()})

    systems = [
        Mount(f"/{name}", routes=[*control.stand_in.routes(), *control.routes()]) for name, control in controls.items()
    ]
    return Starlette(
        routes=[Route("/", overview), *systems],
        exception_handlers={HTTPException: _refusal, ClientDisconnect: _nobody},
        max_body_size=MAX_BODY_BYTES,
    )


async def _refusal(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _nobody(_: Request, __: Exception) -> Response:
    return Response(status_code=400)
