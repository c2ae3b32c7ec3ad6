"""What pages need in browsers: headers that let nothing else in, and files under addresses that change with them."""

import re
from base64 import b64encode
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, Response

A_YEAR = 31_536_000


class Asset:
    """One file at one path. Browsers keep what `url` names without asking again; an old address is asked for anew."""

    def __init__(self, path: str, file: Path) -> None:
        self.path, self._file = path, file

    @cached_property
    def version(self) -> str:
        return sha256(self._file.read_bytes()).hexdigest()[:12]

    @property
    def url(self) -> str:
        return f"{self.path}?v={self.version}"

    async def show(self, request: Request) -> Response:
        current = request.query_params.get("v") == self.version
        kept = f"public, max-age={A_YEAR}, immutable" if current else "no-cache"
        return FileResponse(self._file, headers={"Cache-Control": kept, "X-Content-Type-Options": "nosniff"})


def guards(html: str, *, styles: str | None = None, workers: str = "'none'") -> dict[str, str]:
    """Let in what comes from here and the blocks that stand in the page, and let no other page frame it.

    `styles` and `workers` are sources for a page that needs others.
    """
    styles = styles or _hashes("style", html)
    rules = (
        "default-src 'none'",
        f"script-src 'self' {_hashes('script', html)}",
        f"style-src 'self' {styles}",
        "img-src 'self' data:",
        "connect-src 'self'",
        f"worker-src {workers}",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
    return {
        "Content-Security-Policy": "; ".join(rule.strip() for rule in rules),
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer",
    }


def _hashes(tag: str, html: str) -> str:
    blocks = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
    return " ".join(f"'sha256-{b64encode(sha256(block.encode()).digest()).decode()}'" for block in blocks)
