"""The control that has a total order: every line of a client goes to all clients in the order of its arrival."""

from __future__ import annotations

import asyncio
import sys


async def main(address: str) -> None:
    writers: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        while line := await reader.readline():
            for each in writers:
                each.write(line)
        writers.discard(writer)
        writer.close()

    async with await asyncio.start_server(serve, address, 5601) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
