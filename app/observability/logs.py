"""Logging: one pipeline for our lines and the libraries', JSON for machines, columns on a terminal."""

import logging
import sys
from typing import Literal

import structlog

_SHARED: list[structlog.typing.Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.processors.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.stdlib.ExtraAdder(),
    lambda _logger, _method, line: {k: v for k, v in line.items() if k != "color_message"},
]


_tracebacks = structlog.processors.ExceptionRenderer(
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False)  # locals may hold secrets
)


def configure_logs(level: str, style: Literal["auto", "json", "console"]) -> None:
    """Send every log line to stderr at `level` and above; "auto" is console on a terminal and JSON elsewhere."""
    console = style == "console" or (style == "auto" and sys.stderr.isatty())
    render: list[structlog.typing.Processor] = (
        [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
        if console
        else [_tracebacks, structlog.processors.JSONRenderer(ensure_ascii=False)]
    )
    handler = logging.StreamHandler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_SHARED,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *render],
        )
    )
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [], True
    logging.getLogger("httpx").setLevel("WARNING")  # it has a line for every successful call
    route_structlog()


def route_structlog() -> None:
    """Let structlog's lines go through the standard library's loggers."""
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_SHARED[:-1],
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
