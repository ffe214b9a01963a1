"""Tables of operations (Arrow, Parquet), and large text files, as a history."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from whence.audit.history.model import NOTHING, Bytes, History, Ints, Longs, Status
from whence.errors import HistoryError

REQUIRED = ("session", "txn", "kind", "key", "value")
SCHEMA = """\
session  string or integer   who
txn      integer             which transaction of the session; session order is the order of this number
op       integer, optional   which operation of the transaction (default: the order of the rows)
kind     string              r (read), w (write) or a (append to a list)
key      integer or string
value    integer or string; null: the initial value. Histories of lists: an array of them for reads
status   string, optional    committed (default), aborted or indeterminate
seq      integer, optional   when the transaction was recorded: a first guess of the commit order, no more
history  string, optional    which history, where a table has many
"""
STATUSES: Final = tuple(Status)
compute: Any = pc


def read_parquet(path: Path) -> Any:
    """The table of operations in a Parquet file; raises HistoryError for a file that is none."""
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise HistoryError(f"{path}: no Parquet file: {str(error).splitlines()[0]}") from None
    if not table.num_rows:
        gate(table, str(path))
        raise HistoryError(f"{path}: the table holds no operation, so there is nothing to check")
    return table


def gate(table: Any, file: str) -> None:
    """Raises HistoryError for a table that is no table of operations, and for the first row that is no operation."""
    missing = [name for name in REQUIRED if name not in table.column_names]
    if missing:
        raise HistoryError(f"{file}: no column {missing[0]!r}; a table of operations has these:\n{SCHEMA}")
    for name in table.column_names:
        kind = table.schema.field(name).type
        number, text, null = pa.types.is_integer(kind), "string" in str(kind), pa.types.is_null(kind)
        good = {"session": number or text, "key": number or text, "kind": text, "status": text or null}
        good |= {"value": number or text or null or is_list(kind), **dict.fromkeys(("txn", "op", "seq"), number)}
        if not good.get(name, True):
            raise HistoryError(f"{file}: the column {name!r} has the type {kind}; a table of operations:\n{SCHEMA}")
        if name in (*REQUIRED, "op", "seq") and name != "value" and table[name].null_count:
            row = compute.index(compute.is_null(table[name]), True).as_py()
            raise HistoryError(f"{file}, row {row}: the column {name!r} is null")
    _known(table, file, "kind", ("r", "w", "a"), "r, w or a")
    if "status" in table.column_names and not pa.types.is_null(table["status"].type):
        _known(table, file, "status", (None, *STATUSES), "committed, aborted or indeterminate")


def _known(table: Any, file: str, name: str, words: tuple[Any, ...], told: str) -> None:
    if not set(table[name].unique().to_pylist()) <= set(words):
        good = compute.is_in(table[name].cast(pa.string()), pa.array(words, pa.string()))
        row = compute.index(good, False).as_py()
        raise HistoryError(f"{file}, row {row}: the {name} is {told}, not {table[name][row].as_py()!r}")


def is_list(kind: Any) -> bool:
    """Whether values of this type are lists."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def from_table(table: Any, file: str) -> History:
    """The history in an Arrow table; see SCHEMA."""
    gate(table, file)
    names, session = _coded(table["session"])
    txn = _longs(table["txn"])
    op = _longs(table["op"]) if "op" in table.column_names else np.arange(txn.size)
    key, key_names, keys = code_keys(table["key"])
    kind = _dictionary(table["kind"])
    write = np.array([word != "r" for word in kind.dictionary.to_pylist()], np.uint8)[kind.indices.to_numpy()]
    lists = is_list(table["value"].type)
    offset, value, value_names = _values(table, file, write) if lists else (None, *_values_of(table["value"]))
    order = _sorted(file, names, session, txn, op)
    notes: list[str] = []
    aborted = (np.empty(0, np.int32), np.empty(0, np.int64))
    if "status" in table.column_names and table["status"].null_count < len(table):
        status = compute.fill_null(table["status"].cast(pa.string()), "committed")
        codes = compute.index_in(status, pa.array(STATUSES, pa.string())).to_numpy()
        _one_status(file, order, session, txn, codes)
        seen = value if offset is None else np.append(value, NOTHING)[offset[:-1]]  # of an append what it appends
        bad = (codes == 1) & (write == 1)
        aborted = (key[bad], seen[bad])
        keep = (codes == 0) | _read_anyhow(codes, session, txn, write, key, value, offset, seen, notes)
        order = order[keep[order]]
    initial = order[(write[order] == 1) & (value[order] == NOTHING)] if offset is None else order[:0]
    if initial.size:
        notes.append(
            f"{file}, row {initial.min()}: a write without a value: {initial.size} of them write the initial value "
            "again; reads of it are taken as reads of the initial state"
        )
    seq = _longs(table["seq"]) if "seq" in table.column_names else None
    made = _history(file, order, session, txn, write, key, value, seq, names)
    made.keys, made.key_names, made.value_names = keys, key_names, value_names
    made.aborted, made.notes = aborted, notes
    if offset is not None:
        sizes = np.diff(offset)[order]
        begin = np.concatenate([[0], np.cumsum(sizes)])
        made.lists = (begin, value[np.repeat(offset[order] - begin[:-1], sizes) + np.arange(begin[-1])])
        made.value = np.empty(0, np.int64)
    return made


