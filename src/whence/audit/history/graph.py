"""The graph of transactions, and the search for a commit order: guess, find what contradicts, order anew.

Level by level, for every external read of x by t3 from t1 and every other writer t2 of x (Biswas & Enea 2019):

    RC   t3 reads from t2 in an operation before it reads x from t1      then t2 commits before t1
    RA   t2 so t3, or t3 reads from t2                                   then t2 commits before t1
    TCC  t2 is in the causal past of t3                                  then t2 commits before t1

Nothing on the left speaks of the commit order, so a level holds exactly if `so u wr u edges` has no cycle. For TCC one
t2 per session is enough, the last one in the past (AWDIT, PLDI 2025): those before it precede it in session order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np

from whence.audit.history import kernels as k
from whence.audit.history.model import INIT, History, Ints, Key, Longs, Value

CLOCK_BYTES: Final = 3 << 30
"""Memory for clocks; above it they are made by blocks of sessions."""
EVERYTHING: Final = 1 << 22
"""Reads times sessions up to which all necessary edges of a violated level are listed, for the shortest cycle."""

NO_EDGES: Final = np.empty((0, 5), np.int32)


@dataclass
class Graph:
    """The transactions of a history, once it is known who reads from whom."""

    history: History
    reader: Ints
    """External reads, sorted by reader: in which operation, what, from whom (INIT: the initial value), which value."""
    at: Ints
    key: Ints
    writer: Ints
    value: Longs
    writers: tuple[Longs, Ints]
    """The writers of each key, by number: where those of a key begin, one more entry for all; and they."""
    versions: Ints
    """Lists: neighbours in the longest list of a key. Rows: one, other, key."""
    clock_bytes: int = CLOCK_BYTES
    rounds: int = 0
    clock: Any = None
    """Of all sessions, where there is memory for them."""
    known: Ints = field(default_factory=lambda: NO_EDGES)
    """Necessary edges so far. Rows: t2, t1, t3, key, level."""

    def __post_init__(self) -> None:
        self.first, self.session = self.history.first, self.history.session
        self.total = self.session.size
        self.begin = np.zeros(self.total + 1, np.int64)  # of each transaction: its first external read
        np.cumsum(np.bincount(self.reader, minlength=self.total), out=self.begin[1:])
        self.txns = k.Transactions(self.first, self.session, self.begin, self.writer, self.at)
        self._columns: dict[int, Any] = {}
        self._order: Ints = np.empty(0, np.int32)

    # -- what an explanation asks

    def previous(self, t: int) -> int | None:
        """The transaction before it in its session."""
        return t - 1 if t > self.first[self.session[t]] else None

    def sources(self, t: int) -> Iterable[tuple[int, Key, Value]]:
        """Whom it reads from, and what; not init."""
        for i in range(self.begin[t], self.begin[t + 1]):
            if self.writer[i] >= 0:
                yield int(self.writer[i]), self.history.key_of(self.key[i]), self.history.value_of(self.value[i])

    def in_past(self, one: int, other: int) -> bool:
        """Whether `one` is in the causal past of `other`."""
        if one == INIT:
            return True
        s = int(self.session[one])
        if self.clock is None and s not in self._columns:  # clocks by blocks: make the one column that is asked for
            self._columns[s] = k.clocks(self.txns, self._order, s, s + 1)[:, 0]
        seen = self._columns[s][other] if self.clock is None else self.clock[other, s]
        return bool(seen > one - self.first[s])

    def components(self, edges: Ints = NO_EDGES, versions: bool = True) -> Ints:
        """The strongly connected components of `so u wr u edges`."""
        follows = np.flatnonzero(self.session[1:] == self.session[:-1]).astype(np.int32) + np.int32(1)
        real = edges[edges[:, 1] >= 0, :2]
        pairs = [np.stack([follows - 1, follows], axis=1), real, *([self.versions[:, :2]] if versions else [])]
        return k.strong(self.total, *self._following(np.concatenate(pairs)))

    # -- orders

    def _following(self, edges: Ints) -> tuple[Longs, Ints]:
        """Reads-from and more edges (one, other), by the first: where they begin, and all the others."""
        one = np.concatenate([self.writer, edges[:, 0].astype(np.int32)])
        other = np.concatenate([self.reader, edges[:, 1].astype(np.int32)])
        return k.sort_pairs(one, other, self.total)

    def guess(self) -> Ints:
        """A topological order of `so u wr`: the recorded one if it is topological; shorter if there is a cycle."""
        recorded = self.history.recorded
        if recorded is not None:
            order = np.argsort(recorded, kind="stable").astype(np.int32)
            rank = inverse(order)
            forward = rank[self.versions[:, 0]] < rank[self.versions[:, 1]]
            if forward.all() and k.is_topological(self.session, self.reader, self.writer, rank):
                self._order = order
                return order
            wish = recorded
        else:  # sessions side by side, not one after the other
            wish = (np.arange(self.total) - self.first[self.session]) * np.int64(self.first.size) + self.session
        pairs = self._following(self.versions[:, :2])
        self._order = k.topological(self.first, self.session, *pairs, wish.astype(np.int64))
        return self._order

    def _reorder(self, edges: Ints, rank: Ints) -> Ints:
        """An order that keeps the edges, too, close to the old one; shorter if there is a cycle."""
        more = np.concatenate([self.versions[:, :2], edges[edges[:, 1] >= 0, :2]])
        return k.topological(self.first, self.session, *self._following(more), rank.astype(np.int64))

    def level(self, number: int, order: Ints) -> tuple[Ints | None, Ints]:
        """A commit order for the level (None: there is none), and the edges that were found for it."""
        kept = self.known[self.known[:, 4] <= number]
        if kept.size:
            order = self._reorder(kept, inverse(order))
        elif self.rounds:  # a stronger level has looked at this order: no edge of this one contradicts it
            return order, kept
        while True:
            if order.size < self.total or (kept[:, 1] < 0).any():
                return None, kept
            rank = inverse(order)
            self.rounds += 1
            found = self.edges(order, rank)
            self.known = np.unique(np.concatenate([self.known, found]), axis=0)
            found = found[found[:, 4] <= number]
            if not found.size:
                return order, kept
            kept = np.unique(np.concatenate([kept, found]), axis=0)
            order = self._reorder(kept, rank)

    # -- necessary edges

    def blocks(self) -> list[tuple[int, int]]:
        """Ranges of sessions whose clocks fit into memory together."""
        sessions = self.first.size - 1
        wide = max(1, min(sessions, self.clock_bytes // (4 * max(1, self.total))))
        return [(low, min(sessions, low + wide)) for low in range(0, sessions, wide)]

    @cached_property
    def _by_key(self) -> Ints:
        """Reads by key, so that the writers of a key are looked at once. Rows: reader, writer, operation, key."""
        order = k.sort_pairs(self.key, np.arange(self.key.size, dtype=np.int32), self.history.keys)[1]
        return np.stack([each[order] for each in (self.reader, self.writer, self.at, self.key)], axis=1)

    def every_edge(self) -> Ints | None:
        """All necessary edges, whatever the order; None: there are too many."""
        if self.reader.size * (self.first.size - 1) > EVERYTHING:
            return None
        return self.edges(self._order, inverse(self._order), everything=True)

    def edges(self, order: Ints, rank: Ints, everything: bool = False) -> Ints:
        """All necessary edges that contradict this order."""
        begin, writers = self.writers
        ranks = rank[writers]
        k.sort_each(begin, ranks)
        found = [NO_EDGES]
        for low, high in self.blocks():
            clock = self.clock
            if clock is None:
                clock = k.clocks(self.txns, order, low, high)
                if high - low == self.first.size - 1:
                    self.clock = clock
            found.append(
                k.necessary(self._by_key, self.txns, begin, writers, ranks, order, rank, clock, low, high, everything)
            )
        return np.concatenate(found)


def inverse(order: Ints) -> Ints:
    """The rank of each transaction in an order."""
    rank = np.empty(order.size, np.int32)
    rank[order] = np.arange(order.size, dtype=np.int32)
    return rank
