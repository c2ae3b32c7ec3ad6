"""What OpenAPI says of the headers of requests, and of answers: whoever declares an operation names what it has."""

from http import HTTPStatus
from typing import Any

from app.api.kinds import Kind
from app.api.problems import MEDIA_TYPE

Answers = dict[int | str, dict[str, Any]]
"""What FastAPI wants as `responses`: what OpenAPI says of an answer, by its status."""


def _text(description: str, example: str, longest: int = 255, **more: Any) -> dict[str, Any]:
    schema = {"type": "string", "minLength": 1, "maxLength": longest, **more}
    return {"description": description, "schema": schema, "example": example}


def _seconds(description: str) -> dict[str, Any]:
    return {"description": description, "schema": {"type": "integer", "minimum": 0, "maximum": 86_400}, "example": 5}


HEADERS: dict[str, dict[str, Any]] = {
    "ETag": _text("Names this state of what was asked for; for If-None-Match.", '"6c1f1a526d3c4f438d7e0a6a3c2f9b11"'),
    "Idempotent-Replayed": _text("Present when this is the answer to an earlier request.", "true", pattern="^true$"),
    "Link": _text("Where the next page is (RFC 8288); the last one has none.", '</orders?cursor=41>; rel="next"', 2048),
    "Location": _text("The address of what was made.", "/orders/42"),
    "Preference-Applied": _text("Which of the request's preferences was honoured (RFC 7240).", "wait=10"),
    "Retry-After": _seconds("Come back in so many seconds."),
    "WWW-Authenticate": _text("What is wanted in the Authorization header.", "Bearer"),
    "X-Request-ID": _text("Names this request in the service's logs.", "8e03978e-40d5-43e8-bc93-6894a57f9324"),
}
"""As OpenAPI has them under `components`."""

HEADERS_OF = {
    Kind.UNAUTHORIZED: ("WWW-Authenticate",),
    Kind.IDEMPOTENCY_KEY_IN_FLIGHT: ("Retry-After",),
    Kind.UNAVAILABLE: ("Retry-After",),
}
"""The headers that a kind of problem comes with."""


def parameter(name: str, description: str, example: str, *, required: bool = False, **schema: Any) -> dict[str, Any]:
    """A header of requests; `schema` limits its text where anything else is refused.

    The example stands in the schema: from anywhere else /docs would fill it in and send it with each request.
    """
    told = {"description": description, "schema": {"type": "string", **schema, "examples": [example]}}
    return {"name": name, "in": "header", **({"required": True} if required else {}), **told}


REQUEST_ID = parameter(
    "X-Request-ID",
    "The caller's own name for the request, 1 to 128 visible ASCII characters; any other is replaced.",
    "8e03978e-40d5-43e8-bc93-6894a57f9324",
)
"""What every request may carry."""


def answers(status: HTTPStatus, description: str, *headers: str, leads_to: tuple[str, ...] = ()) -> Answers:
    """An answer of an operation, for OpenAPI; X-Request-ID goes without saying.

    `headers` are names in HEADERS. `leads_to` names operations that take the answer's `orderId` as `order_id`.
    """
    follow = {"parameters": {"order_id": "$response.body#/orderId"}}
    links = {name: {"operationId": name, **follow} for name in leads_to}
    return {int(status): {"description": description, **given(*headers), **({"links": links} if links else {})}}


def problem_answers(*kinds: Kind) -> Answers:
    """The error answers of an operation, for OpenAPI; those that all operations may have are added in the document."""
    answers: Answers = {}
    for kind in kinds:
        media = {"schema": {"$ref": "#/components/schemas/Problem"}, "examples": {}}
        answer = answers.setdefault(
            int(kind.status), {"description": kind.status.phrase, "headers": {}, "content": {MEDIA_TYPE: media}}
        )
        answer["headers"] |= given(*HEADERS_OF.get(kind, ()))["headers"]
        answer["content"][MEDIA_TYPE]["examples"][kind.slug] = {"$ref": f"#/components/examples/{kind.slug}"}
    return answers


def given(*headers: str) -> dict[str, Any]:
    return {"headers": {name: {"$ref": f"#/components/headers/{name}"} for name in headers}}
