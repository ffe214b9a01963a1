"""What was found in runs as Arrow tables, and the published schemas of these tables. Text columns are dictionaries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from whence.audit.judge.batch.audited import Audited, Doubts, Found, broken, found, id_on
from whence.audit.judge.batch.coding import END, Coded, Run, codes
from whence.audit.judge.batch.compiled import Ints, Longs
from whence.audit.judge.batch.kernel import AFTER_GAP, DUPLICATE, FIFO_INVERTED, INVERTED, LOST, OVER_GAP, UNKNOWN
from whence.audit.judge.batch.rates import Rate
from whence.audit.judge.promises import NAMES, Verdict
from whence.audit.judge.tickets import owner_of

ARROW: Final[dict[str, pa.DataType]] = {
    "text": pa.string(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "texts": pa.list_(pa.field("element", pa.string(), nullable=False)),
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
    "verdicts": columns(
        "run text!, cluster text!, member text!, lseq int64!, event text, origin text, seq int64, verdict text!, "
        "order text!, cause_origin text, cause_seq int64, cause_event text, violation boolean!"
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
"""`verdicts`: one row per delivery. The cause of `inverted` is the event delivered earlier that has this one in its
past; of `over a gap` the first event skipped; of a `duplicate` the event itself. `violation`: the member's order
forbids it.
`violations`: one row each, `detail` is a sentence, `witness` the events to look at (at most three).
`rates`: one row per run and cluster with members that promise a rate, where it is said what is `allowed`
(`whence.audit.judge.batch.rates`).
`doubts`: one row per member whose trace is absent or incomplete, with the number of deliveries of its events that
cannot be judged for that reason.
`members`: one row per member, with counts."""

SCHEMAS: Final = {name: arrow(table) for name, table in TABLES.items()}

# -- columns


def _array(values: Any, mask: Any = None) -> Any:
    """Arrow's stubs take every NumPy array for one of booleans."""
    return pa.array(values, mask=mask)


def _texts(values: Ints, names: pa.Array[Any], distinct: bool = True) -> Any:
    """Numbers as a dictionary column; negative ones are null. `distinct`: no name is there twice."""
    if not distinct:
        which, names = codes(names)
        values = np.append(which, np.int32(-1))[values]
    gaps = len(values) and values.min() < 0
    return pa.DictionaryArray.from_arrays(_array(values, values < 0 if gaps else None), names, safe=False)


def _whose(runs: list[Run], run: Ints) -> list[Any]:
    """The columns `run` and `cluster`."""
    return [_texts(run, pa.array([named[k] for named in runs], pa.string())) for k in range(2)]


def _table(name: str, columns: list[Any]) -> pa.Table:
    return pa.Table.from_arrays(columns, names=SCHEMAS[name].names).cast(SCHEMAS[name])


