"""The section of the look at the invariants."""

from typing import Annotated

from pydantic import Field

from app.settings.section import Seconds, Section


class InvariantSettings(Section):
    """A worker looks for the first time `first_after` seconds after its start, then every `interval` seconds.

    A statement that takes longer than `statement_timeout` is given up, and the look with it.
    """

    first_after: Seconds
    interval: Seconds
    jitter: Annotated[float, Field(ge=0, le=1)]
    statement_timeout: Seconds
