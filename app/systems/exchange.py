import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from opentelemetry.trace import Span, StatusCode

from app.observability import metrics
from app.observability.traces import called, current_exemplar
from app.orders.ports import InvalidAnswer, SystemRefused, SystemUnavailable
from app.resilience import BulkheadFull, CallTimeout, CircuitOpen, Fault, Policy
from app.systems.client import Client
from app.systems.errors import port_errors
from app.systems.request import Request
from app.systems.wire import Answer

A = TypeVar("A", bound=Answer)


class Exchange:
    """The one way from an adapter to its system: through the policy, and seen by metrics and traces (OBS-2)."""

    def __init__(self, client: Client, policy: Policy) -> None:
        self._system = client.system
        self._client = client
        self._policy = policy

    async def ask(self, request: Request, answer: type[A], *, budget: float) -> A:
        """Make the call, again where that is safe, and read what comes back; `budget` is the caller's time in seconds.

        Raises SystemUnavailable, SystemRefused or InvalidAnswer. An answer that cannot be read is the call's failure,
        so it is read inside the policy.
        """
        attempts = 0

        async def attempt() -> A:
            nonlocal attempts
            attempts += 1
            body = await self._client.send(request)
            with port_errors(self._system, request.operation):
                return answer.model_validate_json(body or b"{}", context=request.about)

        with self._observed(request.operation) as span:
            try:
                return await self._policy.call(attempt, idempotent=request.repeatable, budget=budget)
            except (CircuitOpen, BulkheadFull, CallTimeout) as fault:
                raise _unavailable(request.operation, fault) from fault
            finally:
                span.set_attribute("attempts", attempts)

    @contextmanager
    def _observed(self, operation: str) -> Iterator[Span]:
        started, outcome = time.monotonic(), "success"
        attributes = {"external.system": self._system, "circuit_breaker.state": self._policy.breaker_state}
        with called(f"{self._system}.{operation}", attributes) as span:
            try:
                yield span
            except BaseException as error:
                outcome = _outcome(error)
                span.set_status(StatusCode.ERROR, str(error) if isinstance(error, Fault) else type(error).__name__)
                raise
            finally:
                span.set_attribute("outcome", outcome)
                metrics.external_call.labels(self._system, operation, outcome).observe(
                    time.monotonic() - started, current_exemplar()
                )


def _unavailable(operation: str, fault: CircuitOpen | BulkheadFull | CallTimeout) -> SystemUnavailable:
    return SystemUnavailable(
        fault.system,
        f"{operation}: {fault.message}",
        kind="timeout" if isinstance(fault, CallTimeout) else fault.kind,
        call_made=fault.call_made,
        retry_after=fault.retry_after,
    )


def _outcome(error: BaseException) -> str:
    match error:
        case SystemUnavailable(call_made=False):
            return "not_made"
        case SystemUnavailable():
            return "unavailable"
        case SystemRefused():
            return "refused"
        case InvalidAnswer():
            return "invalid_answer"
        case asyncio.CancelledError():
            return "cancelled"
        case _:
            return "bug"
