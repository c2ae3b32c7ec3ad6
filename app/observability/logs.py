"""Logging: one form for our lines and the libraries', JSON for machines, columns on a terminal."""

import json
import logging
import sys
from datetime import UTC, datetime
from io import StringIO
from typing import Any, Literal, NoReturn, TextIO

import structlog
from opentelemetry.trace import format_span_id, format_trace_id, get_current_span
from pydantic_core import PydanticSerializationError, to_json
from structlog.typing import EventDict, ExcInfo, Processor

from app.observability.writer import Writer
from app.text import legible


def _add_trace(_logger: object, _method: str, line: EventDict) -> EventDict:
    context = get_current_span().get_span_context()
    if context.is_valid:
        line["trace_id"], line["span_id"] = format_trace_id(context.trace_id), format_span_id(context.span_id)
    return line


_SHARED: list[Processor] = [
    structlog.contextvars.merge_contextvars,
    _add_trace,
    structlog.processors.add_log_level,
    structlog.stdlib.add_logger_name,
]

_FOREIGN: list[Processor] = [
    *_SHARED,
    structlog.stdlib.ExtraAdder(),
    lambda _logger, _method, line: {k: v for k, v in line.items() if k != "color_message"},
]


def _make_legible(_logger: object, _method: str, line: EventDict) -> EventDict:
    """For a terminal, which would obey what foreign text says to it."""
    return {k: legible(v.rstrip(), limit=None) if isinstance(v, str) else v for k, v in line.items()}


def _show_traceback(file: TextIO, exc_info: ExcInfo) -> None:
    shown = StringIO()
    structlog.dev.plain_traceback(shown, exc_info)
    file.write("\n".join(legible(line, limit=None) for line in shown.getvalue().split("\n")))


_tracebacks = structlog.processors.ExceptionRenderer(
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False)  # locals may hold secrets
)


def _add_time(_logger: object, _method: str, line: EventDict) -> EventDict:
    """To be spelt by pydantic, which takes a tenth of the time."""
    line["timestamp"] = datetime.now(UTC)
    return line


def _spell(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else repr(value)


_encode = json.JSONEncoder(ensure_ascii=False, default=_spell).encode


def _as_json(_logger: object, _method: str, line: EventDict) -> str:
    """One line of JSON; what is no Unicode text is left to the slower encoder, and then to whoever writes it."""
    try:
        return to_json(line, fallback=repr).decode()
    except PydanticSerializationError:
        return _encode(line)


def configure_logs(level: str, style: Literal["auto", "json", "console"]) -> None:
    """Send every log line to stderr at `level` and above; "auto" is console on a terminal and JSON elsewhere."""
    console = style == "console" or (style == "auto" and sys.stderr is not None and sys.stderr.isatty())
    render: list[Processor] = (
        [
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _make_legible,
            structlog.dev.ConsoleRenderer(exception_formatter=_show_traceback),
        ]
        if console
        else [_add_time, _tracebacks, _as_json]
    )
    writer = Writer()
    writer.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_FOREIGN,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *render],
        )
    )
    logging.basicConfig(handlers=[writer], level=level.upper(), force=True)
    logging.captureWarnings(True)
    logging._srcfile = None  # noqa: SLF001  the manual's way to look for no caller
    for name in ("httpx", "urllib3", "alembic.runtime.plugins"):
        logging.getLogger(name).setLevel("WARNING")  # they have lines for every successful call

    def rendered(line: Any) -> str:
        for step in render:
            line = step(None, "", line)
        return str(line)

    def write(_logger: object, _method: str, line: EventDict) -> NoReturn:
        """The end of our lines: the way through the standard library would double what each of them costs."""
        writer.write(rendered, line)
        raise structlog.DropEvent

    structlog.configure(
        processors=[*_SHARED, write],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=True,
    )


def route_structlog() -> None:
    """Let our lines go through the standard library's loggers: to whoever has put a handler there."""
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_SHARED,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
