"""One client of a system under test: A asks, B answers what it delivers, C listens. Each writes a log of what it did.

    python -m scorecard.client '{"system": "nats", "role": "A", "log": "A.log", ...}'

Lines on standard input: warm, ask FIRST COUNT RATE, reconnect, stall SECONDS, quit. On standard output: ready, done.
A line of the log is `[monotonic ns, kind, value]`, with the kinds pub (before the call), fail (the call raised), dlv,
note and err. The times are for latencies and pictures only: order is that of the lines.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import suppress
from pathlib import Path


class Log:
    def __init__(self, path: str) -> None:
        self._file = Path(path).open("a", buffering=1)  # noqa: SIM115

    def __call__(self, kind: str, value: str) -> None:
        self._file.write(f'[{time.monotonic_ns()}, "{kind}", {json.dumps(value)}]\n')


class App:
    """What the application does; adapters call `got` for every delivery, in the order in which the system delivers."""

    def __init__(self, role: str, log: Log) -> None:
        self.role = role
        self.log = log
        self.stall = 0.0

    def got(self, value: str) -> str | None:
        """A delivery. The answer to publish now, or None. A only asks: what it hears is not logged."""
        if self.role == "A":
            return None
        self.log("dlv", value)
        if self.stall and self.role == "C":
            self.stall, pause = 0.0, self.stall
            time.sleep(pause)
        return "r" + value[1:] if self.role == "B" and value[0] == "q" else None


async def main() -> None:
    from scorecard.adapters import ADAPTERS

    cfg = json.loads(sys.argv[1])
    app = App(cfg["role"], Log(cfg["log"]))
    adapter = ADAPTERS[cfg["system"]](app, cfg)
    await asyncio.wait_for(adapter.open(), 40)
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    tasks: set[asyncio.Task] = set()
    warm = 0

    async def ask(first: int, count: int, rate: float) -> None:
        start = time.monotonic()
        for n in range(count):
            wait = start + n / rate - time.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
            if adapter.pipelined:
                tasks.add(asyncio.create_task(adapter.publish(f"q{first + n}")))
            else:
                await adapter.publish(f"q{first + n}")
        print("done", flush=True)

    while line := (await reader.readline()).decode().split():
        if line[0] == "warm":
            warm += 1
            await adapter.publish(f"w{app.role}{warm}")
        elif line[0] == "ask":
            tasks.add(asyncio.create_task(ask(int(line[1]), int(line[2]), float(line[3]))))
        elif line[0] == "stall":
            app.stall = float(line[1])
        elif line[0] == "reconnect":
            app.log("note", "reconnect")
            try:
                await asyncio.wait_for(adapter.reconnect(), 20)
            except Exception as error:
                app.log("err", f"reconnect: {type(error).__name__} {error}"[:200])
            app.log("note", "reconnected")
        elif line[0] == "quit":
            break
    with suppress(Exception):
        await asyncio.wait_for(adapter.close(), 3)


if __name__ == "__main__":
    asyncio.run(main())
