import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from app.orders.ports import InvalidAnswer, SystemRefused, SystemUnavailable
from app.settings import ProbeSettings
from app.systems.client import Client
from app.systems.request import Request


@dataclass(frozen=True, slots=True)
class Condition:
    """Whether the system answered its probe with 2xx; `reason` is the kind of the error if it did not.

    `checked_at` is a reading of the indicator's monotonic clock, `age` is how many seconds have passed since.
    """

    up: bool
    reason: str | None
    checked_at: float
    age: float = 0.0


class Health:
    """The indicator of one system: a light probe, believed for `ttl` seconds, one at a time (HC-1 to HC-3).

    It goes through the system's own client, but past breaker and bulkhead, which would hide the system's condition or
    learn from the probe. A connection is free for it, because the pool is larger than the bulkhead (ISO-2).
    """

    def __init__(self, client: Client, settings: ProbeSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._request = Request("health", "GET", settings.path)
        self._settings = settings
        self._clock = clock
        self._last: Condition | None = None
        self._probing: asyncio.Task[Condition] | None = None

    @property
    def last(self) -> Condition | None:
        """What the latest probe found, however old it is; None before the first one."""
        return self._last and replace(self._last, age=self._clock() - self._last.checked_at)

    async def check(self) -> Condition:
        """The system's condition, at most `ttl` seconds old.

        Waits for a probe, `timeout` seconds at most, if the last one is older; a caller that leaves does not end it.
        """
        last = self.last
        if last is not None and last.age < self._settings.ttl:
            return last
        if self._probing is None:
            self._probing = asyncio.create_task(self._probe(), name=f"{self._client.system} health")
        return await asyncio.shield(self._probing)

    async def idle(self) -> None:
        """Return once no probe runs."""
        if self._probing is not None:
            await asyncio.wait({self._probing})

    async def _probe(self) -> Condition:
        try:
            reason = await self._ask()
            self._last = Condition(reason is None, reason, self._clock())
            return self._last
        finally:
            self._probing = None

    async def _ask(self) -> str | None:
        try:
            async with asyncio.timeout(self._settings.timeout):
                await self._client.send(self._request)
        except TimeoutError:
            return "timeout"
        except (SystemUnavailable, SystemRefused, InvalidAnswer) as error:
            return error.kind
        return None
