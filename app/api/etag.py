"""Conditional requests (RFC 9110): an answer carries an entity tag, and who has that very answer is told just this."""

import re
from hashlib import sha256
from http import HTTPStatus

from fastapi import Request, Response

from app.api.described import parameter

NAME = "If-None-Match"

PARAMETER = parameter(
    NAME,
    "ETags of answers that the client has. If the answer is still one of them, there is only a 304.",
    '"6c1f1a526d3c4f438d7e0a6a3c2f9b11"',
)

_TAG = r'(?:W/)?("[!#-~\x80-\xff]*")'
_TAGS = re.compile(rf"[ \t]*(?:{_TAG}[ \t]*)?(?:,[ \t]*(?:{_TAG}[ \t]*)?)*")


def conditional(request: Request, body: bytes) -> Response:
    """The JSON `body` with its tag, or 304 where the client has it.

    The tag is strong and covers every byte of the body, so nothing that changes the body can be forgotten. Headers are
    not covered.
    """
    tag = f'"{sha256(body).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    if _is_named(request, tag):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(body, headers=headers, media_type="application/json")


def _is_named(request: Request, tag: str) -> bool:
    """Whether If-None-Match names the tag; a weak one is as good, `*` is any, and what is no list names none."""
    named = ", ".join(request.headers.getlist(NAME)).strip()
    return named == "*" or (_TAGS.fullmatch(named) is not None and tag in re.findall(_TAG, named))
