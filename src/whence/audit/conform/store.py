"""Ask any store for a client history: Maelstrom's workloads txn-rw-register and txn-list-append.

Clients send `{"type": "txn", "txn": [["r", 1, null], ["w", 1, 6]]}`, answered by `txn_ok` with the values that were
read, or by `error`. The kit is the network: messages between nodes arrive late and out of order. What the clients saw
is judged by `whence.audit.history`.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

from whence.audit.conform.system import ConformSettings, NoAnswer, System, decode
from whence.errors import UsageError

if TYPE_CHECKING:
    from whence.audit.history import History

DEFINITE: Final = frozenset({10, 11, 12, 14, 20, 21, 22, 30})
"""Maelstrom's error codes after which a transaction has certainly not happened; others leave it open."""


@dataclass(frozen=True)
class StoreLoad:
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


class _Store(System):
    """The nodes, with a network that delays, and the clients' questions."""

    def __init__(self, command: Sequence[str], load: StoreLoad, directory: Path) -> None:
        hold = min(1.0, load.timeout_s)
        super().__init__(command, ConformSettings(load.nodes, load.timeout_s, hold, load.timeout_s), directory)
        self.load, self.rng = load, Random(load.seed)
        self.rows: list[dict[str, Any]] = []

    def line(self, name: str, line: bytes) -> None:
        dest = decode(line, name).dest
        if dest in self.names:
            late = self.rng.random() * self.load.delay_s
            asyncio.get_running_loop().call_later(late, self._hand_over, dest, line)
        else:
            super().line(name, line)

    async def client(self, number: int) -> None:
        """One session. After an answer that leaves a transaction open it goes on as another process, as Jepsen's do."""
        rng = Random(self.load.seed * 1000 + number)
        process, name = number, self.names[number % self.load.nodes]
        for turn in range(self.load.txns):
            txn = [self._operation(rng, number, turn, i) for i in range(rng.randint(1, self.load.ops))]
            row = {"process": process, "f": "txn", "value": txn}
            self.rows.append({**row, "type": "invoke"})
            try:
                answer = await self._ask(name, {"type": "txn", "txn": txn}, errors=True, client=f"c{number + 2}")
            except NoAnswer:
                answer = {}
            if answer.get("type") == "txn_ok":
                self.rows.append({**row, "type": "ok", "value": answer.get("txn")})
            elif answer.get("code") in DEFINITE:
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


async def record(command: Sequence[str], load: StoreLoad) -> History:
    """Start the nodes, let the clients work, and return what they saw. No process is left when this returns."""
    from whence.audit.history.formats import read_jepsen

    if not command:
        raise UsageError("which store? Give the command that starts one node of it")
    with tempfile.TemporaryDirectory(prefix="whence-store-") as directory:
        store = _Store(command, load, Path(directory))
        try:
            await store.start(store.names)
            await asyncio.gather(*(store.client(n) for n in range(load.clients)))
        finally:
            await store.close()
    return read_jepsen(Path(" ".join(command)), enumerate(store.rows, 1))
