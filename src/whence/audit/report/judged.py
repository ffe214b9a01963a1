"""The page of rows in hand, judged here. For traces on disk there is the audit."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from whence.audit.judge import Judged, Verdict, judge, rule_broken
from whence.audit.report import RunVerdicts, Suspect, gather, write
from whence.audit.trace import Row


def write_page(rows: list[Row], path: Path, *, title: str, about: str, command: str) -> RunVerdicts:
    """The page of a run, and what was found. Of several clusters it shows the one with most steps, and says so."""
    clusters = Counter(row.cluster for row in rows)
    cluster = clusters.most_common(1)[0][0] if clusters else ""
    if len(clusters) > 1:
        about += f"; cluster {cluster} of {len(clusters)}"
    mine = [row for row in rows if row.cluster == cluster]
    facts = gather(mine, found(mine), title=title, about=about, command=command)
    write(facts, path)
    return facts.found


def found(rows: list[Row]) -> RunVerdicts:
    """The verdict on one run of one cluster."""
    by_order: dict[str, Counter[str]] = {}
    suspect: dict[tuple[str, int], Suspect] = {}

    def each(one: Judged) -> None:
        by_order.setdefault(one.order, Counter())[one.verdict.text] += 1
        if one.verdict is not Verdict.IN_ORDER:
            wrong = rule_broken(one.order, one.verdict) is not None
            suspect[one.member, one.step] = Suspect(one.verdict.text, wrong)

    report = judge(rows, each=each)
    return RunVerdicts(
        by_order=by_order,
        violations=sum(report.broken.values()),
        lost=report.total.lost,
        findings=tuple(report.findings),
        suspect=suspect,
    )
