"""What was found in runs as Arrow tables, and the published schemas of these tables. Text columns are dictionaries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whence.audit.judge.batch import kernel
from whence.audit.judge.batch.audited import Audited, Doubts, Found, broken, found, id_on, to_follow
from whence.audit.judge.batch.coding import END, Run, codes
from whence.audit.judge.batch.compiled import Ints, Longs, Small, compiled
from whence.audit.judge.batch.kernel import AFTER_GAP, DUPLICATE, FIFO_INVERTED, INVERTED, OVER_GAP, UNKNOWN
from whence.audit.judge.findings import Finding
from whence.audit.judge.follow import Judged
from whence.audit.judge.promises import NAMES
from whence.audit.judge.rates import Rate
from whence.audit.judge.tickets import owner_of

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


def _sparse(values: NDArray[Any], at: Longs, n: int) -> Any:
    """A column of n with these values at these places, null elsewhere."""
    full: Any = np.zeros(n, values.dtype)
    there = np.zeros(n, bool)
    full[at], there[at] = values, True
    bits: Any = np.packbits(there, bitorder="little")
    return pa.Array.from_buffers(
        pa.from_numpy_dtype(values.dtype), n, [pa.py_buffer(bits), pa.py_buffer(full)], n - len(at)
    )


def _sparse_texts(values: Ints, names: pa.Array[Any], at: Longs, n: int) -> Any:
    which, names = codes(names)
    return pa.DictionaryArray.from_arrays(_sparse(which[values], at, n), names)


def _table(name: str, columns: list[Any]) -> pa.Table:
    return pa.Table.from_arrays(columns, names=SCHEMAS[name].names).cast(SCHEMAS[name])


def from_rows(table: str, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    """These rows as a table with its schema."""
    schema = SCHEMAS[table]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


# -- verdicts


@compiled
def _columns(
    begin: Longs, verdict: Small, what: Ints, event: Ints, lseq: Longs, past_origin: Ints, base: Longs, member_of: Ints
) -> tuple[Longs, Ints, Ints, Longs, Ints, Longs, Ints]:
    """Of every delivery: row, member, id, `lseq`, origin's member, seq, and which verdict."""
    n = 0
    for r in range(len(verdict)):
        n += verdict[r] >= 0
    row, member, ids, steps = np.empty(n, np.int64), np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int64)
    origin, seq, name = np.full(n, -1, np.int32), np.zeros(n, np.int64), np.empty(n, np.int32)
    k = 0
    for m in range(len(begin) - 1):
        for r in range(begin[m], begin[m + 1]):
            v = verdict[r]
            if v >= 0:
                row[k], member[k], ids[k], steps[k] = r, m, event[r], lseq[r]
                name[k] = v - 1 if v > INVERTED else v
                if v != UNKNOWN:
                    o = past_origin[what[r]]
                    origin[k] = member_of[o]
                    seq[k] = what[r] - base[o] + 1
                k += 1
    return row, member, ids, steps, origin, seq, name


def verdicts(a: Audited) -> pa.Table:
    """The table `verdicts`, text as dictionaries."""
    coded, found = a.coded, a.found
    rows, member, event, lseq, origin, seq, name = _columns(
        coded.steps.begin, found.verdict, coded.steps.what, coded.event, coded.lseq, coded.known.origin,
        coded.known.base, coded.member_of,
    )  # fmt: skip
    names, no_seq, one = coded.members, None, len(coded.runs) == 1
    if len(seq) and seq.min() == 0:  # an event that nobody published, of a member that may have no row here
        unknown = no_seq = seq == 0
        claimed = [owner_of(id_on(coded, r)) for r in rows[unknown].tolist()]
        extra = sorted({c for c in claimed if c is not None})
        at = {name: len(names) + k for k, name in enumerate(extra)}
        origin[unknown] = [at.get(c or "", -1) for c in claimed]
        names = pa.concat_arrays([names, pa.array(extra, pa.string())])
    orders = sorted(set(coded.order))
    place = {order: k for k, order in enumerate(orders)}
    order_of = np.array([place[o] for o in coded.order] or [0], np.int32)
    suspects = np.flatnonzero(name)
    wrong = np.zeros(len(rows), bool)
    wrong[suspects] = broken(a, rows[suspects], member[suspects])
    if len(coded.dropped):
        wrong |= np.isin(rows, coded.dropped)
    columns = [
        *_whose(coded.runs, np.zeros(len(rows), np.int32) if one else coded.run_of[member]),
        _texts(member, coded.members, one),
        _array(lseq),
        _texts(event, coded.events, one),
        _texts(origin, names, False),
        _array(seq, no_seq),
        _texts(name, pa.array(NAMES)),
        _texts(order_of[member] if len(orders) > 1 else np.zeros(len(rows), np.int32), pa.array(orders, pa.string())),
        *_causes(a, suspects, found.cause[rows[suspects]], len(rows)),
        _array(wrong),
    ]
    return pa.Table.from_arrays(columns, names=SCHEMAS["verdicts"].names)


def _causes(a: Audited, rows: Longs, cause: Ints, n: int) -> list[Any]:
    """Origin, seq and id of the events that these of n verdicts are wrong with respect to; the others are in order."""
    coded = a.coded
    rows, cause = rows[cause >= 0], cause[cause >= 0]
    if not len(cause):
        texts = pa.nulls(n, pa.dictionary(pa.int32(), pa.string()))
        return [texts, pa.nulls(n, pa.int64()), texts]
    origin = coded.known.origin[cause]
    ids, which = np.unique(coded.ids[cause], return_inverse=True)  # all would be written, with each row group
    return [
        _sparse_texts(coded.member_of[origin], coded.members, rows, n),
        _sparse(cause - coded.known.base[origin] + 1, rows, n),
        _sparse_texts(which.astype(np.int32), coded.events.take(ids), rows, n),
    ]


