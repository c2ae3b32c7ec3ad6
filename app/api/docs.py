"""The API's description as pages. All they load comes from here: they work where there is no way to the internet."""

from pathlib import Path

import fastapi_standalone_docs
from fastapi import FastAPI
from fastapi.openapi.docs import get_redoc_html, get_swagger_ui_html
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from app.api.assets import Asset
from app.api.guards import guards
from app.api.links import prefix

DOCUMENT, SWAGGER_UI, REDOC = "/openapi.json", "/docs", "/redoc"
NO_ICON = "data:,"

SHIPPED = Path(fastapi_standalone_docs.__file__).parent / "static"
SWAGGER_SCRIPT = Asset("/docs/swagger-ui-bundle.js", SHIPPED / "swagger/swagger-ui-bundle.js")
SWAGGER_STYLE = Asset("/docs/swagger-ui.css", SHIPPED / "swagger/swagger-ui.css")
REDOC_SCRIPT = Asset("/redoc/redoc.standalone.js", SHIPPED / "redoc/redoc.standalone.js")
REDOC_LOGO = Asset("/redoc/logo-mini.svg", SHIPPED / "redoc/logo-mini.svg")

SETTINGS = {"validatorUrl": None, "tryItOutEnabled": True}
"""Nobody outside is asked whether the document is right."""


def install(app: FastAPI) -> None:
    """Serve the pages at `/docs` and `/redoc`."""

    async def show_swagger_ui(request: Request) -> Response:
        root = prefix(request.scope)
        return _guarded(
            get_swagger_ui_html(
                openapi_url=root + DOCUMENT,
                title=app.title,
                swagger_js_url=root + SWAGGER_SCRIPT.url,
                swagger_css_url=root + SWAGGER_STYLE.url,
                swagger_favicon_url=NO_ICON,
                swagger_ui_parameters=SETTINGS,
            )
        )

    async def show_redoc(request: Request) -> Response:
        root = prefix(request.scope)
        return _guarded(
            get_redoc_html(
                openapi_url=root + DOCUMENT,
                title=app.title,
                redoc_js_url=root + REDOC_SCRIPT.url,
                redoc_favicon_url=NO_ICON,
                with_google_fonts=False,
            )
        )

    app.add_route(SWAGGER_UI, show_swagger_ui, include_in_schema=False)
    app.add_route(REDOC, show_redoc, include_in_schema=False)
    for asset in (SWAGGER_SCRIPT, SWAGGER_STYLE, REDOC_SCRIPT, REDOC_LOGO):
        app.add_route(asset.path, asset.show, include_in_schema=False)


def _guarded(page: HTMLResponse) -> Response:
    """Both set styles by script, and ReDoc searches in a worker that it makes."""
    page.headers.update(guards(bytes(page.body).decode(), styles="'unsafe-inline'", workers="blob:"))
    return page
