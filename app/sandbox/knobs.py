"""How a stand-in behaves until somebody turns its knobs."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator


class Knobs(BaseModel):
    """`latency_ms` belongs to mode slow; `error_rate` is the share of 503 among the calls of modes ok and slow.

    `polls_before_final` status calls are answered with the pending status before `outcome`, or the good ending when
    that is null, is told. Validation needs the system's endings as its context.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    mode: Literal["ok", "error", "hang", "slow", "reset", "garbage"] = "ok"
    latency_ms: int = Field(1_000, ge=0, le=60_000)
    error_rate: float = Field(0.0, ge=0, le=1)
    polls_before_final: int = Field(0, ge=0)
    outcome: str | None = None

    @field_validator("outcome")
    @classmethod
    def _is_an_ending(cls, outcome: str | None, info: ValidationInfo) -> str | None:
        endings = list(info.context or ())
        if outcome is not None and outcome not in endings:
            raise ValueError(f"should be null or one of {endings}")
        return outcome
