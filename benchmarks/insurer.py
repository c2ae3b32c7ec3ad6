"""All systems as a server that answers at once and is never what is waited for: `python -m benchmarks.insurer PORT`.

`status` is what it says of an order at the insurance.
"""

import asyncio
import sys
from collections.abc import Callable
from typing import Any

ANSWERS = (
    ("/status", '{{"status": "{status}", "applicationId": "a-1"}}'),
    ("/applications", '{{"applicationId": "a-1"}}'),
    ("/payments", '{{"id": "p-1", "status": "PAID", "paymentUrl": "http://127.0.0.1/pay"}}'),
    ("/receipts", '{{"id": "r-1", "status": "ISSUED", "fiscalNumber": "1"}}'),
    ("/bookings", '{{"id": "b-1", "status": "BOOKED", "tickets": ["t-1"]}}'),
    ("", "{{}}"),
)

Asked = Callable[[str, bytes], None]


class Insurer(asyncio.Protocol):
    """One connection; `asked` hears the path and the body of every call."""

    def __init__(self, status: str, asked: Asked) -> None:
        self._status, self._asked = status, asked
        self._received = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while b"\r\n\r\n" in self._received:
            asked, _, rest = self._received.partition(b"\r\n\r\n")
            length = int(asked.lower().partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
            if len(rest) < length:
                return
            path = asked.split(b" ", 2)[1].decode()
            self._received = rest[length:]
            self._asked(path, rest[:length])
            body = next(body for part, body in ANSWERS if part in path).format(status=self._status)
            head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            self._transport.write((head + body).encode())


async def insure(port: int, status: str, asked: Asked) -> asyncio.Server:
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: Insurer(status, asked), "127.0.0.1", port)


async def main(port: int, status: str) -> None:
    """Serve until killed."""
    server = await insure(port, status, lambda _path, _body: None)
    await server.serve_forever()


if __name__ == "__main__":
    import uvloop

    uvloop.run(main(int(sys.argv[1]), sys.argv[2]))
