"""The page of an audit: one run of one cluster, the first that broke or else the largest, with what the audit found.

Whatever the size of the trace, it takes about a second: counts come from the finished tables, and of the steps of the
run only those around the first thing that went wrong are read (`near`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from whence.audit.judge import Finding
from whence.audit.judge.promises import NAMES
from whence.audit.report import Suspect, Verdicts, gather, write
from whence.audit.spark.ingest import Piece
from whence.audit.spark.place import join, parquet, place_of, write_bytes
from whence.audit.spark.tables import arrow_schema, table_files
from whence.cli import near

MAX_ROWS = 1_000_000
"""Rows of a table that are looked through for the run to show and for what is wrong in it."""
FINDINGS = 20
COUNTS = dict(zip(NAMES, ("in_order", "inverted", "over_gap", "after_gap", "duplicates", "unknown"), strict=True))
"""Verdict -> the column of `members` that counts it."""


class _Run(NamedTuple):
    run: str
    cluster: str


def write_audit_page(pieces: Sequence[Piece], out: str, runs: int, command: str) -> str | None:
    """`out/report.html`, from the finished tables in `out` and these traces; None if there is nothing to show. `runs`:
    how many were audited."""
    chosen = _chosen(out)
    if chosen is None:
        return None
    found = _found(chosen, out)
    first = next(iter(found.findings), None)
    about_step = first.member if first else None, first.step if first else None
    if about_step[1] is None and found.suspect:
        about_step = min(found.suspect, key=lambda at: (at[1], at[0]))
    rows = near.rows(pieces, chosen, *about_step)
    about = f"audited: run {chosen.run}, cluster {chosen.cluster}"
    about += f" (one of {runs:,})" if runs > 1 else ""
    about += f"; {len(rows):,} of its {found.steps:,} steps" if found.steps > len(rows) else ""
    page = join(place_of(out), "report.html")
    with TemporaryDirectory() as here:
        local = Path(here) / "report.html"
        write(gather(rows, found, title="whence audit", about=about, command=command), local)
        write_bytes(page, local.read_bytes())
    return page


def _batches(out: str, name: str, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """The first `MAX_ROWS` rows of a table, some at a time. There is one at least."""
    left = MAX_ROWS
    yield arrow_schema(name).empty_table().select(list(columns or arrow_schema(name).names))
    for file in table_files(out, name):
        with pq.ParquetFile(parquet(file)) as opened:
            for batch in opened.iter_batches(columns=list(columns) if columns else None):
                if left <= 0:
                    return
                left -= batch.num_rows
                yield pa.Table.from_batches([batch])


def _of(out: str, name: str, chosen: _Run) -> pa.Table:
    """The rows of this run in a table, as far as it is looked through."""
    run, cluster = pc.field("run") == chosen.run, pc.field("cluster") == chosen.cluster
    found = [batch.cast(arrow_schema(name)).filter(run & cluster) for batch in _batches(out, name)]
    return pa.concat_tables(found)


def _chosen(out: str) -> _Run | None:
    """The first run with a violation, or else the one with most deliveries."""
    for wrong in _batches(out, "violations", ("run", "cluster")):
        for row in wrong.slice(0, 1).to_pylist():
            return _Run(str(row["run"]), str(row["cluster"]))
    runs = Counter[_Run]()
    for members in _batches(out, "members", ("run", "cluster", "deliveries")):
        counts = members.group_by(["run", "cluster"]).aggregate([("deliveries", "sum")])
        for row in counts.to_pylist():
            runs[_Run(str(row["run"]), str(row["cluster"]))] += row["deliveries_sum"]
    return max(runs, key=lambda run: (runs[run], run), default=None)


def _found(chosen: _Run, out: str) -> Verdicts:
    by_order: dict[str, Counter[str]] = {}
    members = _of(out, "members", chosen).to_pylist()
    for member in members:
        counts = by_order.setdefault(member["order"], Counter())
        counts.update({verdict: member[column] for verdict, column in COUNTS.items()})
    wrong = _of(out, "violations", chosen)
    return Verdicts(
        verdicts=sum(by_order.values(), Counter()),
        by_order=by_order,
        violations=wrong.num_rows,
        doubts=_of(out, "doubts", chosen).num_rows,
        steps=sum(member["steps"] for member in members),
        lost=sum(member["lost"] for member in members),
        findings=tuple(
            Finding(
                rule=v["rule"],
                member=v["member"] or "",
                step=v["lseq"],
                event=v["event"],
                witnesses=tuple(v["witness"] or ()),
                sentence=v["detail"],
            )
            for v in wrong.slice(0, FINDINGS).to_pylist()
        ),
        suspect=_suspects(chosen, out),
    )


def _suspects(chosen: _Run, out: str) -> dict[tuple[str, int], Suspect]:
    """Deliveries that are not in order."""
    found: dict[tuple[str, int], Suspect] = {}
    columns = ("run", "cluster", "member", "lseq", "verdict", "violation")
    mine = (pc.field("run") == chosen.run) & (pc.field("cluster") == chosen.cluster)
    for batch in _batches(out, "verdicts", columns):
        rows: Any = batch.filter(mine & (pc.field("verdict") != NAMES[0]))
        for row in rows.to_pylist():
            found[row["member"], row["lseq"]] = Suspect(row["verdict"], row["violation"])
    return found