def from_rows(table: str, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    """These rows as a table with its schema."""
    schema = SCHEMAS[table]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


# -- verdicts

_NAME_OF: Final = np.array([NAMES.index(verdict.text) for verdict in Verdict], np.int32)
"""Verdict -> which of `NAMES`."""


def _member_of_rows(coded: Coded) -> Ints:
    return np.repeat(np.arange(len(coded.members), dtype=np.int32), np.diff(coded.steps.begin))


def verdicts(a: Audited) -> pa.Table:
    """The table `verdicts`, text as dictionaries."""
    coded, found, one = a.coded, a.found, len(a.coded.runs) == 1
    rows = np.flatnonzero(found.verdict >= 0)
    verdict, member, event = found.verdict[rows], _member_of_rows(coded)[rows], coded.event[rows]
    unknown = verdict == UNKNOWN
    number = np.where(unknown, 0, coded.steps.what[rows])
    if len(coded.known.origin):
        of = coded.known.origin[number]
        origin, seq = coded.member_of[of], number - coded.known.base[of] + 1
    else:
        origin, seq = member.copy(), np.zeros(len(rows), np.int64)
    names = coded.members
    if unknown.any():  # an event that nobody published, of a member that may have no row here
        claimed = [owner_of(id_on(coded, r)) for r in rows[unknown].tolist()]
        extra = sorted({c for c in claimed if c is not None})
        at = {name: len(names) + k for k, name in enumerate(extra)}
        origin[unknown] = [at.get(c or "", -1) for c in claimed]
        names = pa.concat_arrays([names, pa.array(extra, pa.string())])
    order_of, orders = codes(pa.array(coded.order, pa.string()))
    suspects = np.flatnonzero(verdict)
    wrong = np.zeros(len(rows), bool)
    wrong[suspects] = broken(a, rows[suspects], member[suspects])
    if len(coded.dropped):
        wrong |= np.isin(rows, coded.dropped)
    columns = [
        *_whose(coded.runs, np.zeros(len(rows), np.int32) if one else coded.run_of[member]),
        _texts(member, coded.members, one),
        _array(coded.lseq[rows]),
        _texts(event, coded.events, one),
        _texts(origin, names, False),
        _array(seq, unknown if unknown.any() else None),
        _texts(_NAME_OF[verdict], pa.array(NAMES)),
        _texts(order_of[member], orders),
        *_causes(a, suspects, found.cause[rows[suspects]], len(rows)),
        _array(wrong),
    ]
    return pa.Table.from_arrays(columns, names=SCHEMAS["verdicts"].names)


def _causes(a: Audited, rows: Longs, cause: Ints, n: int) -> list[Any]:
    """Origin, seq and id of the events that these of n verdicts are wrong with respect to; the others are in order."""
    coded, some = a.coded, cause >= 0
    origin = coded.known.origin[cause[some]]
    ids, which = np.unique(coded.ids[cause[some]], return_inverse=True)  # all would be written, with each row group
    whose, seq, event = np.full(n, -1, np.int32), np.zeros(n, np.int64), np.full(n, -1, np.int32)
    whose[rows[some]], event[rows[some]] = coded.member_of[origin], which
    seq[rows[some]] = cause[some] - coded.known.base[origin] + 1
    return [_texts(whose, coded.members, False), _array(seq, whose < 0), _texts(event, coded.events.take(ids))]


def exceptions(verdicts: pa.Table) -> pa.Table:
    """Those of the table `verdicts` that are not in order, or break something all the same. Nearly all deliveries are
    in order, and writing that down is a third of the work of an audit."""
    verdict, names = codes(verdicts["verdict"])
    fine = np.array([name == NAMES[0] for name in names.to_pylist()], bool)[verdict]
    wrong = verdicts["violation"].to_numpy(zero_copy_only=False)
    return verdicts.filter(_array(wrong | ~fine))


# -- members, violations, rates, doubts


def members(a: Audited) -> pa.Table:
    """The table `members`: counts."""
    coded, of, kinds = a.coded, _member_of_rows(a.coded), len(Verdict) + 1
    told = (coded.lseq < END) & (coded.steps.kind != LOST)
    steps = np.bincount(of[told], minlength=len(coded.members))
    count = np.bincount(of * np.int64(kinds) + a.found.verdict + 1, minlength=len(coded.members) * kinds)
    count = count.reshape(-1, kinds)[:, 1:]  # without the rows that have no verdict
    inverted = count[:, INVERTED] + count[:, FIFO_INVERTED]
    numbers = [
        *(steps, coded.missing, count.sum(1), count[:, 0], inverted),
        *(count[:, v] for v in (FIFO_INVERTED, OVER_GAP, AFTER_GAP, DUPLICATE, UNKNOWN)),
        *a.found.lost.T,
    ]
    named = [*_whose(coded.runs, coded.run_of), coded.members, pa.array(coded.order, pa.string())]
    columns = [*named, _array(coded.alive == 1), *(pa.array(n.astype(np.int64)) for n in numbers)]
    return _table("members", columns).filter(_array(steps + coded.missing > 0))


def violations(a: Audited) -> pa.Table:
    """The table `violations`: a row for each broken promise."""
    return violations_table(found(a), a.coded.runs)


def violations_table(rows: Iterable[Found], runs: list[Run]) -> pa.Table:
    """These findings as the table."""
    return from_rows(
        "violations", [(*runs[k], f.rule, f.member, f.step, f.event, f.sentence, f.witnesses) for k, f in rows]
    )


def doubts_table(count: Doubts, runs: list[Run]) -> pa.Table:
    """The table `doubts`: a row for each member whose trace is not all here."""
    return from_rows("doubts", [(*runs[k], member, why, n) for (k, member, why), n in sorted(count.items())])


def rates_table(rows: Iterable[tuple[int, Rate]], runs: list[Run]) -> pa.Table:
    """The table `rates`."""
    return from_rows("rates", [(*runs[k], *rate) for k, rate in rows])
