"""The operators' console: two empty pages for everybody, and what a script fetches into them, for operators."""

from pathlib import Path as File
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response, Security
from starlette.responses import HTMLResponse

from app.api.assets import Asset
from app.api.auth import bearer_key
from app.api.console.board import read_board
from app.api.console.journey import read_journey
from app.api.console.render import templates
from app.api.guards import guards
from app.api.links import prefix
from app.api.problems import not_found
from app.api.schemas import Int64
from app.api.wired import Wired
from app.observability.history import INTERVAL

STATIC = File(__file__).parent / "static"
STYLE, SCRIPT = Asset("/ops/console.css", STATIC / "console.css"), Asset("/ops/console.js", STATIC / "console.js")

FRESH = {"Cache-Control": "no-store"}
"""What changes all the time, and is not everybody's to see, is kept nowhere."""

OrderId = Annotated[Int64, Path()]

router = APIRouter(prefix="/ops", include_in_schema=False)
operators = [Security(bearer_key, scopes=["ops"])]

for asset in (STYLE, SCRIPT):
    router.add_api_route(asset.path.removeprefix("/ops"), asset.show, name=asset.path)


@router.get("")
async def show_console(request: Request) -> Response:
    return _page(request, "Operations", "/ops/board")


@router.get("/orders/{order_id}")
async def show_order_page(request: Request, order_id: OrderId) -> Response:
    return _page(request, f"Order {order_id}", f"/ops/orders/{order_id}/journey")


@router.get("/board", dependencies=operators)
async def show_board(request: Request, wiring: Wired) -> Response:
    return _part(request, "board.html", board=await read_board(wiring))


@router.get("/orders/{order_id}/journey", dependencies=operators)
async def show_journey(request: Request, order_id: OrderId, wiring: Wired) -> Response:
    journey = await read_journey(wiring, order_id)
    if journey is None:
        raise not_found(f"order {order_id}")
    return _part(request, "journey.html", journey=journey)


def _page(request: Request, title: str, part: str) -> Response:
    """The frame of a page. It holds no data, so that a browser gets it before its reader has given a key."""
    html = templates.get_template("page.html").render(
        prefix=prefix(request.scope), title=title, part=part, every=INTERVAL, style=STYLE.url, script=SCRIPT.url
    )
    return HTMLResponse(html, headers=guards(html) | FRESH)


def _part(request: Request, template: str, **values: object) -> Response:
    html = templates.get_template(template).render(prefix=prefix(request.scope), **values)
    return HTMLResponse(html, headers=guards(html) | FRESH)
