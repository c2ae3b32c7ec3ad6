"""Files that pages need, served from here, under addresses that change with what is in them."""

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
