"""Addresses of this service that clients can follow, also where a proxy takes a prefix away."""

from urllib.parse import urlencode, urlsplit

from fastapi import Request
from starlette.types import Scope

PUBLIC_URL = "public_url"
"""Under this name the server's lifespan state holds `api.public_url`."""


def link(scope: Scope, path: str) -> str:
    """The address of `path` here: absolute where `api.public_url` is set, else a path below ASGI's `root_path`.

    Host, Forwarded and X-Forwarded-* are not asked: anybody can send them.
    """
    return f"{scope['state'][PUBLIC_URL] or scope.get('root_path', '')}{path}"


def prefix(scope: Scope) -> str:
    """What a proxy takes away from the path: the browser that asked has to put it before each path."""
    return urlsplit(link(scope, "")).path.rstrip("/")


def next_page(request: Request, cursor: str) -> str:
    """The Link header (RFC 8288) of a page with a next one: this request again, with `cursor` in place of its own."""
    query = [(name, value) for name, value in request.query_params.multi_items() if name != "cursor"]
    path = link(request.scope, request.scope["route"].path)
    return f'<{path}?{urlencode([*query, ("cursor", cursor)])}>; rel="next"'
