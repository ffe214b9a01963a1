"""The verdict on the trace of one run, as rows at hand: what `whence.audit.judge.judge` is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import fields

import pyarrow as pa

from whence.audit.judge.batch import audited, tables
from whence.audit.judge.batch.coding import READ, code
from whence.audit.judge.batch.compiled import interpreted
from whence.audit.judge.findings import Doubt, Finding
from whence.audit.judge.promises import AGREEMENT, RULES
from whence.audit.judge.report import KEPT, Counts, Report
from whence.audit.trace import Row, by_member
from whence.errors import TraceError

FEW = 20_000
"""Rows that are interpreted: less than a second, and compiling takes many."""


def judge(rows: Iterable[Row], *, complete: bool = True) -> Report:
    """The verdict on the trace of one run of one cluster, rows in any order. `complete`: what is missing in the trace
    did not happen; a missing step is a TraceError. Otherwise nobody is accused of what nobody published, or of what a
    member lacks at the end, and what depends on missing steps is in doubt."""
    rows = list(rows)
    if len(several := {(row.run, row.cluster) for row in rows}) > 1:
        first, other = sorted(several)[:2]
        raise TraceError(f"rows of two runs or clusters: {first} and {other}; take one at a time")
    if complete:
        by_member(rows)
    columns = {name: [getattr(row, name) for row in rows] for name in READ[2:]}
    kinds = {name: pa.int64() if name in ("lseq", "t_ns", "ticket") else pa.string() for name in columns}
    table = pa.table({name: pa.array(values, kinds[name]) for name, values in columns.items()})
    with interpreted(len(rows) <= FEW):
        a = audited.audited(code(table, complete=complete))
        found = [one for _, one in audited.found(a)]
        members = {row["member"]: row for row in tables.members(a).to_pylist()}
        doubts = audited.doubts(a)
    broken = Counter(one.rule for one in found)
    if complete:  # counted in events
        broken[AGREEMENT] += sum(last - first for m, first, last, _ in a.lacks.tolist() if not a.found.vague[m])
    kept: list[Finding] = [one for rule in RULES for one in [f for f in found if f.rule == rule][:KEPT]]
    return Report(
        published=len(a.coded.known.origin),
        members={name: Counts(**{f.name: one[f.name] for f in fields(Counts)}) for name, one in members.items()},
        live=[name for name, one in members.items() if one["alive"]],
        broken={rule: broken[rule] for rule in RULES if broken[rule]},
        findings=kept,
        doubts=[Doubt(member, why, n) for (_, member, why), n in sorted(doubts.items())],
        tenures=len(audited.tenures(a.coded)),
    )
