"""The pages that the `type` of a problem leads to: what it means, what to do, and whether to repeat the request."""

from html import escape

from fastapi import APIRouter
from starlette.responses import HTMLResponse

from app.api.browser import guards
from app.api.kinds import Kind
from app.api.problems import not_found

STYLE = """
:root { color-scheme: light dark; font: 1rem/1.6 system-ui, sans-serif; }
body { max-width: 42rem; margin: 3rem auto; padding: 0 1rem; }
h1 { line-height: 1.2; }
dt { font-weight: 600; margin-top: 1rem; }
dd { margin: 0; }
code { font-size: 1.05em; }
"""

router = APIRouter(prefix="/problems", include_in_schema=False)


@router.get("")
async def list_problems() -> HTMLResponse:
    """All kinds of problem; the links are relative, so that they hold behind any prefix."""
    rows = "".join(
        f'<dt><a href="problems/{kind.slug}">{escape(kind.title)}</a> <code>{kind.status.value}</code></dt>'
        f"<dd>{escape(kind.meaning)}</dd>"
        for kind in Kind
    )
    return _page("Problems", f"<dl>{rows}</dl>")


@router.get("/{slug}")
async def show_problem(slug: str) -> HTMLResponse:
    """One kind of problem; a 404 problem where there is none of this name."""
    found = next((kind for kind in Kind if kind.slug == slug), None)
    if found is None:
        raise not_found(f"problem {slug}; GET /problems lists them")
    told = {
        "Status": f"{found.status.value} {found.status.phrase}",
        "What it means": found.meaning,
        "What to do": found.cure,
        "Repeat the request?": found.repeat,
    }
    rows = "".join(f"<dt>{escape(term)}</dt><dd>{escape(text)}</dd>" for term, text in told.items())
    return _page(found.title, f'<dl>{rows}</dl><p><a href="../problems">All problems</a></p>')


def _page(title: str, content: str) -> HTMLResponse:
    html = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>"
        f"<body><h1>{escape(title)}</h1>{content}</body></html>"
    )
    return HTMLResponse(html, headers=guards(html))
