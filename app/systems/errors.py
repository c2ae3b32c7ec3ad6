"""What the libraries raise and what a status code says, as the three port errors (D4)."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from json import JSONDecodeError

import aiohttp
import httpx
from aiohttp.http_exceptions import HttpProcessingError
from pydantic import ValidationError

from app.orders.ports import InvalidAnswer, SystemRefused, SystemUnavailable
from app.resilience.retry_after import retry_after
from app.text import legible

TRANSIENT_REFUSALS = {408, 429}


@dataclass(frozen=True, slots=True)
class Meaning:
    """The port error an exception becomes, its kind, and whether the system may have seen the call."""

    error: type[SystemUnavailable | InvalidAnswer]
    kind: str
    call_made: bool


def _not_made(kind: str) -> Meaning:
    return Meaning(SystemUnavailable, kind, call_made=False)


def _cut(kind: str) -> Meaning:
    return Meaning(SystemUnavailable, kind, call_made=True)


def _broken(kind: str) -> Meaning:
    return Meaning(InvalidAnswer, kind, call_made=True)


# The first row that fits counts: what is special stands above what is general. aiohttp's own exceptions come first,
# because httpx-aiohttp shows refused, reset and lost connections alike as ConnectTimeout, with the truth as its cause.
MEANINGS: tuple[tuple[type[Exception], Meaning], ...] = (
    (aiohttp.ClientSSLError, _not_made("tls")),
    (aiohttp.ServerFingerprintMismatch, _not_made("tls")),
    (aiohttp.ClientConnectorDNSError, _not_made("dns")),
    (aiohttp.ClientConnectorError, _not_made("connect")),
    (aiohttp.ConnectionTimeoutError, _not_made("connect_timeout")),
    (aiohttp.ServerTimeoutError, _cut("read_timeout")),
    (aiohttp.InvalidURL, _not_made("unsendable")),
    (aiohttp.NonHttpUrlClientError, _not_made("unsendable")),
    (aiohttp.ClientResponseError, _broken("not_http")),
    (aiohttp.ClientPayloadError, _cut("cut_short")),
    (aiohttp.ClientError, _cut("connection_lost")),
    (HttpProcessingError, _broken("not_http")),
    (httpx.ConnectTimeout, _not_made("connect_timeout")),
    (httpx.PoolTimeout, _not_made("connect_timeout")),
    (httpx.TimeoutException, _cut("read_timeout")),
    (httpx.ConnectError, _not_made("connect")),
    (httpx.ProxyError, _not_made("connect")),
    (httpx.UnsupportedProtocol, _not_made("unsendable")),
    (httpx.LocalProtocolError, _not_made("unsendable")),
    (httpx.InvalidURL, _not_made("unsendable")),
    (httpx.CookieConflict, _not_made("unsendable")),
    (httpx.RemoteProtocolError, _broken("not_http")),
    (httpx.TooManyRedirects, _broken("redirect")),
    (httpx.HTTPStatusError, _broken("status")),
    (httpx.DecodingError, _broken("unreadable")),
    (httpx.StreamError, _broken("unreadable")),
    (httpx.HTTPError, _cut("connection_lost")),
    (ValidationError, _broken("unexpected_answer")),
    (UnicodeEncodeError, _not_made("unsendable")),
    (UnicodeError, _broken("unreadable")),
    (JSONDecodeError, _broken("unreadable")),
    (TimeoutError, _cut("read_timeout")),
    (OSError, _cut("connection_lost")),
)


@contextmanager
def port_errors(system: str, operation: str) -> Iterator[None]:
    """Raise a library's exception as the port error it means; whatever is not in the table is our bug and passes."""
    try:
        yield
    except Exception as error:
        cause = error.__cause__ if isinstance(error.__cause__, aiohttp.ClientError) else error
        for kind_of_error, meaning in MEANINGS:
            if isinstance(cause, kind_of_error):
                message = f"{operation}: {_told(cause, meaning)}"
                raise meaning.error(system, message, kind=meaning.kind, call_made=meaning.call_made) from error
        raise


def _told(error: Exception, meaning: Meaning) -> str:
    """Words for the error; what the system sent is not quoted, it may hold secrets."""
    if isinstance(error, ValidationError):
        wrong = error.errors(include_input=False, include_url=False, include_context=False)
        return legible("; ".join(f"{'.'.join(map(str, each['loc'])) or 'answer'}: {each['msg']}" for each in wrong))
    return legible(f"{meaning.kind} ({type(error).__name__}{'' if meaning.call_made else f': {error}'})")


def check_status(system: str, operation: str, status: int, headers: Mapping[str, str]) -> None:
    """Raise SystemUnavailable for 408, 429 and 5xx, SystemRefused for other 4xx, InvalidAnswer for all but 2xx."""
    message, kind = f"{operation}: HTTP {status}", f"http_{status}"
    match status // 100:
        case 2:
            return
        case 5:
            raise SystemUnavailable(system, message, kind=kind, retry_after=retry_after(headers))
        case 4 if status in TRANSIENT_REFUSALS:
            raise SystemUnavailable(system, message, kind=kind, retry_after=retry_after(headers))
        case 4:
            raise SystemRefused(system, message, kind=kind)
        case 3:
            raise InvalidAnswer(system, f"{message}, and redirects are not followed", kind="redirect")
        case _:
            raise InvalidAnswer(system, message, kind=kind)
