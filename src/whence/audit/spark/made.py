"""The two ends of an audit of files, with Spark or without: what there is to read, and what was written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from whence.audit.spark import ingest
from whence.audit.spark.findings import TABLES
from whence.audit.spark.ingest import Bad, Piece
from whence.audit.spark.place import Anywhere, TraceFile
from whence.audit.spark.summary import Summary
from whence.audit.spark.tables import NOTES, inputs, publish

WRITTEN: Final = (*TABLES, "in_order")
"""The tables that an audit of files writes."""


class Planned(NamedTuple):
    """What the footers of the files say. They are read once."""

    files: list[TraceFile]
    pieces: list[Piece]
    bad: list[Bad]

    @property
    def rows(self) -> int:
        """About how many."""
        return sum(piece.rows for piece in self.pieces)


def plan(paths: Iterable[Anywhere]) -> Planned:
    """Find the traces at these places and read their footers. Needs no Spark."""
    files = ingest.find(paths)
    return Planned(files, *ingest.plan(files))


class Said(msgspec.Struct):
    """What a task says at its end (`findings.as_files`)."""

    summary: Summary
    files: dict[str, tuple[str, int]]
    """Table -> its file and the rows in it."""
    pictures: list[str]
    note: str | None = None


class Made:
    """What tasks have written, and the sums of it."""

    def __init__(self, design: str) -> None:
        self.total = Summary(design=design)
        self.files: dict[str, list[str]] = {name: [] for name in (*WRITTEN, "shiviz", NOTES)}
        self.rows: Counter[str] = Counter(dict.fromkeys(WRITTEN, 0))

    def add(self, summary: str) -> None:
        """What a task said, as JSON."""
        said = msgspec.json.decode(summary, type=Said)
        self.total.add(said.summary)
        self.wrote(said.files)
        self.files["shiviz"] += said.pictures
        if said.note is not None:
            self.files[NOTES].append(said.note)

    def wrote(self, files: dict[str, tuple[str, int]]) -> None:
        for table, (name, rows) in files.items():
            self.files[table].append(name)
            self.rows[table] += rows


def publish_made(made: Made, planned: Planned, stage: str, out: Anywhere, cost: Mapping[str, float]) -> None:
    """Make what was written the tables of `out`. `cost`: what it took."""
    made.rows["shiviz"] = made.total.pictures
    made.rows[NOTES] = len(made.files[NOTES])
    took = {**cost, "rows": made.total.rows, "bytes": sum(file.size for file in planned.files)}
    facts = {"inputs": inputs(planned.files), "rows": made.total.rows, "design": made.total.design, "cost": took}
    publish(stage, out, made.rows, facts, made.files)
