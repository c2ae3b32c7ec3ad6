"""How an answer leaves: its head with the first of its body."""

import asyncio

from app.api.connection import AnswerTransport


class Sent(asyncio.Transport):
    """Keeps what was written, one entry for each packet."""

    def __init__(self) -> None:
        super().__init__()
        self.packets: list[bytes] = []
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closed
        self.packets.append(bytes(data))

    def close(self) -> None:
        self.closed = True


async def test_head_and_body_leave_together() -> None:
    sent = Sent()
    answer = AnswerTransport(sent, asyncio.get_running_loop())
    answer.write(b"head ")
    answer.write(b"body")
    answer.write(b"more")
    await asyncio.sleep(0)
    assert sent.packets == [b"head body", b"more"]


async def test_a_head_without_a_body_leaves_in_the_next_turn() -> None:
    """A stream's first event may be long in coming, and a HEAD has no body at all."""
    sent = Sent()
    answer = AnswerTransport(sent, asyncio.get_running_loop())
    answer.write(b"head")
    assert sent.packets == []
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    answer.write(b"first event")
    assert sent.packets == [b"head", b"first event"]


async def test_what_is_held_leaves_before_the_connection_is_closed() -> None:
    sent = Sent()
    answer = AnswerTransport(sent, asyncio.get_running_loop())
    answer.write(b"head")
    answer.close()
    assert (sent.packets, sent.closed) == ([b"head"], True)
    await asyncio.sleep(0)
