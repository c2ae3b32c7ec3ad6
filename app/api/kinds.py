"""What can go wrong over HTTP: one entry for each kind of problem, which is also its page at `/problems/{slug}`."""

from enum import Enum, unique
from http import HTTPStatus

SAME_ANSWER = "No. The same request gets the same answer."
AS_IT_IS = "Yes, as it is, after the seconds that Retry-After names."


@unique
class Kind(Enum):
    """A kind of problem: its status and title, what it means, what to do about it, and whether to repeat the request.

    A problem is raised with one of these, so that each has a page.
    """

    def __init__(self, status: HTTPStatus, title: str, meaning: str, cure: str, repeat: str) -> None:
        self.status, self.title, self.meaning, self.cure, self.repeat = status, title, meaning, cure, repeat

    @property
    def slug(self) -> str:
        return self.name.lower().replace("_", "-")

    MALFORMED = (
        HTTPStatus.BAD_REQUEST,
        "Not a request",
        "What arrived could not be read as HTTP/1.1, so that nothing of it was looked at. The connection is closed.",
        "Check that the client speaks plain HTTP to this port, and not TLS or HTTP/2; a proxy in front does those.",
        SAME_ANSWER,
    )
    CUT_SHORT = (
        HTTPStatus.BAD_REQUEST,
        "Body cut short",
        "The connection ended before the whole body had arrived. Nothing was saved.",
        "Find out what ends the connection: a client's timeout, or a proxy's.",
        "Yes, with the same Idempotency-Key.",
    )
    IDEMPOTENCY_KEY_MALFORMED = (
        HTTPStatus.BAD_REQUEST,
        "Malformed Idempotency-Key",
        "The header Idempotency-Key is there, and it is not one value of visible ASCII characters.",
        "Send one key of up to 255 characters for each order, such as a UUID, in double quotes or bare.",
        SAME_ANSWER,
    )
    UNAUTHORIZED = (
        HTTPStatus.UNAUTHORIZED,
        "API key needed",
        "The request carries no API key, or one that this service does not know.",
        (
            "Send the header Authorization: Bearer and the key. Who runs the service hands keys out: "
            "auth.keys holds the SHA-256 of each."
        ),
        SAME_ANSWER,
    )
    FORBIDDEN = (
        HTTPStatus.FORBIDDEN,
        "Not allowed with this API key",
        "The key is known, and what it may do does not cover this: the scope or the customer is missing.",
        "Use a key with the scope that the detail names, or have this key's scopes or customers extended in auth.keys.",
        SAME_ANSWER,
    )
    OTHER_SITE = (
        HTTPStatus.FORBIDDEN,
        "Sent for another site's page",
        (
            "No API key is asked for here, so that any page could act through the browser of whoever reaches this "
            "service: what changes something and comes from a page that is not the service's own is refused."
        ),
        (
            "Open the service's pages at its own address. Where a proxy gives it another one, set api.public_url. "
            "For pages of other sites ask for keys (auth.mode)."
        ),
        SAME_ANSWER,
    )
    NOT_FOUND = (
        HTTPStatus.NOT_FOUND,
        "Not found",
        (
            "There is nothing at this address: the path is misspelt, the id was never given, "
            "or what it names belongs to a customer that the API key may not act for."
        ),
        (
            "Compare the path with the API's description at /docs, and the id with the answer that gave it. "
            "Paths do not end in a slash."
        ),
        SAME_ANSWER,
    )
    METHOD_NOT_ALLOWED = (
        HTTPStatus.METHOD_NOT_ALLOWED,
        "Method not allowed",
        "The address exists, and it does not understand this method.",
        "Use one of the methods that the Allow header names.",
        SAME_ANSWER,
    )
    REQUEST_TIMEOUT = (
        HTTPStatus.REQUEST_TIMEOUT,
        "Body too slow",
        "The body did not arrive within the time that a body may take (api.body_timeout). Nothing was saved.",
        "Send the body at once after the head. On slow networks let a proxy near the client collect it first.",
        "Yes, with the same Idempotency-Key.",
    )
    WRONG_STATE = (
        HTTPStatus.CONFLICT,
        "Not possible in this state",
        (
            "What was asked for exists, and its state does not allow this: an order whose payment is registered cannot "
            "be cancelled, a task that has not failed cannot be retried."
        ),
        "Read the order or the task again, and decide by the state it is in now.",
        SAME_ANSWER,
    )
    NOT_CALLED_HERE = (
        HTTPStatus.CONFLICT,
        "This replica does not call the system",
        (
            "The replica that answered works on no tasks of the system (with the role api: of none), and does not call "
            "it: to change its breaker would change nothing."
        ),
        "Send the request to each worker: it serves /ops itself, and its breakers are its own.",
        "Yes, at a worker.",
    )
    IDEMPOTENCY_KEY_IN_FLIGHT = (
        HTTPStatus.CONFLICT,
        "The first request is still being worked on",
        "Another request with the same Idempotency-Key has not been answered yet.",
        "Wait and repeat the request: it then gets the answer of the first one, and no second order.",
        AS_IT_IS,
    )
    TOO_LARGE = (
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "Body too large",
        "The body is larger than this service takes (api.max_body_bytes). The rest of it was not read.",
        "Split the order, or have the limit raised.",
        SAME_ANSWER,
    )
    UNSUPPORTED_MEDIA_TYPE = (
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        "JSON needed",
        "The Content-Type header is missing or names something other than JSON.",
        "Send JSON with the header Content-Type: application/json.",
        SAME_ANSWER,
    )
    MISDIRECTED = (
        HTTPStatus.MISDIRECTED_REQUEST,
        "Not this service's name",
        (
            "The service is for this machine only and asks for no API key, and the request's Host header names another "
            "one: a page may have given its own name this machine's address."
        ),
        "Ask for localhost or 127.0.0.1. Where a proxy gives the service another name, set api.public_url.",
        SAME_ANSWER,
    )
    INVALID_REQUEST = (
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "Invalid request",
        (
            "The body, the path or the query does not fit the API's description. The member errors names each wrong "
            "place by a JSON pointer, such as /items/0/price, and says what is wrong there."
        ),
        "Correct the places that errors names. Unknown fields are refused, too: they are usually misspelt ones.",
        SAME_ANSWER,
    )
    IDEMPOTENCY_KEY_REUSED = (
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "Idempotency-Key used before",
        "This Idempotency-Key came before with another body, and one key stands for one order.",
        "Make a new key for each new order; keep it only for repetitions of the same request.",
        SAME_ANSWER,
    )
    HEAD_TOO_LARGE = (
        HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
        "Head too large",
        "The request line and the headers together are larger than this service takes. The connection is closed.",
        "Send fewer or shorter headers: cookies that grew, or headers that each proxy adds to, are the usual cause.",
        SAME_ANSWER,
    )
    INTERNAL_ERROR = (
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "Our mistake",
        "The service met something that it was not written for. Its log tells the whole story.",
        "Report the problem's requestId to who runs the service: all log lines of the request carry it as request_id.",
        "Only with an Idempotency-Key, or when reading: it is not known how far the request came.",
    )
    UNAVAILABLE = (
        HTTPStatus.SERVICE_UNAVAILABLE,
        "Not available now",
        (
            "The service cannot answer for the moment, and the detail says why: it has as many requests as it takes "
            "at a time, it is stopping, or what it needs does not answer."
        ),
        "Wait and repeat. An order that was answered with 202 is safe meanwhile and goes on by itself.",
        "Yes, after the seconds that Retry-After names; an order with the same Idempotency-Key.",
    )
