"""Standard output as it may turn out to be: full, or with nobody left who reads it."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

import typer

from app.text import legible

CANNOT_RUN, NOT_READ = 3, 128 + signal.SIGPIPE


class Output:
    """Ends the process in words when it cannot be written to: with the code of SIGPIPE when its reader has gone."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with self._accepted():
            return self._stream.write(text)

    def flush(self) -> None:
        with self._accepted():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextmanager
    def _accepted(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            _discard(self._stream)
            if isinstance(error, BrokenPipeError):
                sys.exit(NOT_READ)
            complain(f"standard output cannot be written to: {error.strerror}. What the command changed stays changed")
            sys.exit(CANNOT_RUN)


def complain(text: object) -> None:
    """Say on standard error what is the matter; when that cannot be written to either, the exit code has to do."""
    lines = "\n".join(legible(line, limit=None) for line in str(text).split("\n"))
    try:
        typer.echo(lines, err=True)
    except OSError:
        _discard(sys.stderr)


def _discard(stream: TextIO) -> None:
    """Let what the stream still holds go nowhere, or Python would try once more to write it at its end, and fail."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
