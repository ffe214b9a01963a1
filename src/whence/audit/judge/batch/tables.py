"""What was found in a run as Arrow tables; the schemas are in `schemas`. Text columns are dictionaries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whence.audit.judge.batch import kernel
from whence.audit.judge.batch.audited import Audited, broken, found, id_on
from whence.audit.judge.batch.coding import END
from whence.audit.judge.batch.compiled import Ints, Longs, Small, compiled
from whence.audit.judge.batch.schemas import SCHEMAS
from whence.audit.judge.batch.verdicts import AFTER_GAP, DUPLICATE, FIFO_INVERTED, INVERTED, OVER_GAP, UNKNOWN
from whence.audit.judge.findings import Doubt, Finding
from whence.audit.judge.follow import owner_of
from whence.audit.judge.promises import NAMES
from whence.audit.judge.rates import Rate


def _array(values: Any, mask: Any = None) -> Any:
    """Arrow's stubs take every NumPy array for one of booleans."""
    return pa.array(values, mask=mask)


def coded_texts(values: Ints, names: pa.Array[Any]) -> Any:
    """Numbers as a dictionary column; negative ones are null."""
    gaps = len(values) and values.min() < 0
    return pa.DictionaryArray.from_arrays(_array(values, values < 0 if gaps else None), names, safe=False)


def _constants(n: int, *values: str) -> list[Any]:
    """A column for each value, which is the same n times."""
    zeros = _array(np.zeros(n, np.int32))
    return [pa.DictionaryArray.from_arrays(zeros, pa.array([value]), safe=False) for value in values]


def _sparse(values: NDArray[Any], at: Longs, n: int) -> Any:
    """A column of n with these values at these places, null elsewhere."""
    full: Any = np.zeros(n, values.dtype)
    there = np.zeros(n, bool)
    full[at], there[at] = values, True
    bits: Any = np.packbits(there, bitorder="little")
    return pa.Array.from_buffers(
        pa.from_numpy_dtype(values.dtype), n, [pa.py_buffer(bits), pa.py_buffer(full)], n - len(at)
    )


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


def verdicts(a: Audited, run: str, cluster: str) -> pa.Table:
    """The table `verdicts`, text as dictionaries."""
    coded, past, found = a.coded, a.past, a.found
    rows, member, event, lseq, origin, seq, name = _columns(
        coded.steps.begin, found.verdict, coded.steps.what, coded.event, coded.lseq, past.origin, past.base,
        coded.member_of,
    )  # fmt: skip
    names, no_seq = coded.members, None
    if len(seq) and seq.min() == 0:  # an event that nobody published, of a member that may have no row here
        unknown = no_seq = seq == 0
        claimed = [owner_of(id_on(coded, r)) for r in rows[unknown].tolist()]
        extra = sorted({c for c in claimed if c is not None})
        at = {name: len(names) + k for k, name in enumerate(extra)}
        origin[unknown] = [at.get(c or "", -1) for c in claimed]
        names = pa.concat_arrays([names, pa.array(extra, pa.string())])
    orders = sorted(set(coded.order))
    order_of = np.array([orders.index(o) for o in coded.order] or [0], np.int32)
    suspects = np.flatnonzero(name)
    constant = _constants(len(rows), run, cluster, *orders[:1])
    wrong = np.zeros(len(rows), bool)
    wrong[suspects] = broken(a, rows[suspects], member[suspects])
    if len(coded.dropped):
        wrong |= np.isin(rows, coded.dropped)
    columns = [
        *constant[:2],
        coded_texts(member, coded.members),
        _array(lseq),
        coded_texts(event, coded.events),
        coded_texts(origin, names),
        _array(seq, no_seq),
        coded_texts(name, pa.array(NAMES)),
        coded_texts(order_of[member], pa.array(orders)) if len(orders) > 1 else constant[2],
        *_causes(a, suspects, found.cause[rows[suspects]], len(rows)),
        _array(wrong),
    ]
    return pa.Table.from_arrays(columns, names=SCHEMAS["verdicts"].names)


