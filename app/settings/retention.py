"""The section of the retention."""

from typing import Annotated

from pydantic import Field

from app.settings.section import Count, Seconds, Section


class RetentionSettings(Section):
    """Old rows are deleted every `interval` seconds, `batch` rows at a time with a `pause` between.

    How old they must be is said by the sections that they belong to: `tasks`, `events`, `api`.
    """

    interval: Seconds
    jitter: Annotated[float, Field(ge=0, le=1)]
    batch: Annotated[Count, Field(le=10_000)]
    pause: Seconds
