"""The API's description as a page, which may load and do what it needs, and nothing else."""

import re
from base64 import b64encode
from hashlib import sha256

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.requests import Request
from starlette.responses import Response

DOCUMENT, PAGE = "/openapi.json", "/docs"
NO_ICON = "data:,"
NOT_TOLD = {"validatorUrl": None}
"""Nobody outside is asked whether the document is right."""


def install(app: FastAPI) -> None:
    """Serve the page at `/docs`."""
    page = get_swagger_ui_html(
        openapi_url=DOCUMENT, title=app.title, swagger_favicon_url=NO_ICON, swagger_ui_parameters=NOT_TOLD
    )
    page.headers.update(guards(bytes(page.body).decode()))

    async def show_docs(_request: Request) -> Response:
        return page

    app.add_route(PAGE, show_docs, include_in_schema=False)


def guards(html: str) -> dict[str, str]:
    """Headers for a page: its own scripts and the hosts it names are let in, and no other page may frame it."""
    scripts = (sha256(script.encode()).digest() for script in re.findall(r"<script>(.*?)</script>", html, re.DOTALL))
    inline = " ".join(f"'sha256-{b64encode(digest).decode()}'" for digest in scripts)
    hosts = " ".join(sorted(set(re.findall(r'(?:src|href)="(https://[^/"]+)/', html))))
    rules = (
        "default-src 'none'",
        f"script-src 'self' {hosts} {inline}",
        f"style-src 'self' {hosts} 'unsafe-inline'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
    return {
        "Content-Security-Policy": "; ".join(rules),
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer",
    }
