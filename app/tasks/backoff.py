"""How long a task waits for its next attempt."""

import random


def backoff(attempt: int, *, cap: float, jitter: float, announced: float | None = None) -> float:
    """Seconds to wait after unsuccessful attempt number `attempt`: min(2^attempt s, cap), spread upwards by `jitter`.

    Never above `cap`: near it the spread reaches downwards instead, so that rows which failed together part ways there
    too. `announced` (the system's Retry-After, in seconds) is honoured as a minimum, within the cap.
    """
    floor = min(2.0 ** min(attempt, 32), cap / (1 + jitter))
    delay = floor * (1 + jitter * random.random())  # noqa: S311 - spreads load, guards no secret
    return min(cap, delay if announced is None else max(delay, announced * (1 + jitter * random.random())))  # noqa: S311
