"""Check a history: read consistency, causes, necessary edges, cycles; the reference form, for histories of any kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from time import perf_counter

from whence.audit.history.explain import causal_cycle, explain_level
from whence.audit.history.graph import Causes, Necessary, causes, components, in_past, necessary, topological
from whence.audit.history.levels import PATTERNS, REGISTERS, TRANSACTIONAL, Level
from whence.audit.history.lists import consistent_lists
from whence.audit.history.model import INIT, History, Key, Value
from whence.audit.history.reads import Facts, consistent
from whence.audit.history.registers import causal_memory, causal_patterns
from whence.audit.history.report import Finding, Report, names_of
from whence.errors import HistoryError

DEFAULT: tuple[Level, ...] = TRANSACTIONAL
DEFAULT_SINGLE: tuple[Level, ...] = ("RC", "RA", "TCC", "CC", "CCv")


class Numbered:
    """The facts as an explanation asks for them."""

    def __init__(self, facts: Facts, found: Causes) -> None:
        self.facts, self.found = facts, found
        self.total = len(facts.txns)

    def previous(self, t: int) -> int | None:
        return t - 1 if t > self.facts.first[self.facts.session[t]] else None

    def same_session(self, one: int, other: int) -> bool:
        return self.facts.session[one] == self.facts.session[other]

    def sources(self, t: int) -> Iterable[tuple[int, Key, Value]]:
        return self.found.before[t]

    def in_past(self, one: int, other: int) -> bool:
        return in_past(self.facts, self.found, one, other)


def check(history: History, levels: Sequence[Level] | None = None) -> Report:
    """The verdicts of these levels (default: RC, RA, TCC, and for single operations CC and CCv), with findings."""
    if levels is None:
        levels = DEFAULT_SINGLE if history.single else DEFAULT
    if not history.single and (asked := [level for level in levels if level in REGISTERS]):
        what = "lists" if history.lists else "transactions of several operations"
        raise HistoryError(f"{history.file}: {asked[0]} is defined for single operations on registers; this has {what}")
    clock = _Stopwatch()
    facts = consistent_lists(history) if history.lists else consistent(history)
    clock.lap("reads")
    found = causes(facts)
    clock.lap("clocks")
    counted = Counter(finding.pattern for finding in facts.findings)
    findings = list(facts.findings)
    edges = necessary(facts, found)
    clock.lap("edges")
    view = Numbered(facts, found)
    base = [(w, t, key, value) for t in range(view.total) for w, key, value in found.before[t]]
    orders = _transactional(view, edges, base, counted, findings)
    if history.single and any(level in REGISTERS for level in levels):
        _registers(history, facts, found, levels, counted, findings)
    clock.lap("cycles")
    verdicts = {level: not any(level in PATTERNS[pattern][0] for pattern in counted) for level in levels}
    if "CCv" in verdicts:
        verdicts["CCv"] = orders[-1][1] is not None and not any("CCv" in PATTERNS[pattern][0] for pattern in counted)
    clean = not any("RC" in PATTERNS[pattern][0] for pattern in facts_patterns(facts))
    best = next(((level, order) for level, order in reversed(orders) if order is not None and clean), None)
    return Report(
        file=history.file,
        levels=verdicts,
        findings=findings,
        patterns=dict(sorted(counted.items())),
        names=names_of(history),
        places=[(txn.session, t - facts.first[facts.session[t]]) for t, txn in enumerate(facts.txns)],
        shown={t: facts.txns[t].ops for finding in findings for t in finding.nodes() if t != INIT},
        operations=history.operations,
        transactions=view.total,
        sessions=len(history.sessions),
        notes=facts.notes,
        seconds=clock.laps,
        order=best[1] if best else None,
        certified=best[0] if best else None,
    )


def facts_patterns(facts: Facts) -> set[str]:
    """The patterns of reads that are wrong by themselves."""
    return {finding.pattern for finding in facts.findings}


class _Stopwatch:
    """Time by stage."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self.at = perf_counter()

    def lap(self, name: str) -> None:
        now = perf_counter()
        self.laps[name] = self.laps.get(name, 0.0) + now - self.at
        self.at = now


def _transactional(
    view: Numbered,
    edges: list[Necessary],
    base: list[tuple[int, int, Key, Value]],
    counted: Counter[str],
    findings: list[Finding],
) -> list[tuple[Level, list[int] | None]]:
    """Add the cycles of RC, RA and TCC; returns a commit order for each level that has one."""
    facts = view.facts
    versions = facts.versions
    if view.found.clock is None:
        cycles, finding, _ = causal_cycle(view, "CyclicCO", base, [])
        counted["CyclicCO"] += cycles
        findings += [finding] if finding else []
    cycles, finding, _ = causal_cycle(view, "CyclicVersionOrder", base, versions) if versions else (0, None, [])
    if cycles and view.found.clock is not None:
        counted["CyclicVersionOrder"] += cycles
        findings += [finding] if finding else []
    orders: list[tuple[Level, list[int] | None]] = []
    rank = {level: i for i, level in enumerate(TRANSACTIONAL)}
    known = [(w, t) for w, t, _, _ in base] + [(one, other) for one, other, _ in versions]
    for level in TRANSACTIONAL:
        upto = [edge for edge in edges if rank[edge.level] <= rank[level]]
        pairs = list(dict.fromkeys(known + [(edge.src, edge.dst) for edge in upto if edge.dst != INIT]))
        order = topological(facts, pairs)
        good = len(order) == view.total and not any(edge.dst == INIT for edge in upto)
        orders.append((level, order if good else None))
        if good:
            continue
        after: list[list[int]] = [[] for _ in range(view.total)]
        for one, other in pairs:
            after[one].append(other)
        for t in range(view.total):
            before = view.previous(t)
            if before is not None:
                after[before].append(t)
        component = components(view.total, after)
        more, cycles_found = explain_level(view, level, upto, versions, base, component)
        counted.update(more)
        findings += cycles_found
    return orders


def _registers(
    history: History,
    facts: Facts,
    found: Causes,
    levels: Sequence[Level],
    counted: Counter[str],
    findings: list[Finding],
) -> None:
    """Add the patterns of CC, CM and CCv."""
    if found.clock is None:
        return
    before = dict(counted)
    more, shown = causal_patterns(facts, found)
    if "CM" in levels:
        memory, remembered = causal_memory(history.file, facts, found)
        more.update(memory)
        shown += remembered
    if "CCv" in levels and any(before.get(pattern) for pattern in before if _by_readers(pattern, findings)):
        more["CyclicCF"] += 1
        cycle = next(f for f in findings if _by_readers(f.pattern, findings) and INIT not in f.txns)
        shown.append(Finding("CyclicCF", cycle.txns, cycle.keys, cycle.detail, cycle.edges, cycle.guarantee))
    counted.update(more)
    findings += shown


def _by_readers(pattern: str, findings: list[Finding]) -> bool:
    """Whether the pattern has a cycle in `co* u cf`: one of necessary edges that does not end in init."""
    return any(f.pattern == pattern and f.edges and INIT not in f.txns for f in findings) and pattern in (
        "NonMonoReadCO",
        "NonMonoReadAO",
        "FracturedReadCO",
        "FracturedReadAO",
        "COConflictAO",
        "ConflictAO",
    )
