"""Who calls, and what the caller may do: bearer API keys with scopes, some of them bound to customers."""

from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest
from http import HTTPStatus
from typing import Annotated, get_args

from fastapi import Request, Security
from fastapi.openapi.models import HTTPBearer
from fastapi.security import SecurityScopes
from fastapi.security.base import SecurityBase

from app.api.problems import ProblemError
from app.api.wired import wiring_of
from app.settings import AuthSettings, Scope

REFUSALS = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
"""What every operation that asks for a caller may answer."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever holds the key called `name`; `customers` are those it may act for, None means all of them."""

    name: str
    scopes: frozenset[Scope]
    customers: frozenset[str] | None = None

    def acts_for(self, customer_id: str) -> bool:
        return self.customers is None or customer_id in self.customers


ANYBODY = Caller("anonymous", frozenset(get_args(Scope)))


class BearerKey(SecurityBase):
    """The dependency that gives an operation its caller; raises 401 and 403 problems."""

    scheme_name = "apiKey"
    model = HTTPBearer(description="An API key; none is asked for where `auth.mode` is `none`.")

    async def __call__(self, request: Request, wanted: SecurityScopes) -> Caller:
        auth = wiring_of(request).settings.auth
        caller = ANYBODY if auth.mode == "none" else _holder(auth, request.headers.get("authorization", ""))
        if not caller.scopes.issuperset(wanted.scopes):
            held = ", ".join(sorted(caller.scopes))
            detail = f"This needs the scope {wanted.scope_str}; the key {caller.name} has {held}."
            raise ProblemError(HTTPStatus.FORBIDDEN, "forbidden", detail)
        return caller


bearer_key = BearerKey()

OrderWriter = Annotated[Caller, Security(bearer_key, scopes=["orders:write"])]
OrderReader = Annotated[Caller, Security(bearer_key, scopes=["orders:read"])]
Operator = Annotated[Caller, Security(bearer_key, scopes=["ops"])]


def _holder(auth: AuthSettings, authorization: str) -> Caller:
    """Find whose key it is. All keys are compared, so that the time it takes tells nothing about any of them."""
    scheme, _, key = authorization.partition(" ")
    if scheme.lower() != "bearer" or not key.strip():
        raise _unauthorized("This needs an API key; send it as Authorization: Bearer <key>.")
    digest = sha256(key.strip().encode("latin-1")).hexdigest()
    known = [entry for entry in auth.keys if compare_digest(entry.sha256.get_secret_value(), digest)]
    if not known:
        raise _unauthorized("This API key is not known.")
    return Caller(known[0].name, known[0].scopes, known[0].customers)


def _unauthorized(detail: str) -> ProblemError:
    headers = {"WWW-Authenticate": "Bearer"}
    return ProblemError(HTTPStatus.UNAUTHORIZED, "unauthorized", detail, headers=headers)
