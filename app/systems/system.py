import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from app.resilience import Policy, PolicySnapshot
from app.resilience.events import Report, ignore
from app.settings import ClientSettings
from app.systems.client import Client
from app.systems.exchange import Exchange
from app.systems.health import Condition, Health

Adapter = TypeVar("Adapter")


@dataclass(frozen=True, slots=True)
class SystemSnapshot:
    """How a system stands now; `condition` is None until it was probed for the first time."""

    policy: PolicySnapshot
    connections_in_use: int
    condition: Condition | None


@dataclass(frozen=True, slots=True)
class ExternalSystem(Generic[Adapter]):
    """One external system under its one name: its own client, policy, adapter and health (ISO-1, ISO-3)."""

    name: str
    client: Client
    policy: Policy
    adapter: Adapter
    health: Health

    def snapshot(self) -> SystemSnapshot:
        return SystemSnapshot(self.policy.snapshot(), self.client.connections_in_use, self.health.last)

    async def aclose(self) -> None:
        """Close the connections; calls that still use them fail."""
        await self.client.aclose()
        await self.health.idle()


@asynccontextmanager
async def open_system(
    name: str,
    settings: ClientSettings,
    adapter: Callable[[Exchange], Adapter],
    report: Report = ignore,
    *,
    clock: Callable[[], float] = time.monotonic,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[ExternalSystem[Adapter]]:
    """Build the system from its section, once, and close it at the end; `report` receives its policy's events."""
    client, policy = Client(name, settings, tls), Policy(name, settings, clock, report=report)
    health = Health(client, settings.health, clock)
    system = ExternalSystem(name, client, policy, adapter(Exchange(client, policy)), health)
    try:
        yield system
    finally:
        await system.aclose()
