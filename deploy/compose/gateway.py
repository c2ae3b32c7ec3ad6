"""Passes each connection on to one of the service's replicas: what a gateway does in production, and nothing else."""

import asyncio
import random
import socket
from contextlib import suppress

HOST, PORT = "app", 8000  # the name has an address for each replica that runs
BLOCK = 65_536


async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to any replica that takes the connection. Raises OSError when none does."""
    found = await asyncio.get_running_loop().getaddrinfo(HOST, PORT, family=socket.AF_INET, type=socket.SOCK_STREAM)
    hosts = [str(address[0]) for *_, address in found]
    random.shuffle(hosts)
    for host in hosts:
        with suppress(OSError):
            return await asyncio.open_connection(host, PORT)
    raise ConnectionRefusedError(f"no replica of {HOST} takes the connection")


async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while block := await source.read(BLOCK):
            target.write(block)
            await target.drain()
        target.write_eof()


async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        replica_reader, replica_writer = await connect()
        await asyncio.gather(copy(reader, replica_writer), copy(replica_reader, writer))
        replica_writer.close()
    writer.close()


async def main() -> None:
    async with await asyncio.start_server(relay, port=PORT) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
