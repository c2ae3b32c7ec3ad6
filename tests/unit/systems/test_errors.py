import json
from collections.abc import Callable
from inspect import isclass
from types import ModuleType
from typing import Any

import aiohttp
import aiohttp.client_exceptions
import aiohttp.http_exceptions
import httpx
import pytest
from httpx_aiohttp.transport import AIOHTTP_EXC_MAP
from pydantic import TypeAdapter, ValidationError

from app.orders.ports import InvalidAnswer, SystemRefused, SystemUnavailable
from app.systems.errors import MEANINGS, check_status, port_errors

PORT_ERRORS = (SystemUnavailable, SystemRefused, InvalidAnswer)


def exceptions(module: ModuleType, root: type[Exception]) -> list[type[Exception]]:
    return [each for each in vars(module).values() if isclass(each) and issubclass(each, root)]


def raised(error: Exception) -> BaseException:
    """What a call ends with when the library raises `error`."""
    with pytest.raises(Exception) as caught, port_errors("insurance", "apply"):  # noqa: PT011  any of them
        raise error
    return caught.value


def bare(kind: type[Exception]) -> Exception:
    """An exception of this class, whatever its constructor asks for."""
    error: Exception = kind.__new__(kind)
    error.__dict__.update(message="no", status=0, request_info=None, _url="no", _description=None, _conn_key=None)
    return error


def of(call: Callable[[], Any]) -> Exception:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        call()
    return caught.value


LIBRARY = [
    *exceptions(httpx, httpx.HTTPError),
    httpx.InvalidURL,
    httpx.CookieConflict,
    *exceptions(httpx, httpx.StreamError),
    *exceptions(aiohttp.client_exceptions, aiohttp.ClientError),
    *exceptions(aiohttp.http_exceptions, aiohttp.http_exceptions.HttpProcessingError),
]
OTHERS: dict[str, Exception] = {
    "json": of(lambda: json.loads("{")),
    "decoding": of(b"\xff".decode),
    "encoding": of("\ud800".encode),
    "pydantic": of(lambda: TypeAdapter(int).validate_json(b"{}")),
    "timeout": TimeoutError(),
    "socket": ConnectionResetError(),
}


def test_every_public_exception_of_httpx_is_walked() -> None:
    """No exception class that httpx names is missing from the walk."""
    assert set(exceptions(httpx, Exception)) <= set(LIBRARY)


@pytest.mark.parametrize("kind", LIBRARY, ids=lambda kind: f"{kind.__module__.split('.')[0]}.{kind.__name__}")
def test_every_library_exception_is_a_port_error(kind: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    """No exception class of httpx or aiohttp leaves an adapter; each becomes a port error with a kind of its own."""
    monkeypatch.setattr(kind, "__str__", lambda _: "no", raising=False)
    error = raised(bare(kind))
    assert isinstance(error, PORT_ERRORS)
    assert error.kind in {meaning.kind for _, meaning in MEANINGS}
    assert str(error).startswith("insurance: apply: ")


@pytest.mark.parametrize("name", OTHERS)
def test_other_exceptions_on_the_way_are_port_errors(name: str) -> None:
    """JSON, Unicode, pydantic and operating system errors are port errors too, though no library's own."""
    assert isinstance(raised(OTHERS[name]), PORT_ERRORS)


@pytest.mark.parametrize(
    "error",
    [ZeroDivisionError(), KeyError("x"), ValueError("ours"), TypeError(), RuntimeError(), AssertionError()],
    ids=lambda error: type(error).__name__,
)
def test_our_own_exceptions_pass_unchanged(error: Exception) -> None:
    """An exception that no library raises is our bug, and stays what it is."""
    assert raised(error) is error


@pytest.mark.parametrize(
    "error", [kind("insurance", "no") for kind in PORT_ERRORS], ids=lambda error: type(error).__name__
)
def test_a_port_error_passes_unchanged(error: Exception) -> None:
    """What is a port error already is not wrapped again."""
    assert raised(error) is error


def test_no_row_hides_a_later_one() -> None:
    """Each row of the table can be reached: none stands below a wider one."""
    classes = [kind for kind, _ in MEANINGS]
    hidden = [late for n, late in enumerate(classes) if any(issubclass(late, early) for early in classes[:n])]
    assert hidden == []


@pytest.mark.parametrize(
    ("cause", "kind", "call_made"),
    [
        (aiohttp.ServerDisconnectedError(), "connection_lost", True),
        (aiohttp.ClientOSError(104, "reset"), "connection_lost", True),
        (aiohttp.ConnectionTimeoutError(), "connect_timeout", False),
        (aiohttp.SocketTimeoutError(), "read_timeout", True),
        (aiohttp.ClientPayloadError(), "cut_short", True),
    ],
)
def test_the_cause_counts_not_what_the_transport_makes_of_it(
    cause: aiohttp.ClientError, kind: str, call_made: bool
) -> None:
    """Whether the call was made is read from aiohttp's exception: the transport shows most as ConnectTimeout."""
    shown = next(shown for aio, shown in AIOHTTP_EXC_MAP.items() if isinstance(cause, aio))
    error = httpx.ConnectTimeout("") if issubclass(shown, httpx.TimeoutException) else shown("")
    error.__cause__ = cause
    found = raised(error)
    assert isinstance(found, SystemUnavailable)
    assert (found.kind, found.call_made) == (kind, call_made)


def test_the_text_of_an_error_is_short_and_printable() -> None:
    """NUL, surrogates and control characters of foreign texts do not get into logs and columns."""
    error = raised(httpx.ConnectError("bad \x00\ud800\x1b[31m\n" + "x" * 10_000))
    assert len(str(error)) < 400
    assert str(error).isprintable()
    str(error).encode()


def test_a_pydantic_error_names_the_field_and_not_its_content() -> None:
    """The operator sees which field broke the contract, but not what stood in it."""
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(dict[str, int]).validate_python({"amount": "s3cret"})
    text = str(raised(caught.value))
    assert "amount" in text
    assert "s3cret" not in text


def test_every_status_code_has_its_meaning() -> None:
    """2xx passes; 408, 429 and 5xx mean later, other 4xx no, and all else that the contract is broken."""
    meanings = {status: meaning(status) for status in range(100, 1_000)}
    later = {408, 429, *range(500, 600)}
    assert {status for status, found in meanings.items() if found is None} == set(range(200, 300))
    assert {status for status, found in meanings.items() if found is SystemUnavailable} == later
    assert {status for status, found in meanings.items() if found is SystemRefused} == set(range(400, 500)) - later
    assert {status for status, found in meanings.items() if found is InvalidAnswer} == {
        *range(100, 200),
        *range(300, 400),
        *range(600, 1_000),
    }


def meaning(status: int) -> type[Exception] | None:
    try:
        check_status("insurance", "apply", status, {"retry-after": "7"})
    except PORT_ERRORS as error:
        told = error
    else:
        return None
    assert told.call_made
    assert told.retry_after == (7 if isinstance(told, SystemUnavailable) else None)
    return type(told)