def _causes(a: Audited, rows: Longs, cause: Ints, n: int) -> list[Any]:
    """Origin, seq and id of the events that these of n verdicts are wrong with respect to; the others are in order."""
    coded, past = a.coded, a.past
    rows, cause = rows[cause >= 0], cause[cause >= 0]
    if not len(cause):
        texts = pa.nulls(n, pa.dictionary(pa.int32(), pa.string()))
        return [texts, pa.nulls(n, pa.int64()), texts]
    origin = past.origin[cause]
    ids, which = np.unique(coded.ids[cause], return_inverse=True)  # all would be written, with each row group
    return [
        pa.DictionaryArray.from_arrays(_sparse(coded.member_of[origin], rows, n), coded.members),
        _sparse(cause - past.base[origin] + 1, rows, n),
        pa.DictionaryArray.from_arrays(_sparse(which.astype(np.int32), rows, n), coded.events.take(ids)),
    ]


def _origin_member(a: Audited, e: Ints) -> Ints:
    """Events -> the member that published each; -1 for -1."""
    if not len(a.past.origin):
        return np.full(len(e), -1, np.int32)
    out: Ints = np.where(e >= 0, a.coded.member_of[a.past.origin[e]], np.int32(-1))
    return out


def _seqs(past: kernel.Past, e: Ints) -> Any:
    if not len(past.origin) or not (e >= 0).any():
        return pa.nulls(len(e), pa.int64())
    return pa.array(e - past.base[past.origin[e]] + 1, mask=e < 0)


def past_table(a: Audited, run: str, cluster: str) -> pa.Table:
    """The table `past`: whole vectors, from the news."""
    coded, past = a.coded, a.past
    origins, events = len(past.base) - 1, len(past.origin)
    vectors = kernel.vectors(past).astype(np.int64)
    offsets = _array(np.arange(0, (events + 1) * origins, max(origins, 1), dtype=np.int32)[: events + 1])
    everything = np.arange(events, dtype=np.int32)
    columns = [
        *_constants(events, run, cluster),
        coded_texts(coded.ids, coded.events),
        coded_texts(_origin_member(a, everything), coded.members),
        _seqs(past, everything),
        pa.ListArray.from_arrays(offsets, _array(vectors.ravel())),
    ]
    return _table("past", columns)


def origins_table(a: Audited, run: str, cluster: str) -> pa.Table:
    """The table `origins`: which entry of a vector is whose."""
    n = len(a.coded.member_of)
    columns = [
        *_constants(n, run, cluster),
        pa.array(np.arange(n, dtype=np.int32)),
        coded_texts(a.coded.member_of, a.coded.members),
    ]
    return _table("origins", columns)


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


def _table(name: str, columns: list[Any]) -> pa.Table:
    return pa.Table.from_arrays(columns, names=SCHEMAS[name].names).cast(SCHEMAS[name])


def members(a: Audited, run: str, cluster: str) -> pa.Table:
    """The table `members`: counts."""
    coded, losses = a.coded, a.losses
    n = len(coded.members)
    steps, count = _counts(coded.steps.begin, coded.lseq, a.found.verdict, END)
    inverted = count[:, INVERTED] + count[:, FIFO_INVERTED]
    columns = [
        *_constants(n, run, cluster),
        coded.members,
        pa.array(coded.order, pa.string()),
        _array(coded.alive == 1),
        *(pa.array(c.astype(np.int64)) for c in (steps, coded.missing, count.sum(1), count[:, 0], inverted)),
        *(pa.array(count[:, v].astype(np.int64)) for v in (FIFO_INVERTED, OVER_GAP, AFTER_GAP, DUPLICATE, UNKNOWN)),
        *(pa.array(c) for c in (losses.gaps, losses.lost, losses.lost_of_live, losses.disagreed)),
    ]
    table = _table("members", columns)
    return table.filter(_array(steps > 0))


def violations(a: Audited, run: str, cluster: str) -> pa.Table:
    """The table `violations`: a row for each broken promise."""
    return violations_table(found(a), run, cluster)


def violations_table(rows: Iterable[Finding], run: str, cluster: str) -> pa.Table:
    """These findings as the table."""
    made = [(run, cluster, f.rule, f.member, f.step, f.event, f.sentence, f.witnesses) for f in rows]
    return from_rows("violations", made)


def doubts_table(rows: Iterable[Doubt], run: str, cluster: str) -> pa.Table:
    """The table `doubts`: a row for each member whose trace is not all here."""
    return from_rows("doubts", [(run, cluster, d.member, d.why, d.count) for d in rows])


def rates_table(rows: Iterable[Rate], run: str, cluster: str) -> pa.Table:
    """The table `rates`."""
    return from_rows("rates", [(run, cluster, *rate) for rate in rows])


def from_rows(table: str, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    """These rows as a table with its schema."""
    schema = SCHEMAS[table]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)
