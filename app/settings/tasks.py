"""The section of a task table."""

from typing import Annotated

from pydantic import Field

from app.settings.client import ClientSettings
from app.settings.section import Count, Seconds, Section

LEASE_MARGIN = 1.0
"""Seconds of a lease that are kept for settling: the poller lets no call run into them."""


class TaskSettings(Section):
    """The section `tasks.<table>` (RE-5). How many attempts run at once is the system's `max_concurrent`.

    A worker leaves tables that are not `enabled` to other workers.
    """

    enabled: bool
    poll_interval: Seconds
    batch: Annotated[Count, Field(le=1000)]
    lease: Seconds
    max_attempts: Annotated[Count, Field(le=1000)]
    backoff_cap: Annotated[Seconds, Field(ge=1)]
    jitter: Annotated[float, Field(ge=0, le=1)]
    retention: Seconds


def check_lease(table: str, task: TaskSettings, system: str, client: ClientSettings) -> str | None:
    """Say what is wrong when `table`'s lease could end before a call to its system does: two calls for one row."""
    shortest = client.total_timeout + LEASE_MARGIN
    if task.lease > shortest:
        return None
    return (
        f"tasks.{table}.lease = {task.lease:g}: must be above client.{system}.total_timeout + {LEASE_MARGIN:g} s = "
        f"{client.total_timeout:g} + {LEASE_MARGIN:g} = {shortest:g}, or a row is claimed again while its call runs. "
        f"Raise tasks.{table}.lease or lower client.{system}.total_timeout"
    )
