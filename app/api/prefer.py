"""The preference `wait` (RFC 7240): how long a client would like to wait for news before it gets an answer."""

import re

from fastapi import Request

NAME = "Prefer"

PARAMETER = {
    "name": NAME,
    "in": "header",
    "description": "`wait=10`: answer when the order is final, or no longer what If-None-Match names, or after 10 s.",
    "schema": {"type": "string"},
    "example": "wait=10",
}
"""What OpenAPI says of the header."""

_WAIT = re.compile(r'wait\s*=\s*("?)([0-9]{1,9})\1', re.IGNORECASE)


def wait_wanted(request: Request, most: int) -> int | None:
    """Seconds that the client would wait, at most `most`; None when it does not say. Nonsense is no preference."""
    for preference in ",".join(request.headers.getlist(NAME)).split(","):
        if match := _WAIT.fullmatch(preference.partition(";")[0].strip()):
            return min(int(match[2]), most)
    return None
