"""The levels from their definitions, over plain objects: what generated histories are compared with."""

from __future__ import annotations

from collections import Counter
from itertools import groupby, pairwise
from typing import Any

from whence.audit.history import History, Op
from whence.audit.history.levels import TRANSACTIONAL, Level
from whence.audit.history.model import INIT, elements

Writes = dict[tuple[Any, Any], int]


class Reference:
    """Reads of one history: which are wrong by themselves, and from whom the others read."""

    def __init__(self, history: History) -> None:
        self.txns = [history.ops(t) for t in range(history.begin.size - 1)]
        self.place = [history.place(t) for t in range(len(self.txns))]
        self.lists = history.lists is not None
        self.aborted = {
            (history.key_of(x), history.value_of(v)) for x, v in zip(*map(list, history.aborted), strict=True)
        }
        self.writes: Writes = {}
        self.appends: dict[tuple[int, Any], list[Any]] = {}
        for t, ops in enumerate(self.txns):
            for op in ops:
                if op.write:
                    self.writes.setdefault((op.key, op.value), t)
                    self.appends.setdefault((t, op.key), []).append(op.value)
        self.bad: Counter[str] = Counter()
        self.reads: list[tuple[int, int, Any, int]] = []
        """Transaction, operation, key, writer."""
        self.lists_of: dict[Any, list[tuple[Any, ...]]] = {}
        for t, ops in enumerate(self.txns):
            self._transaction(t, ops)
        self.versions = self._versions() if self.lists else set()

    def _transaction(self, t: int, ops: list[Op]) -> None:
        own: dict[Any, list[Any]] = {}
        before: dict[Any, Any] = {}
        for i, op in enumerate(ops):
            if op.write:
                own.setdefault(op.key, []).append(op.value)
                before.pop(op.key, None)
                continue
            self.bad["NonRepeatableRead"] += before.get(op.key, op.value) != op.value
            before[op.key] = op.value
            wrong = (self._wrong_list if self.lists else self._wrong)(t, op, own.get(op.key, []))
            self.bad[wrong or ""] += 1
            if self.lists and wrong != "FutureRead":
                assert isinstance(op.value, tuple)
                self.lists_of.setdefault(op.key, []).append(op.value)
            if wrong in (None, "IntermediateRead") and not own.get(op.key):
                last = op.value if not isinstance(op.value, tuple) else op.value[-1] if op.value else None
                self.reads.append((t, i, op.key, INIT if last is None else self.writes[op.key, last]))

    def _unknown(self, key: Any, value: Any) -> str:
        return "AbortedRead" if (key, value) in self.aborted else "ThinAirRead"

    def _wrong(self, t: int, op: Op, own: list[Any]) -> str | None:
        if own and op.value == own[-1]:
            return None
        writer = INIT if op.value is None else self.writes.get((op.key, op.value))
        if writer is None:
            return self._unknown(op.key, op.value)
        if writer == t:
            return "NotMyLastWrite" if own else "FutureRead"
        if own:
            return "NotMyOwnWrite"
        return "IntermediateRead" if writer != INIT and self.appends[writer, op.key][-1] != op.value else None

    def _wrong_list(self, t: int, op: Op, own: list[Any]) -> str | None:
        value: Any = op.value
        for element in value:
            if (op.key, element) not in self.writes:
                return self._unknown(op.key, element)
            if self.writes[op.key, element] == t and element not in own:
                return "FutureRead"
        if len(set(value)) < len(value):
            return "DuplicateElement"
        if own and list(value[-len(own) :]) != own:
            return "NotMyLastWrite" if value and value[-1] in own else "NotMyOwnWrite"
        others = value[: len(value) - len(own)]
        for writer, part in groupby(others, key=lambda element: self.writes[op.key, element]):
            if list(part) != self.appends[writer, op.key]:
                return "IntermediateRead"
        return None

    def _versions(self) -> set[tuple[int, int]]:
        """Neighbours in the longest list of each key."""
        found = set()
        for key, lists in self.lists_of.items():
            longest = max(lists, key=len)
            self.bad["IncompatibleOrder"] += sum(each != longest[: len(each)] for each in lists)
            authors = [self.writes[key, each] for each in longest if (key, each) in self.writes]
            found |= {(a, b) for a, b in pairwise(authors) if a != b}
        return found

    def holds(self, level: Level) -> bool:
        """Whether there is a commit order: the edges that the definition demands have no cycle."""
        if any(self.bad[each] for each in self.bad if each not in ("", "NonRepeatableRead")):
            return False
        if level != "RC" and self.bad["NonRepeatableRead"]:
            return False
        total = range(len(self.txns))
        so = {(a, b) for a in total for b in total if self.place[a][0] == self.place[b][0] and a < b}
        wr = {(w, t) for t, _, _, w in self.reads if w != INIT}
        base = so | wr | self.versions
        past = closure(len(self.txns), so | wr)
        needed = set(base)
        for t3, i, key, t1 in self.reads:
            early = {w for t, j, _, w in self.reads if t == t3 and j < i}
            for t2 in total:
                if t2 in (t1, t3) or (t2, key) not in self.appends:
                    continue
                seen = {"RC": t2 in early, "RA": (t2, t3) in so | wr, "TCC": bool(past[t3] >> t2 & 1)}
                if any(seen[each] for each in TRANSACTIONAL[: TRANSACTIONAL.index(level) + 1]):
                    if t1 == INIT:
                        return False  # nothing commits before init
                    needed.add((t2, t1))
        return not any(those >> t & 1 for t, those in enumerate(closure(len(self.txns), needed)))

    def recheck(self, found: dict[str, Any]) -> None:
        """A finding, in its JSON form, follows from the operations."""
        number = {place: t for t, place in enumerate(self.place)}
        txns = {each["txn"]: number.get((each["session"], each["index"]), INIT) for each in found["transactions"]}
        edges = found["edges"]
        assert all(self._follows(edge, txns) for edge in edges), found
        assert all(a["to"] == b["from"] for a, b in pairwise([*edges, *edges[:1]])), "no cycle"
        assert edges or self.bad[found["pattern"]], found

    def _follows(self, edge: dict[str, Any], txns: dict[str, int]) -> bool:
        src, dst, key = txns[edge["from"]], txns[edge["to"]], edge.get("key")
        if edge["kind"] == "so":
            return src == INIT or (self.place[src][0] == self.place[dst][0] and src < dst)
        if edge["kind"] == "vo":
            return (src, dst) in self.versions
        if edge["kind"] == "wr":
            seen = [self.txns[t][i].value for t, i, k, _ in self.reads if (t, k) == (dst, key)]
            last = [(elements(value) or (None,))[-1] for value in seen]
            return edge["value"] in last and edge["value"] in self.appends[src, key]
        reader, way = txns[edge["reader"]], edge["past"]
        at = [i for t, i, k, w in self.reads if (t, k, w) == (reader, key, dst)]
        chain = [edge["from"], *(step["to"] for step in way)]
        good = bool(at and way) and (src, key) in self.appends and chain[-1] == edge["reader"]
        good = good and all(self._follows(s, txns) and s["from"] == a for s, a in zip(way, chain, strict=False))
        early = any(t == reader and w == src and i < max(at) for t, i, _, w in self.reads)
        return good and (edge["level"] == "TCC" or (len(way) == 1 and (edge["level"] == "RA" or early)))


def closure(total: int, pairs: set[tuple[int, int]]) -> list[int]:
    """Of each node, all before it, as bits."""
    before = [0] * total
    for a, b in pairs:
        before[b] |= 1 << a
    for mid in range(total):
        for t in range(total):
            if before[t] >> mid & 1:
                before[t] |= before[mid]
    return before
