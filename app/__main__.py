"""The process `python -m app`. SIGTERM ends it from its first moment on, also as process 1 of a container."""

import signal
import sys

TERMINATED = 128 + signal.SIGTERM

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))

    from app.cli import main  # the signal may come while this is being imported

    main()
