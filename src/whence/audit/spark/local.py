"""The audit in this process, without Spark: the same judge and the same tables, for traces that fit into memory.

Runs are judged one after the other. A run needs about 200 bytes a row; where files hold rows of several runs, all of
them are read together. Nothing here, nor in what it imports, loads pyspark.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from whence.audit.spark import ingest
from whence.audit.spark.blocks import judge_pieces
from whence.audit.spark.findings import Terms, as_files
from whence.audit.spark.ingest import Piece
from whence.audit.spark.kept import kept_of
from whence.audit.spark.made import Made, Planned, plan, publish_made
from whence.audit.spark.parts import Parts
from whence.audit.spark.place import Anywhere
from whence.audit.spark.summary import Summary
from whence.audit.spark.tables import staging

TASK_ROWS: Final = 1_000_000
"""Rows that are judged before a note of it is left: a killed audit loses no more."""


def audit_here(
    paths: Iterable[Anywhere],
    out: Anywhere,
    *,
    planned: Planned | None = None,
    progress: Callable[[str], None] = lambda what: None,
    complete: bool = False,
    error_rate: float | None = None,
    sparse: bool = False,
    fresh: bool = False,
) -> Summary:
    """As `whence.audit.spark.job.audit_files`, without Spark."""
    terms = Terms(complete, error_rate)
    planned = planned or plan(paths)
    progress(f"auditing about {planned.rows:,} rows of {len(planned.files):,} files here, without Spark")
    made, begun = Made("local"), time.monotonic()
    kept = kept_of(planned, terms, sparse)
    with staging(out, lambda stage: None if fresh else kept.take(stage, made, out, progress)) as stage:
        with Parts(stage, "files") as parts:
            parts.write("quarantine", ingest.bad_table(planned.bad))
        made.wrote(parts.written)
        for runs in _tasks(kept.left(planned.pieces)):
            groups = kept.of([piece for mine in runs for piece in mine])
            for batch in as_files(stage, "run", sparse).emit(judge_pieces(runs, terms), groups):
                made.add(batch["summary"][0].as_py())
        made.total.quarantined = made.rows["quarantine"]
        publish_made(made, planned, stage, out, {"seconds": round(time.monotonic() - begun, 3)})
    return made.total


def _tasks(pieces: Sequence[Piece]) -> Iterator[list[list[Piece]]]:
    """The pieces of each run together, and so many runs that it is worth a note; all together, if somewhere only the
    rows tell of which run they are."""
    if any(piece.of is None for piece in pieces):
        yield [list(pieces)]
        return
    runs: dict[tuple[str, str] | None, list[Piece]] = {}
    for piece in pieces:
        runs.setdefault(piece.of, []).append(piece)
    task: list[list[Piece]] = []
    rows = 0
    for mine in runs.values():
        task.append(mine)
        rows += sum(piece.rows for piece in mine)
        if rows >= TASK_ROWS:
            yield task
            task, rows = [], 0
    if task:
        yield task
