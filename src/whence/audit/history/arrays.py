"""The array form: a history as columns, for 10^5 to 10^8 operations. The verdicts are those of `check`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Final

import numpy as np

from whence.audit.history import bykey, listed
from whence.audit.history import kernels as k
from whence.audit.history.bykey import ByKey
from whence.audit.history.columns import Columns
from whence.audit.history.explain import causal_cycle, explain_level
from whence.audit.history.graph import Necessary
from whence.audit.history.kernels import Bytes, Ints, Longs
from whence.audit.history.levels import PATTERNS, REGISTERS, TRANSACTIONAL, Level
from whence.audit.history.model import INIT, Key, Value
from whence.audit.history.report import Finding, Report
from whence.errors import HistoryError

BAD: Final = {
    k.THIN: "ThinAirRead",
    k.ABORTED: "AbortedRead",
    k.FUTURE: "FutureRead",
    k.NOT_OWN: "NotMyOwnWrite",
    k.NOT_LAST: "NotMyLastWrite",
    k.INTERMEDIATE: "IntermediateRead",
    k.PARTIAL: "IntermediateRead",
    k.DUPLICATE: "DuplicateElement",
}
SHOWN: Final = 20
"""Bad reads of each pattern that become findings; all are counted."""
CLOCK_BYTES: Final = 3 << 30
"""Memory for clocks; above it they are made by blocks of sessions."""
EXPLAINED: Final = 200_000
"""Edges inside cycles that an explanation looks at."""


@dataclass(slots=True)
class Graph:
    """Everything about transactions that the rounds need, after reads-from is known."""

    first: Ints
    session: Ints
    reader: Ints
    at: Ints
    key: Ints
    writer: Ints
    """External reads, by reader: in which operation, what, from whom (INIT: the initial value)."""
    value: Longs
    begin: Longs
    """Of each transaction: its first external read."""
    seconds: dict[str, float]
    clock_bytes: int = CLOCK_BYTES
    rounds: int = 0
    candidates: int = 0
    versions: Ints = field(default_factory=lambda: np.empty((0, 3), np.int32))
    """Lists: neighbours in the longest list of a key. Rows: one, other, key."""
    _after: tuple[Longs, Ints] | None = None

    @property
    def after(self) -> tuple[Longs, Ints]:
        """Who follows each transaction by reads-from or version order: where they begin, and all of them."""
        if self._after is None:  # a good guess needs it not
            self._after = self.following(self.versions[:, :2])
        return self._after

    def following(self, edges: Ints) -> tuple[Longs, Ints]:
        """Reads-from and more edges (one, other), by the first."""
        one = np.concatenate([self.writer, edges[:, 0].astype(np.int32)])
        other = np.concatenate([self.reader, edges[:, 1].astype(np.int32)])
        return k.sort_pairs(one, other, self.total)

    @property
    def total(self) -> int:
        return self.session.size

    def blocks(self) -> list[tuple[int, int]]:
        """Ranges of sessions whose clocks fit into memory together."""
        sessions = self.first.size - 1
        wide = max(1, min(sessions, self.clock_bytes // (4 * max(1, self.total))))
        return [(low, min(sessions, low + wide)) for low in range(0, sessions, wide)]


def make_graph(
    first: Ints, reader: Ints, at: Ints, key: Ints, writer: Ints, value: Longs, seconds: dict[str, float]
) -> Graph:
    """`reader` has to be sorted."""
    total = int(first[-1])
    session = np.repeat(np.arange(first.size - 1, dtype=np.int32), np.diff(first))
    begin = np.zeros(total + 1, np.int64)
    np.cumsum(np.bincount(reader, minlength=total), out=begin[1:])
    return Graph(first, session, reader, at, key, writer, value, begin, seconds)


def guess(graph: Graph, recorded: Longs | None, blind: bool) -> tuple[Ints, Ints]:
    """A topological order of `so u wr` and the rank of each transaction: the recorded one if it is topological."""
    total = graph.total
    wish = np.arange(total, dtype=np.int64) if blind or recorded is None else recorded
    if not blind and recorded is not None:
        order = np.argsort(recorded, kind="stable").astype(np.int32)
        rank = _inverse(order)
        forward = rank[graph.versions[:, 0]] < rank[graph.versions[:, 1]]
        if forward.all() and k.is_topological(graph.first, graph.session, graph.reader, graph.writer, rank):
            return order, rank
    if blind or recorded is None:  # sessions side by side, not one after the other
        wish = (np.arange(total) - graph.first[graph.session]) * np.int64(graph.first.size) + graph.session
    order = k.topological(graph.first, graph.session, *graph.after, wish)
    return order, _inverse(order) if order.size == total else np.empty(0, np.int32)


def _inverse(order: Ints) -> Ints:
    rank = np.empty(order.size, np.int32)
    rank[order] = np.arange(order.size, dtype=np.int32)
    return rank


def reorder(graph: Graph, edges: Ints, rank: Ints) -> Ints:
    """An order that keeps the edges, too, close to the old one; shorter if there is a cycle."""
    more = np.concatenate([graph.versions[:, :2], edges[edges[:, 1] >= 0, :2]])
    return k.topological(graph.first, graph.session, *graph.following(more), rank.astype(np.int64))


class Rounds:
    """Find the edges that contradict an order, order anew, and so on: by level, strongest first."""

    def __init__(self, graph: Graph, by_key: ByKey) -> None:
        self.graph, self.by_key = graph, by_key
        self.clock: Any = None
        self.known = np.empty((0, 5), np.int32)

    def edges(self, order: Ints, rank: Ints) -> Ints:
        """All necessary edges that contradict this order."""
        graph = self.graph
        started = perf_counter()
        by_rank = bykey.ranked(self.by_key.begin, self.by_key.writers, rank)
        found = []
        for low, high in graph.blocks():
            before = perf_counter()
            clock = self.clock
            if clock is None:
                clock = k.clocks(graph.first, graph.session, graph.begin, graph.writer, order, low, high)
                if len(graph.blocks()) == 1:
                    self.clock = clock
            took = perf_counter() - before
            graph.seconds["clocks"] = graph.seconds.get("clocks", 0.0) + took
            started += took
            found.append(self._block(by_rank, rank, clock, low, high))
        graph.rounds += 1
        graph.seconds["candidates"] = graph.seconds.get("candidates", 0.0) + perf_counter() - started
        return np.concatenate(found) if found else np.empty((0, 5), np.int32)

    def _block(self, by_rank: Ints, rank: Ints, clock: Any, low: int, high: int) -> Ints:
        graph, those = self.graph, self.by_key
        room = 1 << 16
        while True:
            out = np.empty((room, 5), np.int32)
            count, looked = k.necessary(
                those.reader, those.at, those.key, those.writer, by_rank, those.writers, those.begin, rank,
                graph.first, graph.session, graph.begin, graph.writer, graph.at, clock, low, high, out,
            )  # fmt: skip
            if count <= room:
                graph.candidates += looked
                return out[:count]
            room = count

    def level(self, number: int, order: Ints, rank: Ints) -> tuple[Ints | None, Ints]:
        """A commit order for the level (None: there is none), and the edges that were found for it."""
        kept = self.known[self.known[:, 4] <= number]
        if kept.size:
            order = reorder(self.graph, kept, rank)
        elif self.graph.rounds:  # a stronger level has looked at this order: no edge of this one contradicts it
            return order, kept
        while True:
            if order.size < self.graph.total or (kept[:, 1] < 0).any():
                return None, kept
            rank = _inverse(order)
            found = self.edges(order, rank)
            self.known = np.unique(np.concatenate([self.known, found]), axis=0)
            found = found[found[:, 4] <= number]
            if not found.size:
                return order, kept
            kept = np.unique(np.concatenate([kept, found]), axis=0)
            order = reorder(self.graph, kept, rank)


def check_columns(
    columns: Columns,
    levels: Sequence[Level] | None = None,
    blind: bool = False,
    clock_bytes: int = CLOCK_BYTES,
) -> Report:
    """The same verdicts as `check`. Counts of patterns are those of the edges that were needed for the verdict.

    `blind`: ignore the recorded order. `clock_bytes`: memory for clocks at a time.
    """
    single = columns.lists is None and bool((np.diff(columns.begin) <= 1).all())
    if levels is None:
        levels = ("RC", "RA", "TCC", "CC", "CCv") if single else TRANSACTIONAL
    asked = [level for level in levels if level in REGISTERS]
    if asked and not single:
        raise HistoryError(f"{columns.file}: {asked[0]} is defined for single operations on registers")
    if "CM" in levels:
        raise HistoryError(f"{columns.file}: CM takes quadratic memory and is checked by the reference form only")
    notes = list(columns.notes)
    counted: Counter[str] = Counter()
    graph, by_key, findings = _reads(columns, notes, counted)
    graph.clock_bytes = clock_bytes
    rounds = Rounds(graph, by_key)
    return settle_levels(columns, graph, rounds, levels, counted, findings, notes, blind, columns.key.size)


def settle_levels(
    columns: Columns,
    graph: Graph,
    rounds: Rounds,
    levels: Sequence[Level],
    counted: Counter[str],
    findings: list[Finding] | None = None,
    notes: list[str] | None = None,
    blind: bool = False,
    operations: int = 0,
) -> Report:
    """The levels of a history whose reads are known; `counted` has those that are wrong by themselves."""
    findings = [] if findings is None else findings
    notes = [] if notes is None else notes
    clean = not any("RC" in PATTERNS[pattern][0] for pattern in counted)
    view = _View(columns, graph)
    asked = any(level in REGISTERS for level in levels)
    best = _levels(columns, view, rounds, blind, asked, counted, findings)
    verdicts = {level: not any(level in PATTERNS[pattern][0] for pattern in counted) for level in levels}
    if "CCv" in verdicts:
        verdicts["CCv"] = clean and best is not None and best[0] == "TCC"
    if graph.rounds:
        notes.append(f"{graph.rounds} rounds, {graph.candidates:,} candidates")
    nodes = [t for finding in findings for t in finding.nodes() if t != INIT] if columns.begin.size else []
    return Report(
        file=columns.file,
        levels=verdicts,
        findings=findings,
        patterns=dict(sorted(counted.items())),
        names=_Names(view),  # type: ignore[arg-type]
        places=_Places(view),  # type: ignore[arg-type]
        shown={t: columns.ops(t) for t in nodes},
        operations=operations,
        transactions=graph.total,
        sessions=columns.first.size - 1,
        notes=notes,
        seconds=graph.seconds,
        order=best[1] if best and clean else None,  # type: ignore[arg-type]
        certified=best[0] if best and clean else None,
    )


def _reads(columns: Columns, notes: list[str], counted: Counter[str]) -> tuple[Graph, ByKey, list[Finding]]:
    """Read consistency and reads-from."""
    seconds: dict[str, float] = {}
    started = perf_counter()

    def lap(name: str) -> None:
        nonlocal started
        now = perf_counter()
        seconds[name] = now - started
        started = now

    if columns.lists is not None:
        return _list_reads(columns, notes, counted)
    what, twice = np.zeros(columns.key.size, np.uint8), np.zeros(columns.key.size, np.uint8)
    k.classify(columns.begin, columns.write, columns.key, columns.value, what, twice)
    lap("reads")
    rows = bykey.exchange(columns.begin, columns.key, columns.value, what, columns.keys)
    lap("exchange")
    repeated = np.empty(5, np.int64)
    _note_repeated(columns, bykey.match(*rows, *columns.aborted, repeated), repeated, notes)
    lap("reads-from")
    by_key = bykey.group(rows, columns.begin, columns.keys)
    writer = np.full(columns.key.size, INIT, np.int32)
    bykey.bring_back(rows.place, rows.kind, rows.source, what, writer)
    del rows
    findings = _bad_reads(columns, what, {"NonRepeatableRead": twice}, counted)
    reads = k.external(columns.begin, columns.key, columns.value, what, writer)
    graph = make_graph(columns.first, *reads, seconds)
    lap("graph")
    return graph, by_key, findings


def _list_reads(columns: Columns, notes: list[str], counted: Counter[str]) -> tuple[Graph, ByKey, list[Finding]]:
    """The same of lists."""
    assert columns.lists is not None
    started = perf_counter()
    judged = listed.judge(
        columns.begin, columns.write, columns.key, *columns.lists, columns.keys, columns.aborted
    )  # fmt: skip
    _note_repeated(columns, judged.repeated.size, judged.repeated[:5], notes)
    marks = {"NonRepeatableRead": judged.twice, "IncompatibleOrder": judged.apart}
    findings = _bad_reads(columns, judged.what, marks, counted)
    seconds = {"reads": perf_counter() - started}
    started = perf_counter()
    rows = bykey.exchange(columns.begin, columns.key, judged.value, judged.what, columns.keys)
    rows.source[:] = judged.writer[rows.place]
    by_key = bykey.group(rows, columns.begin, columns.keys)
    reads = k.external(columns.begin, columns.key, judged.value, judged.what, judged.writer)
    graph = make_graph(columns.first, *reads, seconds)
    graph.versions = judged.versions
    seconds["graph"] = perf_counter() - started
    return graph, by_key, findings


def _levels(
    columns: Columns,
    view: _View,
    rounds: Rounds,
    blind: bool,
    registers: bool,
    counted: Counter[str],
    findings: list[Finding],
) -> tuple[Level, Ints] | None:
    """Add what breaks RC, RA and TCC; returns the strongest level that has a commit order, and that order."""
    graph = view.graph
    started = perf_counter()
    order, rank = guess(graph, columns.recorded, blind)
    graph.seconds["order"] = perf_counter() - started
    if order.size < graph.total:
        _causal(columns, view, counted, findings)
        return None
    best: tuple[Level, Ints] | None = None
    for number in (2, 1, 0):
        good, kept = rounds.level(number, order, rank)
        view.clock = rounds.clock
        if good is not None:
            best = (TRANSACTIONAL[number], good)
            break
        started = perf_counter()
        _explain(columns, view, TRANSACTIONAL[number], kept, counted, findings)
        graph.seconds["cycles"] = graph.seconds.get("cycles", 0.0) + perf_counter() - started
    if registers:
        _registers(view, rounds.known, counted)
    return best


def _causal(columns: Columns, view: _View, counted: Counter[str], findings: list[Finding]) -> None:
    """Add the cycle in `so u wr`, or else the one that only version order closes."""
    base, component = _inside(columns, view.graph, np.empty((0, 5), np.int32))
    cycles, finding, _ = causal_cycle(view, "CyclicCO", base, [])
    pattern = "CyclicCO"
    if not cycles:
        pattern = "CyclicVersionOrder"
        cycles, finding, _ = causal_cycle(view, pattern, base, _versions(columns, view.graph, component))
    counted[pattern] += cycles
    findings += [finding] if finding else []


def _versions(columns: Columns, graph: Graph, component: Ints) -> list[tuple[int, int, Key]]:
    """Version order inside of components."""
    those = graph.versions[component[graph.versions[:, 0]] == component[graph.versions[:, 1]]]
    return [(one, other, columns.key_of(key)) for one, other, key in those[:EXPLAINED].tolist()]


def _note_repeated(columns: Columns, count: int, places: Longs, notes: list[str]) -> None:
    for i in places[: min(count, places.size)]:
        key, value = columns.key_of(columns.key[i]), columns.value_of(columns.value[i])
        told = f"({key}, {value}) is written twice: reads of it are ambiguous; the first is taken as the writer"
        notes.append(f"{columns.place(i)}: {told}")
    if count > places.size:
        notes.append(f"{count - places.size} more values were written twice")


def _bad_reads(columns: Columns, what: Bytes, marked: dict[str, Bytes], counted: Counter[str]) -> list[Finding]:
    found: list[Finding] = []
    marks = [(what == code, pattern) for code, pattern in BAD.items()] if (what >= k.THIN).any() else []
    for mark, pattern in [*marks, *((mark != 0, pattern) for pattern, mark in marked.items())]:
        places = np.flatnonzero(mark)
        if places.size:
            counted[pattern] += int(places.size)
        for i in places[:SHOWN]:
            t = int(np.searchsorted(columns.begin, i, side="right")) - 1
            op = columns.ops(t)[i - columns.begin[t]]
            view = f"transaction {_name(columns, t)}: {op}"
            found.append(Finding(pattern, (t,), (op.key,), view, at=int(i - columns.begin[t])))
    return found


def _name(columns: Columns, t: int) -> str:
    return str(t) if columns.txn_names is None else str(columns.txn_names[t])


class _View:
    """The columns as an explanation asks for them."""

    def __init__(self, columns: Columns, graph: Graph) -> None:
        self.columns, self.graph = columns, graph
        self.total = graph.total
        self.clock: Any = None

    def previous(self, t: int) -> int | None:
        return t - 1 if t > self.graph.first[self.graph.session[t]] else None

    def same_session(self, one: int, other: int) -> bool:
        return bool(self.graph.session[one] == self.graph.session[other])

    def sources(self, t: int) -> Iterable[tuple[int, Key, Value]]:
        graph, columns = self.graph, self.columns
        for i in range(graph.begin[t], graph.begin[t + 1]):
            if graph.writer[i] >= 0:
                yield int(graph.writer[i]), columns.key_of(graph.key[i]), columns.value_of(graph.value[i])

    def in_past(self, one: int, other: int) -> bool:
        if one == INIT:
            return True
        s = self.graph.session[one]
        if self.clock is None:  # clocks by blocks: make the one column that is asked for
            return bool(self._column(int(s))[other] > one - self.graph.first[s])
        return bool(self.clock[other, s] > one - self.graph.first[s])

    def _column(self, s: int) -> Any:
        if not hasattr(self, "columns_made"):
            self.columns_made: dict[int, Any] = {}
        if s not in self.columns_made:
            graph = self.graph
            order, _ = guess(graph, self.columns.recorded, False)
            self.columns_made[s] = k.clocks(graph.first, graph.session, graph.begin, graph.writer, order, s, s + 1)[
                :, 0
            ]
        return self.columns_made[s]


class _Names:
    """Names of transactions, made when they are asked for."""

    def __init__(self, view: _View) -> None:
        self.view = view

    def __getitem__(self, t: int) -> str:
        session, index = _Places(self.view)[t]
        return f"s{session}/t{index}" if self.view.columns.txn_names is None else self.view.columns.txn_names[t]


class _Places:
    """Session and position of transactions, made when they are asked for."""

    def __init__(self, view: _View) -> None:
        self.view = view

    def __getitem__(self, t: int) -> tuple[str, int]:
        s = int(self.view.graph.session[t])
        names = self.view.columns.session_names
        return (str(s) if names is None else names[s]), int(t - self.view.graph.first[s])


def _inside(columns: Columns, graph: Graph, edges: Ints) -> tuple[list[tuple[int, int, Key, Value]], Ints]:
    """Components of `so u wr u edges`, and the pairs of reads-from that lie inside of one."""
    total = graph.total
    numbers = np.arange(total, dtype=np.int32)
    follows = numbers[1:][graph.session[1:] == graph.session[:-1]]
    real = edges[edges[:, 1] >= 0]
    sessions = np.stack([follows - 1, follows], axis=1)
    more = np.concatenate([graph.versions[:, :2], sessions, real[:, :2]])
    component = k.strong(total, *graph.following(more))
    mark = (graph.writer >= 0) & (component[graph.writer] == component[graph.reader])
    places = np.flatnonzero(mark)[:EXPLAINED]
    base = []
    for i in places:
        what = (columns.key_of(graph.key[i]), columns.value_of(graph.value[i]))
        base.append((int(graph.writer[i]), int(graph.reader[i]), *what))
    return base, component


def _explain(
    columns: Columns, view: _View, level: Level, edges: Ints, counted: Counter[str], findings: list[Finding]
) -> None:
    """Add the patterns and the smallest cycles of one level. Each edge once, under its weakest level."""
    base, component = _inside(columns, view.graph, edges)
    inside = edges[(edges[:, 1] < 0) | (component[edges[:, 0]] == component[edges[:, 1]])]
    weakest: dict[tuple[int, int], Necessary] = {}
    for t2, t1, t3, key, number in inside[:EXPLAINED].tolist():
        before = weakest.get((t2, t1))
        if before is None or number < TRANSACTIONAL.index(before.level):
            weakest[t2, t1] = Necessary(t2, t1, TRANSACTIONAL[number], columns.key_of(key), t3)
    more, found = explain_level(
        view, level, list(weakest.values()), _versions(columns, view.graph, component), base, component.tolist()
    )
    counted.update(more)
    findings += found


def _registers(view: _View, edges: Ints, counted: Counter[str]) -> None:
    """CC: an edge that causal order alone contradicts. It contradicts every topological guess, so it was found."""
    for t2, t1, _, _, _ in edges[:EXPLAINED].tolist():
        if t1 == INIT:
            counted["WriteCOInitRead"] += 1
        elif view.in_past(t1, t2):
            counted["WriteCORead"] += 1
