"""Ask any store for a client history: Maelstrom's workloads txn-rw-register and txn-list-append.

Nodes speak Maelstrom's format: `init`, then `{"type": "txn", "txn": [["r", 1, null], ["w", 1, 6]]}` from clients,
answered by `txn_ok` with the values that were read, or by `error`. The kit is the network: messages between nodes
arrive late and out of order. What the clients saw is judged by `whence.audit.history`.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec

from whence.audit.conform.messages import Envelope, decode
from whence.audit.conform.process import Process
from whence.audit.history import History
from whence.audit.history.formats import read_jepsen
from whence.errors import AdapterError, UsageError

DEFINITE: Final = frozenset({10, 11, 12, 14, 20, 21, 22, 30})
"""Maelstrom's error codes after which a transaction has certainly not happened; others leave it open."""


@dataclass(frozen=True)
class Load:
    """What clients do."""

    nodes: int = 3
    clients: int = 6
    txns: int = 30
    """Of each client."""
    ops: int = 3
    """Of a transaction, at most."""
    keys: int = 5
    lists: bool = False
    """Appends to lists instead of writes to registers."""
    delay_s: float = 0.05
    """A message between nodes takes up to so long."""
    timeout_s: float = 10.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= 100 or self.clients < 1 or self.txns < 1:
            raise UsageError("a store is asked with 1 to 100 nodes, and at least one client and transaction")


class Store:
    """The nodes, their network, and the clients' questions."""

    def __init__(self, command: Sequence[str], load: Load, directory: Path) -> None:
        self.command, self.load, self.directory = list(command), load, directory
        self.rng = Random(load.seed)
        self.nodes: dict[str, Process] = {}
        self.asked: dict[tuple[str, int], asyncio.Future[dict[str, Any]]] = {}
        self.failed: AdapterError | None = None
        self.rows: list[dict[str, Any]] = []
        self.number = 0

    async def start(self) -> None:
        names = [f"n{i + 1}" for i in range(self.load.nodes)]
        for name in names:
            errors = self.directory / f"{name}.err"
            self.nodes[name] = await Process.start(name, self.command, errors, self._line, self._fail)
        for name in names:
            body = {"type": "init", "node_id": name, "node_ids": names}
            if await self.ask("c0", name, body) is None:
                raise AdapterError(f"{name} does not answer `init`")

    async def close(self) -> None:
        for node in self.nodes.values():
            await node.kill()

    async def ask(self, client: str, node: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """The answer's body; None: there was none in time."""
        self.number += 1
        message = {"src": client, "dest": node, "body": {**body, "msg_id": self.number}}
        answer = self.asked[client, self.number] = asyncio.get_running_loop().create_future()
        self.nodes[node].write(msgspec.json.encode(message) + b"\n")
        with suppress(TimeoutError):
            return await asyncio.wait_for(answer, self.load.timeout_s)
        if self.failed is not None:
            raise self.failed
        return None

    def _line(self, name: str, line: bytes) -> None:
        said: Envelope = decode(line, name)
        if said.dest in self.nodes:
            loop = asyncio.get_running_loop()
            loop.call_later(self.rng.random() * self.load.delay_s, self.nodes[said.dest].write, line)
            return
        waiting = self.asked.pop((said.dest, said.body.get("in_reply_to", -1)), None)
        if waiting is not None and not waiting.done():
            waiting.set_result(said.body)

    def _fail(self, error: AdapterError) -> None:
        self.failed = error
        for waiting in self.asked.values():
            if not waiting.done():
                waiting.set_exception(error)

    async def client(self, number: int) -> None:
        """One session. After an answer that leaves a transaction open it goes on as another process, as Jepsen's do."""
        rng = Random(self.load.seed * 1000 + number)
        process, name = number, f"c{number + 1}"
        node = f"n{number % self.load.nodes + 1}"
        for turn in range(self.load.txns):
            txn = [self._operation(rng, number, turn, i) for i in range(rng.randint(1, self.load.ops))]
            row = {"process": process, "f": "txn", "value": txn}
            self.rows.append({**row, "type": "invoke"})
            answer = await self.ask(name, node, {"type": "txn", "txn": txn})
            if answer is not None and answer.get("type") == "txn_ok":
                self.rows.append({**row, "type": "ok", "value": answer.get("txn")})
            elif answer is not None and answer.get("code") in DEFINITE:
                self.rows.append({**row, "type": "fail"})
            else:
                self.rows.append({**row, "type": "info"})
                process += self.load.clients

    def _operation(self, rng: Random, client: int, turn: int, i: int) -> list[Any]:
        key = rng.randrange(self.load.keys)
        if rng.random() < 0.5:
            return ["r", key, None]
        value = (client * self.load.txns + turn) * self.load.ops + i + 1
        return ["append" if self.load.lists else "w", key, value]


async def record(command: Sequence[str], load: Load) -> History:
    """Start the nodes, let the clients work, and return what they saw. No process is left when this returns."""
    if not command:
        raise UsageError("which store? Give the command that starts one node of it")
    with tempfile.TemporaryDirectory(prefix="whence-store-") as directory:
        store = Store(command, load, Path(directory))
        try:
            await store.start()
            await asyncio.gather(*(store.client(n) for n in range(load.clients)))
        finally:
            await store.close()
    return read_jepsen(Path(" ".join(command)), enumerate(store.rows, 1))
