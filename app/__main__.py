"""The process `python -m app`. SIGTERM ends it from its first moment on, also as process 1 of a container."""

import os
import signal
import sys


def open_standard_streams() -> None:
    """Stand in for those that were closed by whoever started this: else a socket would get a stream's number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)  # the lowest that is free: this stream's
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


if __name__ == "__main__":
    open_standard_streams()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        from app.cli import main  # here, so that the signal is heard meanwhile

        main()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except RuntimeError as error:
        if not isinstance(error.__cause__, SystemExit):
            raise
        sys.exit(error.__cause__.code)  # Python 3.11 wraps what a signal's handler raises amid the making of a class
