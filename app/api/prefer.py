"""The preference `wait` (RFC 7240): how long a client would like to wait for news before it gets an answer."""

import asyncio
import re
from collections.abc import Coroutine

from fastapi import Request

from app.api.described import parameter

NAME = "Prefer"

PARAMETER = parameter(
    NAME,
    "`wait=10`: answer when the order is final, or no longer what If-None-Match names, or after 10 s.",
    "wait=10",
)

_WAIT = re.compile(r'wait\s*=\s*("?)([0-9]{1,9})\1', re.IGNORECASE)


def wait_wanted(request: Request, most: int) -> int | None:
    """Seconds that the client would wait, at most `most`; None when it does not say. Nonsense is no preference."""
    for preference in ",".join(request.headers.getlist(NAME)).split(","):
        if match := _WAIT.fullmatch(preference.partition(";")[0].strip()):
            return min(int(match[2]), most)
    return None


async def unless_gone(request: Request, wait: Coroutine[None, None, None]) -> None:
    """Wait, and raise what the wait raises; for a client that has hung up nobody waits."""
    waiting, leaving = asyncio.create_task(wait), asyncio.create_task(_hang_up(request))
    try:
        await asyncio.wait({waiting, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            waiting.result()
    finally:
        waiting.cancel()
        leaving.cancel()


async def _hang_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
