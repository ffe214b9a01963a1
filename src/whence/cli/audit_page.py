"""The page of an audit: one run of one cluster, the first that broke or else the largest, with what the audit found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from whence.judge import Finding
from whence.judge.promises import NAMES
from whence.report import Suspect, Verdicts, gather, write
from whence.spark import ingest
from whence.spark.ingest import Piece
from whence.spark.place import join, parquet, place_of, write_bytes
from whence.spark.tables import arrow_schema, table_files
from whence.trace import Row

MAX_ROWS = 400_000
"""Steps the page is made of; of a longer run it shows the time around the first thing that went wrong."""
MAX_LOOKED_AT = 5_000_000
"""Steps among which that stretch is looked for."""
MAX_SUSPECTS = 200_000
FINDINGS = 20
COUNTS = dict(zip(NAMES, ("in_order", "inverted", "over_gap", "after_gap", "duplicates", "unknown"), strict=True))
"""Verdict -> the column of `members` that counts it."""


class _Run(NamedTuple):
    run: str
    cluster: str


def write_audit_page(pieces: Sequence[Piece], out: str, command: str) -> str | None:
    """`out/report.html`, from the finished tables in `out` and the traces; None if there is nothing to show."""
    members = _table(out, "members")
    runs = Counter[_Run]()
    for run, cluster, n in zip(*(members[c].to_pylist() for c in ("run", "cluster", "deliveries")), strict=True):
        runs[_Run(run, cluster)] += n
    wrong = _table(out, "violations")
    broken = [_Run(str(r), str(c)) for r, c in zip(wrong["run"].to_pylist(), wrong["cluster"].to_pylist(), strict=True)]
    if not runs:
        return None
    chosen = broken[0] if broken else max(runs, key=lambda run: (runs[run], run))
    found = _found(chosen, members, wrong, out)
    rows, of = _rows(pieces, chosen, found)
    about = f"audited: run {chosen.run}, cluster {chosen.cluster}"
    about += f" (one of {len(runs):,})" if len(runs) > 1 else ""
    about += f"; {len(rows):,} of its {of:,} steps" if of > len(rows) else ""
    page = join(place_of(out), "report.html")
    with TemporaryDirectory() as here:
        local = Path(here) / "report.html"
        write(gather(rows, found, title="whence audit", about=about, command=command), local)
        write_bytes(page, local.read_bytes())
    return page


def _table(out: str, name: str, mine: _Run | None = None, **options: Any) -> pa.Table:
    filters = None if mine is None else (pc.field("run") == mine.run) & (pc.field("cluster") == mine.cluster)
    tables = [pq.read_table(parquet(file), filters=filters, **options) for file in table_files(out, name)]
    return pa.concat_tables(tables) if tables else arrow_schema(name).empty_table()


def _of(table: pa.Table, **wanted: str | int) -> pa.Table:
    """The rows with these values."""
    for column, value in wanted.items():
        if table.num_rows:
            table = table.filter(pc.equal(table[column], pa.scalar(value)))
    return table


def _found(chosen: _Run, members: pa.Table, wrong: pa.Table, out: str) -> Verdicts:
    by_order: dict[str, Counter[str]] = {}
    for member in _of(members, run=chosen.run, cluster=chosen.cluster).to_pylist():
        counts = by_order.setdefault(member["order"], Counter())
        counts.update({verdict: member[column] for verdict, column in COUNTS.items()})
    wrong = _of(wrong, run=chosen.run, cluster=chosen.cluster)
    suspects = _table(out, "verdicts", chosen, columns=["run", "cluster", "member", "lseq", "verdict", "violation"])
    if suspects.num_rows:
        fine = pc.equal(suspects["verdict"], pa.scalar(NAMES[0]))
        suspects = suspects.filter(pc.invert(fine)).slice(0, MAX_SUSPECTS)
    return Verdicts(
        verdicts=sum(by_order.values(), Counter()),
        by_order=by_order,
        violations=wrong.num_rows,
        doubts=_table(out, "doubts", chosen).num_rows,
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
        suspect={(s["member"], s["lseq"]): Suspect(s["verdict"], s["violation"]) for s in suspects.to_pylist()},
    )


def _rows(pieces: Sequence[Piece], chosen: _Run, found: Verdicts) -> tuple[list[Row], int]:
    """The rows of this run, or a stretch of time of them; and how many were looked at."""
    tables: list[pa.Table] = []
    seen = 0
    for piece in pieces:
        if piece.of is not None and piece.of != chosen:
            continue
        table, _ = ingest.read_piece(piece, Row.__struct_fields__)  # what is no row is in the quarantine
        tables.append(_of(table.select(Row.__struct_fields__), run=chosen.run, cluster=chosen.cluster))
        seen += tables[-1].num_rows
        if seen > MAX_LOOKED_AT:
            break
    whole = pa.concat_tables(tables).combine_chunks()
    return [Row(**step) for step in _stretch(whole, found).to_pylist()], seen


def _stretch(steps: pa.Table, found: Verdicts) -> pa.Table:
    """At most `MAX_ROWS` of them: those nearest in time to the first delivery that is not in order, or the first."""
    if steps.num_rows <= MAX_ROWS:
        return steps
    centre = pc.min(steps["t_ns"]).as_py()
    if found.suspect:
        member, lseq = min(found.suspect, key=lambda at: (at[1], at[0]))
        there = _of(steps, member=member, lseq=lseq)
        centre = there["t_ns"][0].as_py() if there.num_rows else centre
    away = pc.abs(pc.subtract(steps["t_ns"], pa.scalar(centre)))
    return steps.take(pc.sort_indices(away).slice(0, MAX_ROWS))
