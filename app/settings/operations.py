"""The sections an operator turns to: health, shutdown, logs."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from app.settings.section import Seconds, Section


class HealthSettings(Section):
    """`required`: systems that may turn readiness red (HC-4); a loop silent for `stalled_after` seconds does so too."""

    required: tuple[str, ...]
    stalled_after: Seconds


class ShutdownSettings(Section):
    """Budgets of the phases, in seconds and in their order; the orchestrator kills after `grace_period` (SHUT-CFG)."""

    grace_period: Seconds
    lead: Annotated[float, Field(ge=0)]
    drain: Seconds
    poller: Seconds
    close: Seconds

    @property
    def total(self) -> float:
        """Seconds that all phases may take together."""
        return self.lead + self.drain + self.poller + self.close

    def contradictions(self) -> Iterator[str]:
        if self.total >= self.grace_period:
            yield (
                f"grace_period = {self.grace_period:g}: must be above lead {self.lead:g} + drain {self.drain:g} + "
                f"poller {self.poller:g} + close {self.close:g} = {self.total:g} (SHUT-CFG). "
                "Lower one of them, or raise grace_period here and at the orchestrator"
            )


Level = Literal["DEBUG", "INFO", "WARNING"]
"""None that would hide a breaker's transition, which is a WARNING (OBS-X1)."""


class LogSettings(Section):
    """`format` auto: console on a terminal, JSON elsewhere."""

    level: Annotated[Level, BeforeValidator(lambda value: value.upper() if isinstance(value, str) else value)]
    format: Literal["auto", "json", "console"]
