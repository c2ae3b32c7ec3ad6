"""Who acts as an operator and why, and what operators have done."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response, Security
from pydantic import BaseModel, ConfigDict, Field

from app import audit
from app.api.auth import Operator, bearer_key
from app.api.body import documented, read_json
from app.api.headers import answers
from app.api.kinds import Kind
from app.api.paging import next_page
from app.api.problems import ProblemError, problem_answers
from app.api.schemas.actions import ActionPage, Reason, action_row
from app.api.wired import Wired
from app.audit import NEWEST, By

router = APIRouter(
    prefix="/ops",
    tags=["ops"],
    dependencies=[Security(bearer_key, scopes=["ops"])],
)

REASONED = documented(Reason, required=False)
"""What OpenAPI says of the body that an action may have."""


async def _hand(operator: Operator, request: Request) -> By:
    """Who acts, and the reason if the body gives one; raises 403 where a browser acts for another site's page."""
    if request.headers.get("sec-fetch-site", "none") not in {"same-origin", "none"}:
        raise ProblemError(Kind.FORBIDDEN, "Pages of other sites may not act for an operator.")
    has_body = "transfer-encoding" in request.headers or request.headers.get("content-length", "0") != "0"
    return By(operator.name, (await read_json(request, Reason)).reason if has_body else None)


Hand = Annotated[By, Depends(_hand)]


class ActionQuery(BaseModel):
    """How many actions on a page; `cursor` is from the Link of the page before."""

    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    cursor: Annotated[str | None, Field(max_length=19, pattern=r"^[0-9]{1,19}$")] = None


@router.get(
    "/actions", responses=answers(HTTPStatus.OK, "A page of actions", "Link") | problem_answers(Kind.UNAVAILABLE)
)
async def list_actions(
    wiring: Wired, wanted: Annotated[ActionQuery, Query()], request: Request, response: Response
) -> ActionPage:
    """List what operators did, the newest first. Nothing is ever deleted."""
    before = min(int(wanted.cursor), NEWEST) if wanted.cursor else NEWEST
    async with wiring.database.engine.connect() as conn:
        found = await audit.page(conn, most=wanted.limit + 1, before=before)
    if len(found) > wanted.limit:
        response.headers["Link"] = next_page(request, str(found[wanted.limit - 1].id))
    return ActionPage(actions=[action_row(action) for action in found[: wanted.limit]])
