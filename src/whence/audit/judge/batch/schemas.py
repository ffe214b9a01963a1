"""The published schemas of the tables that the judge fills, for Arrow."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

ARROW: Final[dict[str, pa.DataType]] = {
    "text": pa.string(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "texts": pa.list_(pa.field("element", pa.string(), nullable=False)),
    "int64s": pa.list_(pa.field("element", pa.int64(), nullable=False)),
}

Columns = tuple[tuple[str, str, bool], ...]
"""(name, type, required) of each column, in order."""


def columns(written: str) -> Columns:
    """Parse `name type, name type!`; `!` marks a column that is never null."""
    pairs = (column.split() for column in written.split(", "))
    return tuple((name, kind.rstrip("!"), kind.endswith("!")) for name, kind in pairs)


def arrow(table: Columns) -> pa.Schema:
    """The Arrow schema of these columns."""
    return pa.schema([pa.field(name, ARROW[kind], nullable=not required) for name, kind, required in table])


TABLES: Final[dict[str, Columns]] = {
    "origins": columns("run text!, cluster text!, index int32!, member text!"),
    "past": columns("run text!, cluster text!, event text!, origin text!, seq int64!, vector int64s!"),
    "verdicts": columns(
        "run text!, cluster text!, member text!, lseq int64!, event text, origin text, seq int64, verdict text!, "
        "order text!, cause_origin text, cause_seq int64, cause_event text, violation boolean!"
    ),
    "in_order": columns(
        "run text!, cluster text!, member text!, order text!, lseq int64!, last int64!, deliveries int64!"
    ),
    "violations": columns(
        "run text!, cluster text!, rule text!, member text!, lseq int64, event text, detail text!, witness texts!"
    ),
    "rates": columns(
        "run text!, cluster text!, members int64!, deliveries int64!, inverted int64!, clump double!, low double!, "
        "high double!, allowed double!, outcome text!"
    ),
    "doubts": columns("run text!, cluster text!, member text!, reason text!, deliveries int64!"),
    "members": columns(
        "run text!, cluster text!, member text!, order text!, alive boolean!, steps int64!, missing int64!, "
        "deliveries int64!, in_order int64!, inverted int64!, fifo_inverted int64!, over_gap int64!, after_gap int64!, "
        "duplicates int64!, unknown int64!, gaps int64!, lost int64!, lost_of_live int64!, disagreements int64!"
    ),
}
"""`origins`, `past`: the true past of event (origin, seq) is `vector[i]` events of the origin with index i, earlier
events of its own origin included.
`verdicts`: one row per delivery. The cause of `inverted` is the event delivered earlier that has this one in its past;
of `over a gap` the first event skipped; of a `duplicate` the event itself. `violation`: the member's order forbids it.
`in_order`: where `verdicts` is sparse (exceptions only): `deliveries` of this member in a row were in order, from step
`lseq` to step `last`. Empty where `verdicts` has a row for every delivery.
`violations`: one row each, `detail` is a sentence, `witness` the events to look at (at most three).
`rates`: one row per run and cluster with members that promise a rate, where it is said what is `allowed`
(`whence.audit.judge.rates`).
`doubts`: one row per member whose trace is absent or incomplete, with the number of deliveries of its events that
cannot be judged for that reason.
`members`: one row per member, with counts."""

SCHEMAS: Final = {name: arrow(table) for name, table in TABLES.items()}
