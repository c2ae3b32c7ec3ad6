"""The section of the traces."""

from typing import Annotated

from pydantic import AnyHttpUrl, Field

from app.settings.section import Count, Name, Seconds, Section


class TelemetrySettings(Section):
    """Spans go to the collector at `otlp_endpoint`, over HTTP; without one there are none, and they cost nothing.

    `sample_ratio` is the share of traces that begin here and are kept; a caller's own decision is followed. At most
    `queue` spans wait to be sent, further ones are lost. At the end what waits is sent for `flush` seconds.
    """

    otlp_endpoint: AnyHttpUrl | None
    service_name: Annotated[Name, Field(min_length=1)]
    sample_ratio: Annotated[float, Field(ge=0, le=1)]
    queue: Annotated[Count, Field(ge=512, le=100_000)]
    export_timeout: Seconds
    flush: Seconds
