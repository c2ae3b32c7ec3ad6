"""Log lines on their way out: a thread writes them, so that a full pipe holds up nobody else."""

import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from app.observability import metrics

CAPACITY = 10_000
"""Lines that wait at most; further ones are dropped and counted."""

AT_ONCE = 500
GATHER_SECONDS = 0.02
"""After a line, those of so long are written together: to wake the thread for each costs as much as the line."""

FLUSH_SECONDS = 2.0


class Writer(logging.Handler):
    """Formats a line where it is logged, and writes it to standard error from a thread.

    No log call waits for whoever reads standard error, nor fails when nobody does.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[str] = deque()
        self._news, self._idle = threading.Event(), True
        threading.Thread(target=self._write_on, name="log writer", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        self.write(self.format, record)

    def write(self, form: Callable[[Any], str], said: Any) -> None:
        """Put what was said in its form and into the queue; it never fails."""
        try:
            line = form(said)
        except Exception as error:  # noqa: BLE001 - what cannot be shown must not break whoever logs it
            line = f'{{"level": "error", "event": "a line could not be formatted", "error": "{type(error).__name__}"}}'
        if len(self._lines) < CAPACITY:
            self._lines.append(line)
            self._news.set()
        else:
            metrics.log_lines_dropped.inc()

    def flush(self) -> None:
        """Wait until what was logged so far is written, for FLUSH_SECONDS at most."""
        until = time.monotonic() + FLUSH_SECONDS
        while (self._lines or not self._idle) and time.monotonic() < until:
            time.sleep(0.005)

    def _write_on(self) -> None:
        while self._news.wait():
            self._news.clear()
            self._idle = False
            while self._lines:
                lines = [self._lines.popleft() for _ in range(min(len(self._lines), AT_ONCE))]
                try:
                    _write_out("".join(f"{line}\n" for line in lines))
                except Exception:  # noqa: BLE001 - closed, broken, not there at all: later lines may find it again
                    metrics.log_lines_dropped.inc(len(lines))
            self._idle = True
            time.sleep(GATHER_SECONDS)


def _write_out(text: str) -> None:
    """Write past Python's own buffer: the interpreter could not end while a thread is stuck in there."""
    rest = memoryview(text.encode("utf-8", "backslashreplace"))
    while rest:
        rest = rest[os.write(sys.stderr.fileno(), rest) :]