def _history(
    file: str, order: Longs, session: Ints, txn: Longs, write: Bytes, key: Ints, value: Longs, seq: Longs | None,
    names: Any,
) -> History:  # fmt: skip
    """The rows in this order, which is by session, transaction and operation."""
    s, t = session[order], txn[order]
    new = np.flatnonzero(np.concatenate([[True], (s[1:] != s[:-1]) | (t[1:] != t[:-1])])) if order.size else order
    there, first = np.unique(s[new], return_index=True)
    return History(
        file,
        np.append(first, new.size).astype(np.int32),
        np.append(new, order.size).astype(np.int64),
        write[order],
        key[order],
        value[order] if value.size == write.size else value,
        0,
        None if seq is None else seq[order[new]],
        session_names=[str(names[each]) for each in there],
        labels=t[new],
        origin=order.astype(np.int32),
    )


def _sorted(file: str, names: Any, session: Ints, txn: Longs, op: Longs) -> Longs:
    """The rows by session, transaction and operation."""
    small = np.uint16 if len(names) < 1 << 16 else np.int32
    order = np.argsort(session.astype(small), kind="stable")  # 16 bits are sorted by radix

    def steps() -> tuple[Any, Any, Any]:
        s, t, o = session[order], txn[order], op[order]
        return s[1:] == s[:-1], np.diff(t), np.diff(o)

    same, later, more = steps()
    if (same & ((later < 0) | ((later == 0) & (more < 0)))).any():
        order = np.lexsort((op, txn, session))
        same, later, more = steps()
    if (twice := np.flatnonzero(same & (later == 0) & (more == 0))).size:
        row = order[twice[0] + 1]
        raise HistoryError(
            f"{file}, row {row}: a second row of session {names[session[row]]}, txn {txn[row]}, op {op[row]}"
        )
    return order


def _one_status(file: str, order: Longs, session: Ints, txn: Longs, codes: Any) -> None:
    s, t, c = session[order], txn[order], codes[order]
    if (bad := np.flatnonzero((s[1:] == s[:-1]) & (t[1:] == t[:-1]) & (c[1:] != c[:-1]))).size:
        one, other = STATUSES[c[bad[0] + 1]], STATUSES[c[bad[0]]]
        raise HistoryError(f"{file}, row {order[bad[0] + 1]}: {one}, but its transaction is {other}")


def _read_anyhow(
    codes: Any, session: Ints, txn: Longs, write: Bytes, key: Ints, value: Longs, offset: Longs | None, seen: Longs,
    notes: list[str],
) -> Any:  # fmt: skip
    """Writes of indeterminate transactions that count as committed: a committed one read one of their writes."""
    open_ = (codes == 2) & (write == 1)
    if not open_.any():
        return open_
    of = np.arange(key.size) if offset is None else np.repeat(np.arange(key.size), np.diff(offset))
    reads = np.flatnonzero((codes[of] == 0) & (write[of] == 0) & (value != NOTHING))
    known = set(zip(key[of[reads]].tolist(), value[reads].tolist(), strict=True))
    rows = np.flatnonzero(open_)
    taken = {(int(session[i]), int(txn[i])) for i in rows if (int(key[i]), int(seen[i])) in known}
    if taken:
        notes.append(f"{len(taken)} indeterminate transactions are taken as committed: their writes were read")
    open_[rows] = [(int(session[i]), int(txn[i])) in taken for i in rows]
    return open_


def _values(table: Any, file: str, write: Bytes) -> tuple[Longs, Longs, Any]:
    """The elements of each operation on a list; an append has one."""
    lists = table["value"]
    sizes = compute.fill_null(compute.list_value_length(lists), 0).to_numpy()
    if (bad := np.flatnonzero((write == 1) & (sizes != 1))).size:
        raise HistoryError(f"{file}, row {bad[0]}: an append has one value, not {sizes[bad[0]]}")
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), *_values_of(compute.list_flatten(lists))


