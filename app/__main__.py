"""The process `python -m app`. SIGTERM ends it from its first moment on, also as process 1 of a container."""

import signal
import sys

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        from app.cli import main  # here, so that the signal is heard meanwhile

        main()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
