"""One system at work: its contract, its knobs, its memory and its counters."""

from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app.sandbox.contracts import Contract
from app.sandbox.faults import Endpoint, call
from app.sandbox.knobs import Knobs
from app.sandbox.ledger import Ledger, Operation


class StandIn:
    """Plays one system by its contract; `limit` is the number of operations it remembers."""

    def __init__(self, contract: Contract, limit: int) -> None:
        self.contract = contract
        self.knobs = Knobs()
        self.ledger = Ledger(contract.name, limit)
        self._endpoints: dict[str, Endpoint] = {
            contract.write: self._write,
            contract.read: self._read,
            "GET /health": self._health,
        }
        self.zero_counters()

    def zero_counters(self) -> None:
        self._calls = dict.fromkeys(self._endpoints, 0)
        self.ledger.zero_counters()

    def counters(self) -> dict[str, Any]:
        return {
            "calls": self._calls,
            "operations": self.ledger.operations,
            "repeated_keys": self.ledger.repeated_keys,
            "orders_seen_twice": self.ledger.orders_seen_twice,
        }

    def routes(self) -> list[Route]:
        return [self._route(name, endpoint) for name, endpoint in self._endpoints.items()]

    def _route(self, name: str, endpoint: Endpoint) -> Route:
        async def counted(request: Request) -> Response:
            self._calls[name] += 1
            return await call(endpoint, request, self.knobs)

        method, path = name.split()
        return Route(path.replace("{orderId}", "{orderId:int}"), counted, methods=[method])

    async def _health(self, _: Request) -> Response:
        return JSONResponse({"status": "UP"})

    async def _write(self, request: Request) -> Response:
        key = request.headers.get("idempotency-key")
        if not key:
            raise HTTPException(400, "a write needs an Idempotency-Key")
        fields = await _fields(request, self.contract.fields)
        order_id = request.path_params.get("orderId", fields["orderId"])
        known = self.ledger.of_order(order_id) is not None
        operation = self.ledger.record(key, order_id)
        if operation.order_id != order_id:
            raise HTTPException(422, "this Idempotency-Key belongs to another order")
        status = self.contract.accepts[known]
        if not self.contract.endings:
            operation.entry = await request.body()
            return Response(status_code=status)
        return JSONResponse(self._tell(operation, self.contract.accepted(operation.id)), status)

    async def _read(self, request: Request) -> Response:
        where = request.path_params
        operation = self.ledger.of_order(where["orderId"]) if "orderId" in where else self.ledger.find(where["id"])
        if operation is None:
            raise HTTPException(404, f"{self.contract.name} knows nothing of {request.url.path}")
        if not self.contract.endings:
            return Response(operation.entry, media_type="application/json")
        return JSONResponse(self._tell(operation, self._status(operation)))

    def _tell(self, operation: Operation, told: dict[str, Any]) -> dict[str, Any]:
        return {self.contract.id_field: operation.id, **told}

    def _status(self, operation: Operation) -> dict[str, Any]:
        if operation.polls >= self.knobs.polls_before_final and operation.ending is None:
            operation.ending = self.knobs.outcome or next(iter(self.contract.endings))
        operation.polls += 1
        if operation.ending is None:
            return {"status": self.contract.pending}
        return {"status": operation.ending, **self.contract.endings[operation.ending](operation.id)}


async def json_object(request: Request) -> dict[str, Any]:
    """Read the body; raises the 400 or 422 that answers an unreadable one."""
    try:
        body = await request.json()
    except (ValueError, RecursionError):
        raise HTTPException(400, "the body is not JSON") from None
    if not isinstance(body, dict):
        raise HTTPException(422, "the body is not an object")
    return body


async def _fields(request: Request, required: tuple[str, ...]) -> dict[str, Any]:
    fields = await json_object(request)
    missing = [name for name in required if name not in fields]
    if missing:
        raise HTTPException(422, f"missing: {', '.join(missing)}")
    if type(fields["orderId"]) is not int:
        raise HTTPException(422, "orderId is not an integer")
    return fields
