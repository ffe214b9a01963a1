"""The story of a violation, small enough to check by hand."""

from __future__ import annotations

from collections.abc import Iterator

from whence.audit.history.levels import PATTERNS, Level
from whence.audit.history.model import INIT, Value
from whence.audit.history.report import Anomaly, CycleEdge, HistoryReport

WIDTH = 66
"""Where the kind of an edge stands."""


def story(report: HistoryReport) -> str:
    """Verdicts, the smallest counterexample, counts, and trouble with the input."""
    lines = [
        f"{report.file}: {report.operations:,} operations, {report.transactions:,} transactions, "
        f"{report.sessions:,} sessions"
    ]
    found = report.counterexample()
    lines.append(verdict(report.levels, found))
    if found is not None:
        lines += ["", *tell(report, found)]
        counts = ", ".join(f"{name} {count:,}" for name, count in report.patterns.items())
        lines += ["", f"  found: {counts}"]
    lines += [f"  note: {note}" for note in report.notes]
    return "\n".join(lines)


def verdict(levels: dict[Level, bool], found: Anomaly | None) -> str:
    """`TCC violated (COConflictAO). RC and RA hold.`"""
    failed = [level for level, good in levels.items() if not good]
    held = [level for level, good in levels.items() if good]
    parts = []
    if failed:
        parts.append(f"{_and(failed)} violated{f' ({found.pattern})' if found else ''}.")
    if held:
        parts.append(f"{_and(held)} hold{'s' if len(held) == 1 else ''}.")
    return " ".join(parts)


def _and(names: list[Level]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def tell(report: HistoryReport, found: Anomaly) -> Iterator[str]:
    """The transactions, the edges with their reasons, and the contradiction."""
    if not found.edges:
        yield f"  {found.detail}"
        yield f"  This {PATTERNS[found.pattern][1]}."
        return
    keys = {step.key for step in found.steps()}
    nodes = [t for t in found.nodes() if t != INIT]
    wide = max(len(report.history.name(t)) for t in nodes)
    sessions = max(len(report.history.place(t)[0]) for t in nodes)
    for t in sorted(nodes, key=lambda t: report.history.place(t)):
        ops = "  ".join(str(op) for op in report.history.ops(t) if op.key in keys)
        yield f"  {report.history.name(t):<{wide}}  session {report.history.place(t)[0]:<{sessions}}   {ops}"
    yield ""
    for edge in found.edges:
        yield from _edge(report, edge)
    first = report.history.name(found.edges[0].src)
    if found.edges[0].src == INIT:
        yield "  but nothing commits before the initial state."
    else:
        how = "commit before" if any(edge.kind == "co" for edge in found.edges) else "be a cause of"
        yield f"  so {first} would {how} itself."
    if found.guarantee:
        yield f"  In words of session guarantees: {found.guarantee} is broken."


def _edge(report: HistoryReport, edge: CycleEdge) -> Iterator[str]:
    src, dst = report.history.name(edge.src), report.history.name(edge.dst)
    head = f"  {src} -> {dst}   "
    if edge.kind == "so":
        reason = "the initial state comes first" if edge.src == INIT else f"session {report.history.place(edge.dst)[0]}"
        yield f"{head + reason:<{WIDTH}} so"
    elif edge.kind == "wr":
        yield f"{head + f'{dst} reads {edge.key}={_value(edge.value)} from {src}':<{WIDTH}} wr"
    elif edge.kind == "vo":
        yield f"{head + f'the list {edge.key} has the append of {src} before that of {dst}':<{WIDTH}} version order"
    else:
        assert edge.reader is not None
        reader = report.history.name(edge.reader)
        way = src + "".join(
            f" -{s.kind}{f' {s.key}' if s.kind == 'wr' else ''}-> {report.history.name(s.dst)}" for s in edge.past
        )
        yield f"{head + f'{reader} has {src} in its past ({way}),':<{WIDTH}} must commit before"
        yield f"{' ' * len(head)}both write {edge.key}, and {reader} reads {edge.key} from {dst} and not from {src}"


def _value(value: Value) -> str:
    return "initial" if value is None else str(value)
