"""The page of rows in hand, judged by the simulator's oracle. For traces on disk there is the audit."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from whence.report import Finding, Found, gather, write
from whence.sim.oracle import Verdict, judge
from whence.trace import Row


def write_page(rows: list[Row], path: Path, *, title: str, about: str, command: str) -> Found:
    """The page of a run, and what was found. Of several clusters it shows the one with most steps, and says so."""
    clusters = Counter(row.cluster for row in rows)
    cluster = clusters.most_common(1)[0][0] if clusters else ""
    if len(clusters) > 1:
        about += f"; cluster {cluster} of {len(clusters)}"
    mine = [row for row in rows if row.cluster == cluster]
    facts = gather(mine, found(mine), title=title, about=about, command=command)
    write(facts, path)
    return facts.found


def found(rows: list[Row]) -> Found:
    """What the oracle says of one run of one cluster."""
    orders = {row.member: row.order or "causal" for row in rows if row.kind == "join"}
    by_order: dict[str, Counter[str]] = {}
    suspect: dict[tuple[str, int], str] = {}

    def each(row: Row, verdict: Verdict) -> None:
        by_order.setdefault(orders.get(row.member, "causal"), Counter())[verdict.value] += 1
        if verdict is not Verdict.IN_ORDER:
            suspect[row.member, row.lseq] = verdict.value

    report = judge(rows, each=each)
    events = {row.event for row in rows if row.event is not None}
    findings = tuple(
        _finding(kind, text, events)
        for kind, texts in report.violations.items()
        if kind in report.broken
        for text in texts
    )
    return Found(
        verdicts=sum(by_order.values(), Counter()),
        by_order=by_order,
        violations=sum(report.broken.values()),
        findings=findings,
        suspect=suspect,
    )


def _finding(kind: str, text: str, events: set[str]) -> Finding:
    """The oracle's sentences begin with who did it and with what; so the page can show where."""
    member, _, event = [*text.replace(",", "").split(), "", "", ""][:3]
    return Finding(kind, text, member, event) if event in events else Finding(kind, text)
