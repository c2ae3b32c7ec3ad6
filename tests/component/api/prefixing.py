"""A reverse proxy as a gateway is one: it serves the API below a prefix, and takes the prefix away."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import ClientSession, web

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}


@asynccontextmanager
async def prefixing(upstream: str, prefix: str, port: int) -> AsyncIterator[str]:
    """Forward what begins with `prefix` to `upstream`, without it; yields the address that clients use."""
    async with ClientSession(auto_decompress=False) as session:

        async def forward(request: web.Request) -> web.Response:
            path = request.raw_path.removeprefix(prefix)
            if path == request.raw_path:
                return web.Response(status=502, text=f"the proxy knows nothing but {prefix}")
            kept = {k: v for k, v in request.headers.items() if k.lower() not in HOP_BY_HOP}
            async with session.request(
                request.method, upstream + path, headers=kept, data=await request.read(), allow_redirects=False
            ) as answer:
                headers = [(k, v) for k, v in answer.headers.items() if k.lower() not in HOP_BY_HOP]
                return web.Response(status=answer.status, headers=headers, body=await answer.read())

        runner = web.AppRunner(web.Application())
        runner.app.router.add_route("*", "/{path:.*}", forward)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", port).start()
            yield f"http://127.0.0.1:{port}{prefix}"
        finally:
            await runner.cleanup()
