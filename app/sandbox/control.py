"""The knobs and counters of a stand-in, over HTTP; no mode touches these calls."""

from typing import Any

from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app.sandbox.knobs import Knobs
from app.sandbox.stand_in import StandIn, json_object


class Control:
    """`_control`: GET shows, PUT turns the named knobs, DELETE zeroes the counters.

    `_control/orders`: GET tells the number of operations kept for each order, DELETE forgets them all.
    """

    def __init__(self, stand_in: StandIn) -> None:
        self.stand_in = stand_in

    def routes(self) -> list[Route]:
        return [
            Route("/_control", self._show, methods=["GET"]),
            Route("/_control", self._turn, methods=["PUT"]),
            Route("/_control", self._zero, methods=["DELETE"]),
            Route("/_control/orders", self._orders, methods=["GET"]),
            Route("/_control/orders", self._forget, methods=["DELETE"]),
        ]

    def view(self) -> dict[str, Any]:
        return {
            **self.stand_in.knobs.model_dump(),
            "outcomes": list(self.stand_in.contract.endings),
            "counters": self.stand_in.counters(),
        }

    async def _show(self, _: Request) -> Response:
        return JSONResponse(self.view())

    async def _turn(self, request: Request) -> Response:
        changed = self.stand_in.knobs.model_dump() | await json_object(request)
        try:
            self.stand_in.knobs = Knobs.model_validate(changed, context=self.stand_in.contract.endings)
        except ValidationError as error:
            raise HTTPException(422, _message(error)) from error
        return JSONResponse(self.view())

    async def _zero(self, _: Request) -> Response:
        self.stand_in.zero_counters()
        return Response(status_code=204)

    async def _orders(self, _: Request) -> Response:
        return JSONResponse(self.stand_in.ledger.operations_per_order())

    async def _forget(self, _: Request) -> Response:
        self.stand_in.ledger.forget_all()
        return Response(status_code=204)


def _message(error: ValidationError) -> str:
    return "; ".join(f"{wrong['loc'][0]}: {wrong['msg']}" for wrong in error.errors())
