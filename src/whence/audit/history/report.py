"""What a check says: verdicts, findings and, for a violation, a cycle with the reason of every edge."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

from whence.audit.history.levels import LEVELS, PATTERNS, Level, weakest
from whence.audit.history.model import INIT, History, Ints, Key, Value

Kind = Literal["so", "wr", "co", "vo"]
"""Session order; reads-from; must commit before, because of a read; version order, as a list shows it."""


@dataclass(frozen=True, slots=True)
class CycleEdge:
    """`src` comes before `dst`. For `co`: both write `key`, and `reader` has `src` in its past but reads from `dst`."""

    src: int
    dst: int
    kind: Kind
    key: Key | None = None
    value: Value = None
    level: Level | None = None
    """co: the weakest level that has the edge."""
    reader: int | None = None
    past: tuple[CycleEdge, ...] = ()
    """co: the way from `src` to `reader`."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One violation. `edges` is the cycle; empty where a single read is wrong by itself."""

    pattern: str
    txns: tuple[int, ...]
    keys: tuple[Key, ...]
    detail: str
    edges: tuple[CycleEdge, ...] = ()
    guarantee: str | None = None
    """The session guarantee that is broken, in words, where the story has its shape."""
    at: int | None = None
    """Which operation of the first transaction is the bad read."""

    def steps(self) -> list[CycleEdge]:
        """The edges of the cycle, and then those on the ways from a writer to its reader."""
        return [*self.edges, *(step for edge in self.edges for step in edge.past)]

    def nodes(self) -> tuple[int, ...]:
        """All transactions that the story names."""
        return tuple(dict.fromkeys([*self.txns, *(t for step in self.steps() for t in (step.src, step.dst))]))

    @property
    def level(self) -> Level:
        """The weakest level that forbids it."""
        return weakest(self.pattern)


@dataclass(slots=True, eq=False)
class HistoryReport:
    """The answer for one history."""

    history: History
    levels: dict[Level, bool] = field(default_factory=dict)
    findings: list[Anomaly] = field(default_factory=list)
    """Those that are told."""
    patterns: Counter[str] = field(default_factory=Counter)
    """Violations of each pattern: bad reads, cycles of causes, and necessary edges that lie on a cycle."""
    notes: list[str] = field(default_factory=list)
    """Trouble with the input, in words."""
    seconds: float = 0.0
    order: Ints | None = None
    """A commit order for the strongest of RC, RA, TCC that holds: the certificate."""
    certified: Level | None = None

    @property
    def file(self) -> str:
        return self.history.file

    @property
    def operations(self) -> int:
        return self.history.key.size

    @property
    def transactions(self) -> int:
        return self.history.begin.size - 1

    @property
    def sessions(self) -> int:
        return self.history.first.size - 1

    @property
    def holds(self) -> bool:
        return all(self.levels.values())

    def counterexample(self) -> Anomaly | None:
        """The finding to look at first: of the weakest level, with the fewest necessary edges and transactions."""
        failed = [level for level, good in self.levels.items() if not good]
        worth = [f for f in self.findings if any(level in failed for level in PATTERNS[f.pattern][0])]
        return min(worth, key=_weight, default=None)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        found = self.counterexample()
        return {
            "file": self.file,
            "levels": self.levels,
            "patterns": self.patterns,
            "operations": self.operations,
            "transactions": self.transactions,
            "sessions": self.sessions,
            "seconds": round(self.seconds, 6),
            "counterexample": None if found is None else self.finding_dict(found),
            "notes": self.notes,
        }

    def finding_dict(self, found: Anomaly) -> dict[str, Any]:
        """A finding with everything that a re-checker needs: names, operations, edges with their reasons."""
        return {
            "level": found.level,
            "pattern": found.pattern,
            "guarantee": found.guarantee,
            "detail": found.detail,
            "read": found.at,
            "transactions": [self._txn_dict(t) for t in found.nodes()],
            "keys": list(found.keys),
            "edges": [self._edge_dict(edge) for edge in found.edges],
        }

    def _txn_dict(self, txn: int) -> dict[str, Any]:
        if txn == INIT:
            return {"txn": "init", "session": None, "index": None, "operations": []}
        ops = [["w" if op.write else "r", op.key, op.value] for op in self.history.ops(txn)]
        session, index = self.history.place(txn)
        return {"txn": self.history.name(txn), "session": session, "index": index, "operations": ops}

    def _edge_dict(self, edge: CycleEdge) -> dict[str, Any]:
        name = self.history.name
        told: dict[str, Any] = {"from": name(edge.src), "to": name(edge.dst), "kind": edge.kind}
        if edge.kind != "so":
            told |= {"key": edge.key}
        if edge.kind == "wr":
            told |= {"value": edge.value}
        if edge.kind == "co":
            reader = None if edge.reader is None else name(edge.reader)
            told |= {"level": edge.level, "reader": reader, "past": [self._edge_dict(s) for s in edge.past]}
        return told


def _weight(found: Anomaly) -> tuple[int, int, int]:
    return LEVELS.index(found.level), sum(edge.kind == "co" for edge in found.edges), len(found.edges)
