"""The operators' console: two empty pages for everybody, and what a script fetches into them, for operators."""

import re
from pathlib import Path
from urllib.parse import quote

from fastapi import APIRouter, Request, Response, Security
from starlette.responses import HTMLResponse

from app.api.auth import bearer_key
from app.api.browser import Asset, guards
from app.api.console.board import read_board
from app.api.console.journey import read_journey
from app.api.console.listing import Which, read_listing
from app.api.console.render import templates
from app.api.links import prefix
from app.api.problems import not_found
from app.api.wired import Wired
from app.observability.history import INTERVAL

STATIC = Path(__file__).parent / "static"
STYLE, SCRIPT = Asset("/ops/console.css", STATIC / "console.css"), Asset("/ops/console.js", STATIC / "console.js")

MOST = 2**63 - 1
"""The largest id that there can be."""

router = APIRouter(prefix="/ops", include_in_schema=False)
operators = [Security(bearer_key, scopes=["ops"])]

for asset in (STYLE, SCRIPT):
    router.add_api_route(asset.path.removeprefix("/ops"), asset.show, name=asset.path)


@router.get("")
async def show_console(request: Request) -> Response:
    return _page(request, "Operations", "/ops/board")


@router.get("/orders/{order_id}")
async def show_order_page(request: Request, order_id: str) -> Response:
    return _page(request, f"Order {order_id}", f"/ops/orders/{quote(order_id)}/journey")


@router.get("/tables/{table}/{which}")
async def show_listing_page(request: Request, table: str, which: Which) -> Response:
    return _page(request, f"{table}: {which}", f"/ops/tables/{quote(table)}/{which}/tasks")


@router.get("/board", dependencies=operators)
async def show_board(request: Request, wiring: Wired) -> Response:
    return _part(request, "board.html", board=await read_board(wiring))


@router.get("/orders/{order_id}/journey", dependencies=operators)
async def show_journey(request: Request, order_id: str, wiring: Wired) -> Response:
    """Whatever is asked for as an order, the page says in words when there is none."""
    journey = await read_journey(wiring, int(order_id)) if _may_be_id(order_id) else None
    if journey is None:
        raise not_found(f"order {order_id}")
    return _part(request, "journey.html", journey=journey)


@router.get("/tables/{table}/{which}/tasks", dependencies=operators)
async def show_listing(request: Request, table: str, which: Which, wiring: Wired) -> Response:
    listing = await read_listing(wiring, table, which)
    if listing is None:
        raise not_found(f"task table {table}")
    return _part(request, "listing.html", listing=listing)


def _may_be_id(text: str) -> bool:
    return re.fullmatch("[0-9]{1,19}", text) is not None and int(text) <= MOST


def _page(request: Request, title: str, part: str) -> Response:
    """The frame of a page. It holds no data, so that a browser gets it before its reader has given a key."""
    html = templates.get_template("page.html").render(
        prefix=prefix(request.scope), title=title, part=part, every=INTERVAL, style=STYLE.url, script=SCRIPT.url
    )
    return HTMLResponse(html, headers=guards(html))


def _part(request: Request, template: str, **values: object) -> Response:
    html = templates.get_template(template).render(prefix=prefix(request.scope), **values)
    return HTMLResponse(html, headers=guards(html))
