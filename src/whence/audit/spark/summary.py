"""An audit in numbers, and in the first sentences of each rule."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from whence.audit.judge.batch.audited import Audited
from whence.audit.judge.batch.coding import picked
from whence.audit.judge.findings import Doubt
from whence.audit.judge.promises import NAMES
from whence.audit.judge.rates import UNDECIDED, Rate
from whence.audit.spark.ingest import Bad
from whence.audit.spark.json_lines import RAW_LIMIT

SHOWN: Final = 5
"""Violations of a run that are shown, of each rule; all of them are in the table."""


@dataclass
class Summary:
    """An audit in numbers."""

    rows: int = 0
    runs: int = 0
    """Runs of clusters."""
    members: int = 0
    published: int = 0
    deliveries: int = 0
    verdicts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(NAMES, 0))
    violations: dict[str, int] = field(default_factory=dict)
    """By rule."""
    first: dict[str, list[str]] = field(default_factory=dict)
    """The first of each rule, in words."""
    repeated: int = 0
    """Rows that were there before, alike."""
    missing: int = 0
    """Steps of members that no row tells of: verdicts there are given in doubt for the member."""
    circles: int = 0
    """Members that waited for what waited for them: no execution can have left such a trace."""
    doubts: int = 0
    """Deliveries, events and steps that cannot be judged: the traces of some members are not all here."""
    unjudged: list[str] = field(default_factory=list)
    """The first of these doubts, in words."""
    rates: dict[str, int] = field(default_factory=dict)
    """Error rates of runs, by outcome (`whence.audit.judge.rates`)."""
    rated: list[str] = field(default_factory=list)
    """The first of them, in words."""
    quarantined: int = 0
    pictures: int = 0
    """ShiViz logs of violations."""
    design: str = ""

    def add(self, other: Summary) -> None:
        """Another run."""
        for name, n in vars(other).items():
            if isinstance(n, int):
                setattr(self, name, getattr(self, name) + n)
        self.verdicts = _sum(self.verdicts, other.verdicts)
        self.violations = _sum(self.violations, other.violations)
        for rule, texts in other.first.items():
            self.first[rule] = (self.first.get(rule, []) + texts)[:SHOWN]
        self.unjudged = (self.unjudged + other.unjudged)[:SHOWN]
        self.rates = _sum(self.rates, other.rates)
        self.rated = (self.rated + other.rated)[:SHOWN]

    def doubt(self, table: pa.Table) -> None:
        """What cannot be judged: the table `doubts`."""
        self.doubts = sum(map(int, filter(None, table["deliveries"].to_pylist())))
        first = table.slice(0, SHOWN).to_pylist()
        self.unjudged = [str(Doubt(row["member"], row["reason"], row["deliveries"])) for row in first]

    def rate(self, found: Iterable[Rate]) -> None:
        """The error rates of runs."""
        rates = list(found)
        self.rates = dict(Counter(rate.outcome for rate in rates))
        self.rated = [str(rate) for rate in rates[:SHOWN]]

    @property
    def sure(self) -> bool:
        """Everything could be judged."""
        return not self.doubts and UNDECIDED not in self.rates

    @property
    def clean(self) -> bool:
        """No promise was broken, as far as can be told."""
        return not self.violations


def _sum(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
    return {name: a.get(name, 0) + b.get(name, 0) for name in [*a, *(n for n in b if n not in a)]}


def summed(a: Audited, members: pa.Table, wrong: pa.Table, rows: int) -> Summary:
    """What was found in runs, in numbers."""

    def total(name: str) -> int:
        return sum(map(int, filter(None, members[name].to_pylist())))

    names = ("in_order", "inverted", "over_gap", "after_gap", "duplicates", "unknown")
    return Summary(
        rows=rows,
        runs=len(a.coded.runs),
        members=members.num_rows,
        published=len(a.coded.known.origin),
        deliveries=total("deliveries"),
        verdicts=dict(zip(NAMES, map(total, names), strict=True)),
        **counted(wrong),
        repeated=a.coded.repeated,
        missing=total("missing"),
        circles=a.circles,
    )


def counted(wrong: pa.Table) -> dict[str, Any]:
    """Violations by rule, and the first of each."""
    first: dict[str, list[str]] = {}
    rules = [str(rule) for rule in wrong["rule"].to_pylist()]
    for rule, detail in zip(rules, wrong["detail"].to_pylist(), strict=True):
        if len(first.setdefault(rule, [])) < SHOWN:
            first[rule].append(str(detail))
    return {"violations": dict(sorted(Counter(rules).items())), "first": first}


def conflicts(table: pa.Table, rows: list[int]) -> list[Bad]:
    """Rows that contradict others of the same step."""
    out = []
    for row in picked(table, np.array(rows, np.int64)):
        file, position = row.pop("file"), row.pop("position")
        why = f"step {row['lseq']} of {row['member']} is told of in different ways"
        said = {name: value for name, value in row.items() if value is not None and name not in ("run", "cluster")}
        out.append(Bad(file, position, why, json.dumps(said)[:RAW_LIMIT]))
    return out