def told(judged: Iterable[Judged], found: Iterable[Finding], run: Run) -> pa.Table:
    """The table `verdicts`, text as text, from the incremental form of the judge. `found`: what it found with them."""
    wrong = {(finding.member, finding.step) for finding in found if finding.doubt is None}
    rows: list[tuple[Any, ...]] = []
    for one in judged:
        cause = (None, None, None) if one.cause is None else (one.cause.origin, one.cause.seq, one.cause.id)
        at = (one.member, one.step)
        rows.append((*run, *at, one.event, one.origin, one.seq, one.verdict.text, one.order, *cause, at in wrong))
    return from_rows("verdicts", rows)


def sparse(verdicts: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The table `verdicts`, by run, member and step, as its exceptions and the table `in_order`: ranges of deliveries
    that are in order and break nothing, with nothing else in between. Nearly all deliveries are in order, and writing
    that down is a third of the work of an audit."""
    n = verdicts.num_rows
    verdict, names = codes(verdicts["verdict"])
    wrong = verdicts["violation"].to_numpy(zero_copy_only=False)
    fine = (verdict == names.to_pylist().index(NAMES[0])) & ~wrong if NAMES[0] in names.to_pylist() else wrong & ~wrong
    moves = np.ones(n, bool)
    moves[1:] = False
    for name in ("run", "cluster", "member"):
        of, _ = codes(verdicts[name])
        moves[1:] |= of[1:] != of[:-1]
    first = fine & (moves | ~np.append(False, fine[:-1]))
    last = fine & (np.append(moves[1:], True) | ~np.append(fine[1:], False))
    at, to = np.flatnonzero(first), np.flatnonzero(last)
    lseq = verdicts["lseq"].to_numpy()
    begin: Any = pa.array(at)
    kept = verdicts.select(["run", "cluster", "member", "order"]).take(begin)
    numbers: list[Any] = [lseq[at], lseq[to], to - at + 1]
    columns = [*kept.columns, *(pa.array(values.astype(np.int64)) for values in numbers)]
    exceptions: Any = pa.array(~fine)
    return verdicts.filter(exceptions), pa.Table.from_arrays(columns, names=SCHEMAS["in_order"].names)


# -- pasts


def past_table(a: Audited) -> pa.Table:
    """The table `past`: whole vectors, of all runs. An event itself is not in its past, but what its origin published
    before it is."""
    coded, events = a.coded, a.coded.known
    sizes, parts, todo = [np.zeros(1, np.int64)], [np.empty(0, np.int64)], to_follow(coded)
    for k in range(len(coded.runs)):
        vectors = kernel.vectors(coded.steps, coded.joins, events, kernel.whole(coded.parts, events, k), todo)
        sizes.append(np.full(vectors.shape[0], vectors.shape[1], np.int64))
        parts.append(vectors.astype(np.int64).ravel())
    everything = np.arange(len(events.origin), dtype=np.int32)
    member = coded.member_of[events.origin]
    columns = [
        *_whose(coded.runs, coded.run_of[member]),
        coded.events.take(coded.ids),
        coded.members.take(member),
        _array(everything - events.base[events.origin] + 1),
        pa.ListArray.from_arrays(
            _array(np.cumsum(np.concatenate(sizes)).astype(np.int32)), _array(np.concatenate(parts))
        ),
    ]
    return _table("past", columns)


def origins_table(a: Audited) -> pa.Table:
    """The table `origins`: which entry of a vector is whose."""
    coded, run = a.coded, a.coded.run_of[a.coded.member_of]
    index = np.arange(len(run)) - coded.parts.origin[run]
    columns = [*_whose(coded.runs, run), _array(index.astype(np.int32)), coded.members.take(coded.member_of)]
    return _table("origins", columns)


# -- members, violations, rates, doubts


@compiled
def _counts(begin: Longs, lseq: Longs, verdict: Small, end: int) -> tuple[Longs, Longs]:
    """Steps, and deliveries by verdict, of every member."""
    members = len(begin) - 1
    steps, count = np.zeros(members, np.int64), np.zeros((members, 7), np.int64)
    for m in range(members):
        for r in range(begin[m], begin[m + 1]):
            steps[m] += lseq[r] < end
            if verdict[r] >= 0:
                count[m, verdict[r]] += 1
    return steps, count


def members(a: Audited) -> pa.Table:
    """The table `members`: counts."""
    coded = a.coded
    steps, count = _counts(coded.steps.begin, coded.lseq, a.found.verdict, END)
    inverted = count[:, INVERTED] + count[:, FIFO_INVERTED]
    numbers = [
        *(steps, coded.missing, count.sum(1), count[:, 0], inverted),
        *(count[:, v] for v in (FIFO_INVERTED, OVER_GAP, AFTER_GAP, DUPLICATE, UNKNOWN)),
        *a.found.lost.T,
    ]
    named = [*_whose(coded.runs, coded.run_of), coded.members, pa.array(coded.order, pa.string())]
    columns = [*named, _array(coded.alive == 1), *(pa.array(n.astype(np.int64)) for n in numbers)]
    return _table("members", columns).filter(_array(steps > 0))


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
