"""The API's description as pages. All they load comes from here: they work where there is no way to the internet."""

from pathlib import Path

import fastapi_standalone_docs
from fastapi import APIRouter
from fastapi.openapi.docs import get_redoc_html, get_swagger_ui_html
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from app.api.browser import Asset, guards
from app.api.links import prefix

NO_ICON = "data:,"

SHIPPED = Path(fastapi_standalone_docs.__file__).parent / "static"
SWAGGER_SCRIPT = Asset("/docs/swagger-ui-bundle.js", SHIPPED / "swagger/swagger-ui-bundle.js")
SWAGGER_STYLE = Asset("/docs/swagger-ui.css", SHIPPED / "swagger/swagger-ui.css")
REDOC_SCRIPT = Asset("/redoc/redoc.standalone.js", SHIPPED / "redoc/redoc.standalone.js")
REDOC_LOGO = Asset("/redoc/logo-mini.svg", SHIPPED / "redoc/logo-mini.svg")

SETTINGS = {"validatorUrl": None, "tryItOutEnabled": True}
"""Nobody outside is asked whether the document is right."""


router = APIRouter(include_in_schema=False)

for asset in (SWAGGER_SCRIPT, SWAGGER_STYLE, REDOC_SCRIPT, REDOC_LOGO):
    router.add_api_route(asset.path, asset.show, name=asset.path)


@router.get("/openapi.json")
async def show_document(request: Request) -> Response:
    return JSONResponse(request.app.openapi())


@router.get("/docs")
async def show_swagger_ui(request: Request) -> Response:
    root = prefix(request.scope)
    return _guarded(
        get_swagger_ui_html(
            openapi_url=f"{root}/openapi.json",
            title=request.app.title,
            swagger_js_url=root + SWAGGER_SCRIPT.url,
            swagger_css_url=root + SWAGGER_STYLE.url,
            swagger_favicon_url=NO_ICON,
            swagger_ui_parameters=SETTINGS,
        )
    )


@router.get("/redoc")
async def show_redoc(request: Request) -> Response:
    root = prefix(request.scope)
    return _guarded(
        get_redoc_html(
            openapi_url=f"{root}/openapi.json",
            title=request.app.title,
            redoc_js_url=root + REDOC_SCRIPT.url,
            redoc_favicon_url=NO_ICON,
            with_google_fonts=False,
        )
    )


def _guarded(page: HTMLResponse) -> Response:
    """Both set styles by script, and ReDoc searches in a worker that it makes."""
    page.headers.update(guards(bytes(page.body).decode(), styles="'unsafe-inline'", workers="blob:"))
    return page
