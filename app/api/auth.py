"""Who calls, and what the caller may do: bearer API keys with scopes, some of them bound to customers."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest
from typing import Annotated, get_args

from fastapi import Request, Security
from fastapi.openapi.models import HTTPBearer
from fastapi.security import SecurityScopes
from fastapi.security.base import SecurityBase

from app.api.kinds import Kind
from app.api.problems import ProblemError
from app.api.sites import refuse_other_sites
from app.api.wired import wiring_of
from app.settings import AuthSettings, Scope


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
        return caller_of(request, wanted.scopes)


def caller_of(request: Request, scopes: Sequence[str]) -> Caller:
    """Who sent the request; raises 401 and 403 problems, the latter when the caller lacks one of the `scopes`."""
    auth = wiring_of(request).settings.auth
    caller = _anybody(request) if auth.mode == "none" else _holder(auth, request.headers.get("authorization", ""))
    request.scope["state"]["caller"] = caller.name
    if not caller.scopes.issuperset(scopes):
        held = ", ".join(sorted(caller.scopes))
        detail = f"This needs the scope {' '.join(scopes)}; the key {caller.name} has {held}."
        raise ProblemError(Kind.FORBIDDEN, detail)
    return caller


bearer_key = BearerKey()

OrderWriter = Annotated[Caller, Security(bearer_key, scopes=["orders:write"])]
OrderReader = Annotated[Caller, Security(bearer_key, scopes=["orders:read"])]
Operator = Annotated[Caller, Security(bearer_key, scopes=["ops"])]


def _anybody(request: Request) -> Caller:
    """Everybody, but not for a page of another site; raises 403, 415 and 421 problems."""
    refuse_other_sites(request, wiring_of(request).settings.api)
    return ANYBODY


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
    return ProblemError(Kind.UNAUTHORIZED, detail, headers=headers)
