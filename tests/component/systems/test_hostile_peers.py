import asyncio
import socket
from dataclasses import replace

import pytest

from app.orders.ports import Confirmation, InvalidAnswer, SystemRefused, SystemUnavailable
from app.systems.insurance.adapter import InsuranceAdapter
from app.systems.system import open_system
from tests.component.systems import hostile
from tests.component.systems.hostile import Answer, response, say, serve
from tests.component.systems.orders import ORDER
from tests.component.systems.sections import PATIENT, QUICK, section

PENDING = b'{"status":"PENDING","applicationId":"a-1"}'
DEEP = b'{"status":"PENDING","other":' + b"[" * 10_000 + b"]" * 10_000 + b"}"

UNAVAILABLE: dict[str, tuple[Answer, str]] = {
    "hangs": (hostile.hang, "read_timeout"),
    "drips its body": (hostile.drip_body, "timeout"),
    "drips a header": (hostile.drip_headers, "timeout"),
    "goes on with 1xx": (hostile.endless_continue, "timeout"),
    "hangs after the head": (say(response(length=10)), "read_timeout"),
    "closes": (hostile.close, "connection_lost"),
    "resets": (hostile.reset, "connection_lost"),
    "cuts its head short": (hostile.cut_short(b"HTTP/1.1 200 OK\r\nContent-"), "connection_lost"),
    "cuts its body short": (hostile.cut_short(response(PENDING, length=1_000)), "cut_short"),
    "cuts its chunks short": (hostile.cut_short(hostile.CHUNKED + b"fff\r\n{"), "cut_short"),
    "answers 500": (say(response(b"\x00" * 5_000_000, "500 Oops")), "http_500"),
    "answers 503": (say(response(status="503 Closed", Retry_After="7")), "http_503"),
    "answers 429": (say(response(status="429 Slow Down", Retry_After="7")), "http_429"),
    "answers 408": (say(response(status="408 Timeout")), "http_408"),
}
REFUSED: dict[str, tuple[Answer, str]] = {
    f"answers {code}": (say(response(b"\xff" * 100_000, f"{code} No")), f"http_{code}")
    for code in (400, 401, 403, 404, 409, 410, 422, 425, 451)
}
INVALID: dict[str, tuple[Answer, str]] = {
    "speaks no HTTP": (say(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"), "not_http"),
    "sends noise": (say(bytes(range(256)) * 40), "not_http"),
    "sends headers for ever": (hostile.endless_headers, "not_http"),
    "sends one header for ever": (hostile.endless_header, "not_http"),
    "drips a status": (hostile.drip_status, "not_http"),
    "sends a body for ever": (hostile.endless_body, "too_large"),
    "announces a huge body": (hostile.flood(response(length=10**12), b" " * 10_000), "too_large"),
    "sends a gzip bomb": (hostile.gzip_bomb, "compressed"),
    "sends HTML": (say(response(b"<html>Welcome</html>", Content_Type="text/html")), "unexpected_answer"),
    "sends nothing": (say(response()), "unexpected_answer"),
    "redirects": (say(response(status="302 Found", Location="http://169.254.0.1/")), "redirect"),
    "answers 304": (say(response(status="304 Not Modified")), "redirect"),
    "answers 101": (say(b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"), "http_101"),
    "contradicts its length": (
        say(hostile.CHUNKED[:-2] + b"Content-Length: 3\r\n\r\n2\r\n{}\r\n0\r\n\r\n"),
        "not_http",
    ),
    "answers 999": (say(response(status="999 What")), "http_999"),
    "sends an unknown status": (say(response(b'{"status":"MAYBE"}')), "unexpected_answer"),
    "sends a wrong type": (say(response(b'{"status":true}')), "unexpected_answer"),
    "sends NaN": (say(response(b'{"status":NaN}')), "unexpected_answer"),
    "sends a list": (say(response(b"[]")), "unexpected_answer"),
    "nests 10,000 deep": (say(response(DEEP)), "unexpected_answer"),
    "sends Latin-1 as UTF-8": (say(response(b'{"status":"PENDING","reason":"caf\xe9"}')), "unexpected_answer"),
    "sends a lone surrogate": (say(response(b'{"status":"PENDING","reason":"\\ud800"}')), "unexpected_answer"),
}
ALL = [
    pytest.param(answer, error, kind, id=name)
    for error, peers in ((SystemUnavailable, UNAVAILABLE), (SystemRefused, REFUSED), (InvalidAnswer, INVALID))
    for name, (answer, kind) in peers.items()
]


@pytest.mark.rule("TO-X1", "RE-X2")
@pytest.mark.parametrize(("answer", "error", "kind"), ALL)
async def test_each_bad_peer_ends_as_its_own_port_error(
    answer: Answer, error: type[SystemUnavailable | SystemRefused | InvalidAnswer], kind: str
) -> None:
    """Whatever a peer does, the call ends at a limit as one port error with a kind, and gives its connection back."""
    timeouts = QUICK if kind in {"read_timeout", "timeout"} else PATIENT
    async with (
        serve(answer) as peer,
        open_system("insurance", section(peer.url, **timeouts), InsuranceAdapter) as system,
        asyncio.timeout(30),
    ):
        with pytest.raises(error) as raised:
            await system.adapter.confirmation(ORDER, budget=20)
        assert raised.value.kind == kind
        assert raised.value.system == "insurance"
        assert raised.value.call_made
        assert len(str(raised.value)) < 400
        assert len(peer.received) == 1
        assert system.snapshot().connections_in_use == 0


@pytest.mark.parametrize("answer", [hostile.endless_trailers, hostile.endless_chunk_extension])
async def test_what_surrounds_a_chunked_body_is_bounded(answer: Answer) -> None:
    """Trailers or chunk extensions without end do not hold a call beyond its deadline."""
    async with (
        serve(answer) as peer,
        open_system("insurance", section(peer.url, **QUICK), InsuranceAdapter) as system,
        asyncio.timeout(30),
    ):
        with pytest.raises((SystemUnavailable, InvalidAnswer)):
            await system.adapter.confirmation(ORDER, budget=20)
        assert system.snapshot().connections_in_use == 0


async def test_what_the_peer_sent_is_not_quoted() -> None:
    """The text of an error holds nothing of a body or a header, which may be secret."""
    secret = b'{"status":"s3cret","applicationId":"s3cret"}'
    for answer in (response(secret), response(secret, "500 s3cret"), b"HTTP/1.1 200 OK\r\nX: s3cret\x00\r\n\r\n"):
        async with serve(say(answer)) as peer, open_system("insurance", section(peer.url), InsuranceAdapter) as system:
            with pytest.raises((SystemUnavailable, InvalidAnswer)) as raised:
                await system.adapter.confirmation(ORDER, budget=20)
        assert "s3cret" not in str(raised.value)


@pytest.mark.rule("TO-3")
async def test_the_callers_budget_ends_the_call() -> None:
    """A caller with little time left gets SystemUnavailable when that is over, whatever the system's own timeouts."""
    async with serve(hostile.hang) as peer:
        async with open_system("insurance", section(peer.url), InsuranceAdapter) as system, asyncio.timeout(8):
            with pytest.raises(SystemUnavailable) as raised:
                await system.adapter.confirmation(ORDER, budget=0.3)
            assert raised.value.kind == "timeout"
            with pytest.raises(SystemUnavailable) as raised:
                await system.adapter.confirmation(ORDER, budget=0.05)
        assert not raised.value.call_made
        assert len(peer.received) == 1


@pytest.mark.filterwarnings("ignore:Sending a large body directly:ResourceWarning")
async def test_a_peer_that_never_reads_holds_nobody() -> None:
    """A request too large for the buffers of a peer that does not read ends at the deadline as well."""
    heavy = replace(ORDER, items=(replace(ORDER.items[0], sku="s" * 20_000_000),))
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        peer = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        async with open_system("insurance", section(peer, **QUICK), InsuranceAdapter) as system, asyncio.timeout(30):
            with pytest.raises(SystemUnavailable) as raised:
                await system.adapter.apply(heavy, key="k-1", budget=20)
            assert system.snapshot().connections_in_use == 0
    assert (raised.value.kind, raised.value.call_made) == ("timeout", True)


async def test_a_refused_connection_is_a_call_not_made() -> None:
    """Nobody listens: the system cannot have seen the call."""
    async with serve(hostile.hang) as peer:
        pass
    async with open_system("insurance", section(peer.url), InsuranceAdapter) as system:
        with pytest.raises(SystemUnavailable) as raised:
            await system.adapter.confirmation(ORDER, budget=20)
    assert (raised.value.kind, raised.value.call_made) == ("connect", False)


async def test_an_unknown_host_is_a_call_not_made() -> None:
    """A name that does not resolve is told apart from a system that does not listen."""
    async with open_system("insurance", section("http://insurance.invalid"), InsuranceAdapter) as system:
        with pytest.raises(SystemUnavailable) as raised:
            await system.adapter.confirmation(ORDER, budget=20)
    assert (raised.value.kind, raised.value.call_made) in {("dns", False), ("connect_timeout", False)}


async def test_retry_after_reaches_the_caller() -> None:
    """What the system asked to be left alone for is part of the error."""
    async with (
        serve(say(response(status="503 Closed", Retry_After="7"))) as peer,
        open_system("insurance", section(peer.url), InsuranceAdapter) as system,
    ):
        with pytest.raises(SystemUnavailable) as raised:
            await system.adapter.confirmation(ORDER, budget=20)
    assert raised.value.retry_after == 7


async def test_an_ordinary_answer_after_informational_ones() -> None:
    """A few 1xx before the answer, unknown fields and a chunked body are all within HTTP and the contract."""
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 3
    body = b'{"status":"REJECTED","reason":"no\\u0000 \\u001b[31m","new":{"a":1}}'
    answer = early + hostile.CHUNKED + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    async with serve(say(answer)) as peer, open_system("insurance", section(peer.url), InsuranceAdapter) as system:
        confirmation = await system.adapter.confirmation(ORDER, budget=20)
    assert confirmation == Confirmation("REJECTED", "no� �[31m")
