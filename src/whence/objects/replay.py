"""Recorded editing, replayed by its authors through a cluster.

The format is that of the concurrent editing traces by Joseph Gentle (github.com/josephg/editing-traces): transactions,
each with its author, its parents and its patches `[position, deleted, inserted]`, whose positions hold in the text that
the parents make. So an author writes a transaction only when it has all of the transaction's past, and on a text that
has nothing else: what came early is held back from its editor, as it was when this was recorded.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import NamedTuple

import msgspec

from whence.errors import UsageError
from whence.objects.document import Document
from whence.objects.kernel import Event
from whence.objects.operations import Update, decode

NAME = "text"


class _Txn(msgspec.Struct):
    parents: list[int]
    agent: int
    patches: list[tuple[int, int, str]]


class _File(msgspec.Struct):
    endContent: str  # as in the file
    numAgents: int
    txns: list[_Txn]


class Txn(NamedTuple):
    """One transaction. `needs[a]`: how many of author a's transactions are in its past."""

    needs: tuple[int, ...]
    patches: list[tuple[int, int, str]]


class Recording(NamedTuple):
    """Per author the transactions in its order; and the text that all of them make."""

    authors: list[list[Txn]]
    final: str


def load(path: Path | str) -> Recording:
    """Read a recording, `.json` or `.json.gz`."""
    data = Path(path).read_bytes()
    try:
        raw = msgspec.json.decode(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data, type=_File)
    except (msgspec.DecodeError, OSError, EOFError, json.JSONDecodeError) as error:
        raise UsageError(f"{path}: no concurrent editing trace: {error}") from None
    past: list[tuple[int, ...]] = []
    authors: list[list[Txn]] = [[] for _ in range(raw.numAgents)]
    for n, txn in enumerate(raw.txns):
        needs = tuple(max((past[p][a] for p in txn.parents), default=0) for a in range(raw.numAgents))
        mine = authors[txn.agent]
        if needs[txn.agent] != len(mine):
            raise UsageError(f"{path}: transaction {n} does not follow the last one of its author")
        mine.append(Txn(needs, txn.patches))
        past.append((*needs[: txn.agent], needs[txn.agent] + 1, *needs[txn.agent + 1 :]))
    return Recording(authors, raw.endContent)


class Author:
    """One author at work. Pure: hears what its member delivers, writes what is to be published."""

    def __init__(self, recording: Recording, index: int, me: str) -> None:
        self.index = index
        self._todo = recording.authors[index]
        self._at = 0
        # Client ids as in the recording: where both wrote at one place, Yjs lets the smaller one come first.
        self._editor = Document(NAME, me, client=index + 1)
        self._heard: list[list[Event]] = [[] for _ in recording.authors]
        self._merged = [0] * len(recording.authors)

    @property
    def done(self) -> bool:
        return self._at == len(self._todo)

    def hear(self, event: Event) -> None:
        """A delivered event, also an own one."""
        operation = decode(event.payload)
        if isinstance(operation, Update) and operation.name == NAME and operation.client != self.index + 1:
            self._heard[operation.client - 1].append(event)
        elif isinstance(operation, Update):
            self._editor.apply(event.stamp, operation)

    def write(self, most: int = 64) -> list[bytes]:
        """The operations of the next transactions whose past is here: as many as have the same past, for after that
        something has to be merged first; none if the next one has to wait."""
        if self.done:
            return []
        needs = self._todo[self._at].needs
        if any(len(self._heard[a]) < n for a, n in enumerate(needs) if a != self.index):
            return []
        for a, n in enumerate(needs):
            if a != self.index:
                for event in self._heard[a][self._merged[a] : n]:
                    self._editor.apply(event.stamp, decode(event.payload))
                self._merged[a] = max(self._merged[a], n)
        out: list[bytes] = []
        while not self.done and len(out) < most:
            txn = self._todo[self._at]
            if any(n > self._merged[a] for a, n in enumerate(txn.needs) if a != self.index):
                break
            out.append(self._editor.splices(txn.patches))
            self._at += 1
        return out
