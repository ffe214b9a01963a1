"""Client histories on Spark: many side by side, one task for each.

    from whence.audit.spark import histories
    checked = histories.check(df, levels=["RC", "RA", "TCC"])

docs/histories.md has the schema of the operations.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from whence.audit.history import Level
from whence.audit.history import check as check_one
from whence.audit.history.levels import PATTERNS
from whence.audit.history.story import story
from whence.audit.history.tables import REQUIRED, SCHEMA, from_table
from whence.audit.judge.batch.tables import arrow, columns
from whence.audit.spark.session import check_workers
from whence.errors import HistoryError

RESULT: Final = arrow(
    columns(
        "history text, part text, level text, holds boolean, operations int64, transactions int64, sessions int64, "
        "pattern text, count int64, guarantee text, story text, finding text, smallest boolean, position int64, "
        "session text, txn int64, notes text, seconds double"
    )
)
FIELDS: Final = {
    "verdict": ("history", "level", "holds", "operations", "transactions", "sessions", "notes", "seconds"),
    "finding": ("history", "level", "pattern", "count", "guarantee", "story", "finding", "smallest"),
    "order": ("history", "level", "position", "session", "txn"),
}


@dataclass(frozen=True)
class Checked:
    """The answer, as tables."""

    verdicts: DataFrame
    """A row for each history and level: whether it holds."""
    findings: DataFrame
    """A row for each finding: pattern, how many of it there are, the story, and the finding as JSON."""
    order: DataFrame
    """With `certificate`: the commit order that proves the strongest level that holds."""


def check(df: DataFrame, levels: Sequence[Level] | None = None, certificate: bool = False) -> Checked:
    """Check the operations in `df`. With a column `history` each history is one task; without, all rows are of one."""
    missing = [name for name in REQUIRED if name not in df.columns]
    if missing:
        raise HistoryError(f"the DataFrame has no column {missing[0]!r}; operations have these:\n{SCHEMA}")
    check_workers(df.sparkSession)
    if "history" not in df.columns:
        df = df.withColumn("history", F.lit("history"))

    def one(key: tuple[Any, ...], table: pa.Table) -> pa.Table:
        return judged(str(key[0].as_py()), table, levels, certificate)

    grouped: Any = df.groupBy("history")
    rows = grouped.applyInArrow(one, from_arrow_schema(RESULT)).persist(StorageLevel.MEMORY_AND_DISK)
    return Checked(*(rows.where(F.col("part") == part).select(*FIELDS[part]) for part in FIELDS))


def judged(name: str, table: pa.Table, levels: Sequence[Level] | None = None, certificate: bool = False) -> pa.Table:
    """What is found in one history, as rows of RESULT."""
    report = check_one(from_table(table, name), levels)
    sizes: dict[str, Any] = {"operations": report.operations, "transactions": report.transactions}
    sizes |= {"sessions": report.sessions, "seconds": report.seconds}
    sizes |= {"notes": "; ".join(report.notes) or None}
    rows = [{"part": "verdict", "level": level, "holds": holds, **sizes} for level, holds in report.levels.items()]
    shown = {finding.pattern: finding for finding in reversed(report.findings)}
    smallest = report.counterexample()
    shown |= {smallest.pattern: smallest} if smallest else {}
    told = story(report) if report.findings else None
    for pattern, count in report.patterns.items():
        row = {"part": "finding", "level": PATTERNS[pattern][0][0], "pattern": pattern, "count": count, "story": told}
        if (finding := shown.get(pattern)) is not None:
            row |= {"guarantee": finding.guarantee, "finding": json.dumps(report.finding_dict(finding), default=str)}
        rows.append(row | {"smallest": finding is not None and finding is smallest})
    if certificate and report.order is not None:
        for position, t in enumerate(report.order):
            session, txn = report.history.place(int(t))
            row = {"part": "order", "level": report.certified, "position": position}
            rows.append(row | {"session": session, "txn": txn})
    rows = [{"history": name, **row} for row in rows]
    return pa.Table.from_pylist(rows, schema=RESULT)
