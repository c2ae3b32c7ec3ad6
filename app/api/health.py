"""Health and metrics."""

import asyncio
from http import HTTPStatus
from typing import Annotated, Literal

from fastapi import APIRouter, Request, Response
from prometheus_client import REGISTRY
from prometheus_client.exposition import choose_encoder

from app.api.described import answers
from app.api.schemas.wire import Seconds, Text, View, told
from app.api.wired import Wired
from app.resilience.events import BreakerState
from app.wiring import Wiring

router = APIRouter(tags=["health"])


class Alive(View):
    status: Literal["alive"] = "alive"


class SystemHealth(View):
    """What the last light probe of an external system found; `age` in seconds."""

    up: bool
    reason: Text | None
    age: Seconds
    breaker: BreakerState
    required: bool


class Readiness(View):
    """`problems` names what keeps the service from being ready; systems that are not required are only reported."""

    ready: bool
    problems: Annotated[list[Text], told(maxItems=100)]
    systems: Annotated[dict[str, SystemHealth], told(maxProperties=100)]


@router.get("/health/live", responses=answers(HTTPStatus.OK, "The process turns"))
async def live() -> Alive:
    """Tell that the process turns; depends on nothing outside of it."""
    return Alive()


@router.get(
    "/health/ready",
    responses={
        **answers(HTTPStatus.OK, "Ready for traffic"),
        HTTPStatus.SERVICE_UNAVAILABLE: {"model": Readiness, "description": "Not ready; `problems` says why"},
    },
)
async def ready(wiring: Wired, response: Response) -> Readiness:
    """Tell whether this replica should get traffic, and how the external systems are."""
    systems, problems = await asyncio.gather(_systems(wiring), _problems(wiring))
    down = [f"required system {name} is down: {s.reason}" for name, s in systems.items() if s.required and not s.up]
    readiness = Readiness(ready=not (problems or down), problems=problems + down, systems=systems)
    if not readiness.ready:
        response.status_code = HTTPStatus.SERVICE_UNAVAILABLE
    return readiness


async def _systems(wiring: Wiring) -> dict[str, SystemHealth]:
    required = wiring.settings.health.required
    checks = await asyncio.gather(*(system.health.check() for system in wiring.systems.values()))
    return {
        name: SystemHealth(
            up=check.up,
            reason=check.reason,
            age=round(check.age, 1),
            breaker=system.policy.breaker_state,
            required=name in required,
        )
        for (name, system), check in zip(wiring.systems.items(), checks, strict=True)
    }


async def _problems(wiring: Wiring) -> list[str]:
    if wiring.stopping:
        return ["the service is stopping"]
    if (unreachable := await wiring.database.ping()) is not None:
        return [f"the database cannot be reached: {unreachable}"]
    problems = [f"background loop {name} is stalled" for name in wiring.stalled]
    if (behind := await wiring.database.schema_behind()) is not None:
        problems.append(behind)
    return problems


@router.get("/metrics", include_in_schema=False)
async def metrics(request: Request) -> Response:
    """All metrics, in the format that the scraper asks for."""
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(REGISTRY), media_type=content_type)
