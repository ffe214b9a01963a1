"""Editing sessions, recorded or synthetic, replayed through a cluster.

The format is that of the concurrent editing traces by Joseph Gentle (github.com/josephg/editing-traces): transactions,
each with an author, parents, and patches `[position, deleted, inserted]`. Positions refer to the text that the parents
produce. So an author writes a transaction once it has exactly the transaction's past; events that came early are held
back from its editor.
"""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from random import Random
from typing import NamedTuple

import msgspec

from whence.errors import UsageError
from whence.live.objects.document import Document
from whence.live.objects.kernel import Edit, EventStamp, Operation, StampedEvent, decode

NAME = "text"
RECORDED = "friendsforever.json.gz"
"""The concurrent trace of two authors that `session` looks for."""


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
    """The transactions of each author in order, and the final text."""

    authors: list[list[Txn]]
    final: str


def load(path: Path | str) -> Recording:
    """Read a recording, `.json` or `.json.gz`."""
    data = Path(path).read_bytes()
    try:
        raw = msgspec.json.decode(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data, type=_File)
    except (msgspec.DecodeError, OSError, EOFError, json.JSONDecodeError) as error:
        raise UsageError(f"{path}: not a concurrent editing trace: {error}") from None
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


def session(path: Path | str = "") -> Recording:
    """The editing session at `path`. Without a path: the recorded session in the directory WHENCE_DATA, or a synthetic
    one."""
    path = path or recorded()
    return load(path) if path else synthetic()


def recorded() -> str:
    """The path of the recorded session, or an empty string."""
    folder = os.environ.get("WHENCE_DATA")
    path = Path(folder or ".") / RECORDED
    return str(path) if folder and path.exists() else ""


def synthetic(seed: int = 1, authors: int = 2, transactions: int = 3000) -> Recording:
    """In each round all authors type at the same time, then everybody merges what the others have typed. So, as in a
    recorded session, most transactions are concurrent with some of another author's. Yjs gives the final text."""
    rng = Random(seed)
    editors = [Document(NAME, f"author{a}", client=a + 1) for a in range(authors)]
    written: list[list[Txn]] = [[] for _ in range(authors)]
    while left := transactions - sum(map(len, written)):
        merged = [len(mine) for mine in written]
        updates: list[tuple[EventStamp, Operation]] = []
        for a, (editor, mine) in enumerate(zip(editors, written, strict=True)):
            cursor = rng.randint(0, len(editor.draft))
            for _ in range(min(rng.randint(1, 24), left - len(updates))):
                patch, cursor = _stroke(rng, cursor, len(editor.draft))
                needs = (*merged[:a], len(mine), *merged[a + 1 :])
                mine.append(Txn(needs, [patch]))
                stamp = EventStamp(0, 0, 0, a, 1, len(mine), f"author{a}")
                updates.append((stamp, decode(editor.splices([patch]))))
        for editor in editors:
            for update in updates:
                editor.apply(*update)
    return Recording(written, editors[0].text)


def _stroke(rng: Random, cursor: int, length: int) -> tuple[tuple[int, int, str], int]:
    """A letter, a word or a deletion at the cursor; and the new cursor."""
    kind = rng.random()
    if kind < 0.2 and cursor:
        count = min(cursor, rng.choice((1, 1, 1, 6)))
        return (cursor - count, count, ""), cursor - count
    letters = "".join(rng.choice("etaoinshrdlu ") for _ in range(1 if kind < 0.9 else rng.randint(2, 12)))
    cursor = min(cursor, length)
    return (cursor, 0, letters), cursor + len(letters)


class Author:
    """One author. Pure: takes delivered events, and returns the operations to publish."""

    def __init__(self, recording: Recording, index: int, me: str) -> None:
        self.index = index
        self._todo = recording.authors[index]
        self._at = 0
        # Client ids as in the recording: Yjs orders concurrent insertions at one place by client id.
        self._editor = Document(NAME, me, client=index + 1)
        self._heard: list[list[StampedEvent]] = [[] for _ in recording.authors]
        self._merged = [0] * len(recording.authors)

    @property
    def done(self) -> bool:
        return self._at == len(self._todo)

    def hear(self, event: StampedEvent) -> None:
        """Take a delivered event, also an own one."""
        operation = decode(event.payload)
        if isinstance(operation, Edit) and operation.name == NAME and operation.client != self.index + 1:
            self._heard[operation.client - 1].append(event)
        elif isinstance(operation, Edit):
            self._editor.apply(event.stamp, operation)

    def write(self, most: int = 64) -> list[bytes]:
        """The operations of the next transactions that have the same, complete past; empty if the next one must
        wait."""
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
