"""Keyset pages: each says in a `Link` header where the next one begins, so that none is counted or skipped through."""

from fastapi import Request

from app.api.links import link


def next_page(request: Request, cursor: str) -> str:
    """The value of a Link header: this request again, with `cursor` in the place of its own."""
    query = request.url.include_query_params(cursor=cursor).query
    return f'<{link(request.scope, request.scope["route"].path)}?{query}>; rel="next"'
