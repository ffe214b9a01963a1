"""Check a history: read consistency, reads-from, commit orders of the levels, and findings where there is none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from time import perf_counter
from typing import Final

import numpy as np

from whence.audit.history import kernels as k
from whence.audit.history.explain import FAMILY, causal_cycle, explain_level
from whence.audit.history.graph import CLOCK_BYTES, Graph
from whence.audit.history.levels import PATTERNS, REGISTERS, TRANSACTIONAL, Level
from whence.audit.history.model import INIT, Bytes, History, Ints, Longs
from whence.audit.history.report import Anomaly, HistoryReport
from whence.errors import HistoryError

DEFAULT_SINGLE: Final[tuple[Level, ...]] = ("RC", "RA", "TCC", "CC", "CCv")
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
NAMED: Final = 5
"""Repeated writes that are named one by one; the rest are counted."""
CM_LIMIT: Final = 20_000
"""Operations up to which CM is offered: it takes quadratic memory."""


def check(history: History, levels: Sequence[Level] | None = None, clock_bytes: int = CLOCK_BYTES) -> HistoryReport:
    """The verdicts of these levels (default: RC, RA, TCC, and for single operations CC and CCv), with findings.

    `clock_bytes`: memory for clocks at a time.
    """
    levels = _asked(history, levels)
    report = HistoryReport(history, notes=list(history.notes))
    started = perf_counter()
    graph = _reads(history, report)
    graph.clock_bytes = clock_bytes
    clean = not any("RC" in PATTERNS[pattern][0] for pattern in report.patterns)
    best = _levels(graph, levels, report)
    broken = {level for pattern in report.patterns for level in PATTERNS[pattern][0]}
    report.levels = {level: level not in broken for level in levels}
    if "CCv" in report.levels:
        report.levels["CCv"] = clean and best is not None and best[0] == "TCC"
    if best and clean:
        report.certified, report.order = best
    report.patterns = Counter(dict(sorted(report.patterns.items())))
    report.seconds = perf_counter() - started
    return report


def _asked(history: History, levels: Sequence[Level] | None) -> Sequence[Level]:
    """The levels to check; raises HistoryError for one that this history cannot be checked for."""
    if levels is None:
        return DEFAULT_SINGLE if history.single else TRANSACTIONAL
    where, size = history.file, history.key.size
    if not history.single and (asked := [level for level in levels if level in REGISTERS]):
        raise HistoryError(f"{where}: {asked[0]} is defined for single operations on registers; this has transactions")
    if "CM" in levels and size > CM_LIMIT:
        raise HistoryError(
            f"{where}: CM is offered up to {CM_LIMIT:,} operations (it takes quadratic memory); this has {size:,}"
        )
    return levels


# -- reads


def _reads(history: History, report: HistoryReport) -> Graph:
    """Read consistency and reads-from."""
    begin, key, value, keys = history.begin, history.key, history.value, history.keys
    txn = np.repeat(np.arange(begin.size - 1, dtype=np.int32), np.diff(begin))
    marked: dict[str, Bytes] = {}
    versions = np.empty((0, 3), np.int32)
    if history.lists is not None:
        judged = k.judge_lists(begin, history.write, key, *history.lists, keys, history.aborted)
        what, twice, marked["IncompatibleOrder"], writer, value, versions = judged
    else:
        what, twice = np.zeros(key.size, np.uint8), np.zeros(key.size, np.uint8)
        k.classify(begin, history.write, key, value, keys, what, twice)
        writer = k.match(key, value, txn, keys, history.aborted, what, twice)
    marked = {"NonRepeatableRead": (twice == 1).view(np.uint8), **marked}
    _note_repeated(history, np.flatnonzero(twice == k.REPEATED), value, report.notes)
    _note_aborted(history, value, report.notes)
    _bad_reads(history, what, marked, report)
    reads, finals = np.flatnonzero((what == k.READ) | (what == k.INTERMEDIATE)), np.flatnonzero(what == k.FINAL)
    at = (reads - begin[txn[reads]]).astype(np.int32)
    writers = k.sort_pairs(key[finals], txn[finals], keys)
    return Graph(history, txn[reads], at, key[reads], writer[reads], value[reads], writers, versions)


def _note_repeated(history: History, places: Longs, value: Longs, notes: list[str]) -> None:
    for i in places[:NAMED]:
        what = f"({history.key_of(history.key[i])}, {history.value_of(value[i])})"
        told = f"{what} is written twice: reads of it are ambiguous; the first is taken as the writer"
        notes.append(f"{history.where(i)}: {told}")
    if places.size > NAMED:
        notes.append(f"{places.size - NAMED} more values were written twice")


def _note_aborted(history: History, value: Longs, notes: list[str]) -> None:
    keys, values = history.aborted
    if not keys.size:
        return
    mine = np.flatnonzero((history.write == 1) & np.isin(history.key, keys))
    written = set(zip(history.key[mine].tolist(), value[mine].tolist(), strict=True))
    both = written & set(zip(keys.tolist(), values.tolist(), strict=True))
    if both:
        key, what = min((str(history.key_of(x)), str(history.value_of(v))) for x, v in both)
        notes.append(
            f"{len(both)} values were written by a committed and an aborted transaction, such as ({key}, {what}): "
            "the committed one is taken as the writer"
        )


def _bad_reads(history: History, what: Bytes, marked: dict[str, Bytes], report: HistoryReport) -> None:
    marks = [(what == code, pattern) for code, pattern in BAD.items()] if (what >= k.THIN).any() else []
    for mark, pattern in [*marks, *((mark != 0, pattern) for pattern, mark in marked.items())]:
        places = np.flatnonzero(mark)
        if places.size:
            report.patterns[pattern] += int(places.size)
        for i in places[:SHOWN]:
            t = int(np.searchsorted(history.begin, i, side="right")) - 1
            at = int(i - history.begin[t])
            op = history.ops(t)[at]
            place = "" if history.origin is None else f" ({history.unit} {history.origin[i]})"
            detail = f"transaction {history.name(t)} of session {history.place(t)[0]}: {op}{place}"
            report.findings.append(Anomaly(pattern, (t,), (op.key,), detail, at=at))


# -- levels


def _levels(graph: Graph, levels: Sequence[Level], report: HistoryReport) -> tuple[Level, Ints] | None:
    """Add what breaks the levels; returns the strongest of RC, RA and TCC that has a commit order, and that order."""
    order = graph.guess()
    if order.size < graph.total:
        _causal(graph, report)
        return None
    best: tuple[Level, Ints] | None = None
    every: Ints | None = None
    for number in (2, 1, 0):
        good, kept = graph.level(number, order)
        if good is not None:
            best = (TRANSACTIONAL[number], good)
            break
        every = graph.every_edge() if every is None else every
        edges = kept if every is None else every[every[:, 4] <= number]
        counts, cycles = explain_level(graph, TRANSACTIONAL[number], edges)
        report.patterns.update(counts)
        report.findings += cycles
    if any(level in REGISTERS for level in levels):
        _registers(graph, levels, graph.known if every is None else every, report)
        if "CM" in levels:
            _causal_memory(graph, order, report)
    return best


def _causal(graph: Graph, report: HistoryReport) -> None:
    """Add the cycle in `so u wr`, or else the one that only version order closes."""
    for pattern, versions in (("CyclicCO", False), ("CyclicVersionOrder", True)):
        cycles, finding = causal_cycle(graph, pattern, versions)
        if cycles:
            report.patterns[pattern] += cycles
            report.findings += [finding] if finding else []
            return


def _registers(graph: Graph, levels: Sequence[Level], edges: Ints, report: HistoryReport) -> None:
    """CC: an edge that causal order alone contradicts. It contradicts every topological guess, so it was found."""
    seen: set[int] = set()
    for t2, t1, t3, key, _ in edges.tolist():
        if t3 in seen or not graph.in_past(t1, t2):
            continue
        seen.add(t3)
        _add(graph, "WriteCOInitRead" if t1 == INIT else "WriteCORead", t3, key, t2, report)
    families = {pattern for pair in FAMILY.values() for pattern in pair}
    cycle = next((f for f in report.findings if f.pattern in families and f.edges and INIT not in f.txns), None)
    if "CCv" in levels and cycle is not None:
        report.patterns["CyclicCF"] += 1
        report.findings.append(Anomaly("CyclicCF", cycle.txns, cycle.keys, cycle.detail, cycle.edges, cycle.guarantee))


def _add(graph: Graph, pattern: str, reader: int, key: int, write: int, report: HistoryReport) -> None:
    """Count a read that is older than a write before it; the first of a pattern becomes a finding."""
    report.patterns[pattern] += 1
    if report.patterns[pattern] == 1:
        told = [
            f"{graph.history.ops(t)[0]} of transaction {graph.history.name(t)} of session {graph.history.place(t)[0]}"
            for t in (reader, write)
        ]
        detail = f"{told[0]}, although {told[1]} is before it"
        report.findings.append(Anomaly(pattern, (reader, write), (graph.history.key_of(key),), detail))


def _causal_memory(graph: Graph, order: Ints, report: HistoryReport) -> None:
    """WriteHBInitRead and CyclicHB (Bouajjani et al. 2017): saturation of hb_o for the last operation of each session.

    hb_o contains the causal order on the past of o; and if a read r2 of o's session reads x from w2, and w1 writes x
    and is before r2, then w1 is before w2. It grows along a session, so the last operation is enough. Sets are bits.
    """
    past = [0] * graph.total
    for t in order.tolist():
        before = [w for w, _, _ in graph.sources(t)] + [t - 1] * (graph.previous(t) is not None)
        for w in before:
            past[t] |= past[w] | 1 << w
    begin, writers = (each.tolist() for each in graph.writers)
    masks = [sum(1 << t for t in writers[b:e]) for b, e in pairwise(begin)]
    reads = dict(zip(graph.reader.tolist(), zip(graph.key.tolist(), graph.writer.tolist(), strict=True), strict=True))
    for first, end in pairwise(graph.first.tolist()):
        inside = past[end - 1] | 1 << (end - 1) if end > first else 0
        known = {t: past[t] for t in order.tolist() if inside >> t & 1}
        mine = [(t, *reads[t]) for t in range(first, end) if t in reads]
        changed = True
        while changed:
            changed = False
            for t, key, writer in mine:
                fresh = known[t] & masks[key] & ~known[writer] & ~(1 << writer) if writer != INIT else 0
                if fresh:
                    changed = True
                    _precede(known, fresh, writer)
        cyclic = next((t for t in known if known[t] >> t & 1), None)
        if cyclic is not None:
            report.patterns["CyclicHB"] += 1
            op, name = graph.history.ops(cyclic)[0], graph.history.place(first)[0]
            detail = f"session {name} would have to see {op} of session {graph.history.place(cyclic)[0]} before itself"
            if report.patterns["CyclicHB"] == 1:
                report.findings.append(Anomaly("CyclicHB", (cyclic,), (op.key,), detail))
        for t, key, writer in mine:
            if writer == INIT and (newer := known[t] & masks[key]):
                _add(graph, "WriteHBInitRead", t, key, newer.bit_length() - 1, report)


def _precede(before: dict[int, int], fresh: int, writer: int) -> None:
    """Put the operations `fresh`, and what is before them, before `writer` and all behind it."""
    more = rest = fresh
    while rest:
        low = rest & -rest
        more |= before[low.bit_length() - 1]
        rest ^= low
    for t, those in before.items():
        if t == writer or those & 1 << writer:
            before[t] = those | more
