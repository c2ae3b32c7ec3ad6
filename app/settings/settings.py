"""All sections together, and the rules that hold between them."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NamedTuple, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from app.settings.api import ApiSettings, AuthSettings
from app.settings.client import ClientSettings
from app.settings.events import EventSettings
from app.settings.invariants import InvariantSettings
from app.settings.operations import HealthSettings, LogSettings, ShutdownSettings
from app.settings.pg import PgSettings
from app.settings.retention import RetentionSettings
from app.settings.tasks import TaskSettings
from app.settings.telemetry import TelemetrySettings


def overlaid(below: Any, above: Any) -> Any:
    """Mappings merge key by key, everything else is replaced."""
    if not isinstance(below, Mapping) or not isinstance(above, Mapping):
        return above
    return {**below, **{key: overlaid(below.get(key), value) for key, value in above.items()}}


def _with_defaults(sections: Any) -> Any:
    """Lay each section over the one called `default`, which is not a section of its own (CFG-1)."""
    if not isinstance(sections, Mapping):
        return sections
    default = sections.get("default", {})
    return {name: overlaid(default, own) for name, own in sections.items() if name != "default"}


Sections = BeforeValidator(_with_defaults)


class SizingRow(NamedTuple):
    """A system's part in the sum of connection pools; `total` is the sum up to and with this row."""

    system: str
    max_concurrent: int
    pool: int
    total: int
    limit: float


class Settings(BaseSettings):
    """The whole configuration. Its one door is `load_settings`."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid")

    pg: PgSettings
    client: Annotated[dict[str, ClientSettings], Sections, Field(min_length=1)]
    tasks: Annotated[dict[str, TaskSettings], Sections, Field(min_length=1)]
    api: ApiSettings
    auth: AuthSettings
    events: EventSettings
    retention: RetentionSettings
    invariants: InvariantSettings
    health: HealthSettings
    shutdown: ShutdownSettings
    log: LogSettings
    telemetry: TelemetrySettings

    def sizing(self) -> Iterator[SizingRow]:
        """Each system's connections, added up against half of the database pool (ISO-2)."""
        total = 0
        for name, client in self.client.items():
            total += client.pool_size
            yield SizingRow(name, client.max_concurrent, client.pool_size, total, self.pg.pool.max / 2)

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> Self:
        if found := "; ".join(self._contradictions()):
            raise ValueError(found)
        return self

    def _contradictions(self) -> Iterator[str]:
        """What is wrong between sections; what is wrong within one, it says itself."""
        *_, last = rows = list(self.sizing())
        if last.total > last.limit:
            terms = " + ".join(f"{row.system} ceil({row.max_concurrent}*1.2)={row.pool}" for row in rows)
            yield (
                f"client: pool sizes {terms} = {last.total} > pg.pool.max/2 = {self.pg.pool.max}/2 = {last.limit:g} "
                "(ISO-2). Lower max_concurrent of the least loaded systems, or raise pg.pool.max to at least "
                f"{2 * last.total}"
            )
        if unknown := [name for name in self.health.required if name not in self.client]:
            yield f"health.required = {unknown}: no such systems, known are {sorted(self.client)}"
        polls = {f"tasks.{table}": task.poll_interval for table, task in self.tasks.items()}
        polls |= {"events": self.events.poll_interval, "api": self.api.poll_interval}
        slowest, longest = max(polls.items(), key=lambda poll: poll[1])
        if self.health.stalled_after <= longest:
            yield (
                f"health.stalled_after = {self.health.stalled_after:g}: must be above {slowest}.poll_interval = "
                f"{longest:g}, or an idle poller counts as stalled"
            )
        if self.invariants.statement_timeout > self.pg.statement_timeout:
            yield (
                f"invariants.statement_timeout = {self.invariants.statement_timeout:g}: must be at most "
                f"pg.statement_timeout = {self.pg.statement_timeout:g}, where every statement ends"
            )
        if self.telemetry.otlp_endpoint and self.shutdown.total + self.telemetry.flush >= self.shutdown.grace_period:
            yield (
                f"telemetry.flush = {self.telemetry.flush:g}: must fit into shutdown.grace_period = "
                f"{self.shutdown.grace_period:g} with the shutdown's own {self.shutdown.total:g} s (SHUT-CFG)"
            )
        if refused := self.auth.check_bind(self.api.host):
            yield refused