def _values_of(column: Any) -> tuple[Longs, Any]:
    """Values as integers, and the names of these (None: themselves)."""
    if pa.types.is_integer(column.type) or pa.types.is_null(column.type):
        return _longs(column), None
    coded = _dictionary(column)
    return _longs(coded.indices), coded.dictionary.to_pylist()


def _longs(array: Any) -> Longs:
    """As 64-bit integers; null: the initial value."""
    array = array.cast(pa.int64(), safe=False)
    filled = compute.fill_null(array, NOTHING) if array.null_count else array
    return np.asarray(filled.to_numpy(zero_copy_only=False) if isinstance(filled, pa.Array) else filled.to_numpy())


def _coded(column: Any) -> tuple[Any, Ints]:
    """Names in order, and the number of each row's name."""
    coded = _dictionary(column)
    words = np.array(coded.dictionary.to_pylist(), dtype=object)
    order = np.argsort(words if pa.types.is_integer(column.type) else words.astype(str), kind="stable")
    rank = np.empty(order.size, np.int32)
    rank[order] = np.arange(order.size)
    return words[order], rank[coded.indices.to_numpy()]


def _dictionary(column: Any) -> Any:
    coded = column.combine_chunks()
    coded = coded if pa.types.is_dictionary(coded.type) else coded.dictionary_encode()
    return coded.combine_chunks() if hasattr(coded, "combine_chunks") else coded


def code_keys(column: Any) -> tuple[Ints, Any, int]:
    """Keys (an Arrow column, or 64-bit integers) as numbers from 0, the names of these numbers (None: themselves), and
    how many there are."""
    column = pa.chunked_array([pa.array(column)]) if isinstance(column, np.ndarray) else column
    number = pa.types.is_integer(column.type)
    if number and len(column):
        ends = compute.min_max(column).as_py()
        if ends["min"] >= 0 and ends["max"] < 4 * len(column) + 1000:
            return column.to_numpy().astype(np.int32), None, ends["max"] + 1
    coded = _dictionary(column)
    names = coded.dictionary.to_numpy() if number else coded.dictionary.to_pylist()
    return coded.indices.to_numpy().astype(np.int32), names, len(names)


def from_text(path: Path, raw: bytes) -> History | None:
    """Plain text (`formats.read_text`) by way of a table. None: it has what a table does not show (bad lines, loading
    transactions, transactions of a session out of order), so `read_text` must read it line by line."""
    from pyarrow import csv

    data = np.frombuffer(raw, np.uint8)
    last = np.flatnonzero(data == ord(")"))
    opened = np.flatnonzero(data == ord("("))
    ends = np.append(data[last[:-1] + 1] == 10, raw[last[-1] + 1 :].strip() == b"") if last.size else last
    starts = np.concatenate([[0], last[:-1] + 2]) if last.size else last
    if not last.size or opened.size != last.size or not ends.all() or (opened != starts + 1).any():
        return None
    types = {"kind": pa.string(), "key": pa.uint64(), "value": pa.int64(), "session": pa.int32(), "txn": pa.int64()}
    try:
        table = csv.read_csv(
            io.BytesIO(raw.translate(bytes.maketrans(b"()", b",,"))),
            csv.ReadOptions(column_names=[*types, "end"]),
            convert_options=csv.ConvertOptions(column_types=types, include_columns=list(types), null_values=[]),
        )
    except pa.ArrowException:
        return None
    txn, value = table["txn"].to_numpy(), table["value"].to_numpy()
    write = compute.equal(table["kind"], "w").to_numpy()
    if min(txn.min() + 1, compute.min(table["session"]).as_py(), value.min()) < 0 or (write & (value == 0)).any():
        return None
    status = pa.array(np.where(txn < 0, "aborted", "committed")) if (txn < 0).any() else pa.nulls(len(txn))
    made = {"value": pa.array(value, mask=value == 0), "status": status, "seq": np.arange(txn.size)}
    try:
        history = from_table(pa.table({name: table[name] for name in types} | made), str(path))
    except HistoryError:
        return None
    assert history.recorded is not None and history.origin is not None
    if ((np.diff(history.recorded) < 0) & (np.diff(history.session) == 0)).any():  # a later number came first
        return None
    history.unit, history.origin = "line", history.origin + np.int32(1)
    return history
