"""The Idempotency-Key header (IETF draft-ietf-httpapi-idempotency-key-header-07): what it may look like, and errors."""

import re
from hashlib import sha256

from fastapi import Request
from pydantic import BaseModel

from app.api.described import parameter
from app.api.kinds import Kind
from app.api.problems import ProblemError
from app.orders.create import KeyInFlight, KeyReused

NAME = "Idempotency-Key"
LONGEST = 255
# A string of RFC 8941, as the draft has it, or the same characters bare, as most clients send them.
PATTERN = rf'"((?:[!#-\[\]-~]|\\["\\]){{1,{LONGEST}}})"|([!#-~][!-~]{{0,{LONGEST - 1}}})'
FORM = f"1 to {LONGEST} visible ASCII characters, in double quotes or bare"

PROBLEMS = (Kind.IDEMPOTENCY_KEY_MALFORMED, Kind.IDEMPOTENCY_KEY_IN_FLIGHT, Kind.IDEMPOTENCY_KEY_REUSED)
"""What may be wrong with a key."""

PARAMETER = parameter(
    NAME,
    f"However often a request is sent with the same key, it makes one order. The key is {FORM}.",
    '"8e03978e-40d5-43e8-bc93-6894a57f9324"',
    minLength=1,
    maxLength=2 * LONGEST + 2,
    pattern=f"^(?:{PATTERN})$",
)


def idempotency_key(request: Request) -> str | None:
    """The key that the client gives its request, without its quotes; raises a 400 problem."""
    sent = request.headers.getlist(NAME)
    if not sent:
        return None
    match = re.fullmatch(PATTERN, ", ".join(sent))
    quoted, bare = match.groups() if match else (None, None)
    key = re.sub(r"\\(.)", r"\1", quoted) if quoted else bare
    if key is None:
        raise ProblemError(Kind.IDEMPOTENCY_KEY_MALFORMED, f"{NAME} must be one value: {FORM}.")
    return key


def fingerprint(body: BaseModel) -> bytes:
    """The SHA-256 of what the body says, however it is spelt; a field that a later version adds does not change it."""
    return sha256(body.model_dump_json(exclude_unset=True).encode()).digest()


def key_problem(refusal: KeyInFlight | KeyReused) -> ProblemError:
    match refusal:
        case KeyInFlight():
            detail = f"A request with this {NAME} is still being worked on. Repeat it to get its answer."
            headers = {"Retry-After": "1"}
            return ProblemError(Kind.IDEMPOTENCY_KEY_IN_FLIGHT, detail, headers=headers)
        case KeyReused():
            detail = f"This {NAME} was used for another request body. A different order needs a key of its own."
            return ProblemError(Kind.IDEMPOTENCY_KEY_REUSED, detail)
