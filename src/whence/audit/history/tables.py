"""Tables of operations (Arrow, Parquet), and large text files, as a history."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from whence.audit.history.model import NOTHING, STATUSES, Bytes, History, Ints, Longs, happened
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
SHOWN: Final = 80
"""Characters of a bad line that an error shows."""
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


def read_rows(path: Path, raw: bytes) -> Any:
    """The table of operations in JSON lines, or in CSV with a header: a field that is empty and not quoted is null."""
    from pyarrow import csv, json

    try:
        if raw.lstrip()[:1] == b"{":
            return json.read_json(io.BytesIO(raw))
        nulls = csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False, null_values=[""])
        return csv.read_csv(io.BytesIO(raw), convert_options=nulls)
    except pa.ArrowException as error:
        raise HistoryError(f"{path}: no table of operations: {str(error).splitlines()[0]}") from None


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
    return happened(*_recorded(table, file))


def _recorded(table: Any, file: str, lines: Ints | None = None) -> tuple[History, Bytes | None]:
    """All transactions, and the status of each (None: all committed). `lines`: of each row, its line in a text file."""
    session, names = _coded(table["session"])
    txn = _longs(table["txn"])
    op = _longs(table["op"]) if "op" in table.column_names else np.arange(txn.size)
    key, key_names = _coded(table["key"])
    kind = _dictionary(table["kind"])
    write = np.array([word != "r" for word in kind.dictionary.to_pylist()], np.uint8)[kind.indices.to_numpy()]
    order = _sorted(file, names, session, txn, op)
    s, t = session[order], txn[order]
    new = np.flatnonzero(np.concatenate([[True], (s[1:] != s[:-1]) | (t[1:] != t[:-1])])) if order.size else order
    there, first = np.unique(s[new], return_index=True)
    lists = None
    if is_list(table["value"].type):
        offset, value, value_names = _values(table, file, write)
        sizes = np.diff(offset)[order]
        begin = np.concatenate([[0], np.cumsum(sizes)])
        lists = begin, value[np.repeat(offset[order] - begin[:-1], sizes) + np.arange(begin[-1])]
    else:
        value, value_names = _values_of(table["value"])
    history = History(
        file,
        np.append(first, new.size).astype(np.int32),
        np.append(new, order.size).astype(np.int64),
        write[order],
        key[order],
        value[order] if lists is None else np.empty(0, np.int64),
        len(key_names),
        _longs(table["seq"])[order[new]] if "seq" in table.column_names else None,
        key_names=key_names,
        value_names=value_names,
        session_names=[str(names[each]) for each in there],
        labels=t[new],
        origin=(order if lines is None else lines[order]).astype(np.int32),
        unit="row" if lines is None else "line",
        lists=lists,
    )
    if "status" not in table.column_names or table["status"].null_count == len(table):
        return history, None
    return history, _status(table["status"], order, history)


def _status(column: Any, order: Longs, history: History) -> Bytes:
    """The status of each transaction; raises HistoryError for a transaction with several."""
    status = compute.fill_null(column.cast(pa.string()), "committed")
    codes = compute.index_in(status, pa.array(STATUSES, pa.string())).to_numpy()[order]
    made = codes[history.begin[:-1]]
    if (bad := np.flatnonzero(codes != np.repeat(made, np.diff(history.begin)))).size:
        one, other = STATUSES[codes[bad[0]]], STATUSES[codes[bad[0] - 1]]
        raise HistoryError(f"{history.where(bad[0])}: {one}, but its transaction is {other}")
    return made.astype(np.uint8)  # type: ignore[no-any-return]


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


def _coded(column: Any) -> tuple[Ints, Sequence[Any]]:
    """Names as numbers from 0, and the name of each number. Small integers are their own numbers."""
    if pa.types.is_integer(column.type) and len(column):
        ends = compute.min_max(column).as_py()
        if ends["min"] >= 0 and ends["max"] < 4 * len(column) + 1000:
            return column.to_numpy().astype(np.int32), range(ends["max"] + 1)
    coded = _dictionary(column)
    return coded.indices.to_numpy().astype(np.int32), coded.dictionary.to_pylist()


def _dictionary(column: Any) -> Any:
    coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    return coded.combine_chunks()


# -- plain text

LINE: Final = re.compile(r"[rw]\(\d{1,20},\d{1,19},\d{1,9},(\d{1,19}|-1)\)")
"""An operation; longer numbers than these do not fit into the columns."""


def from_text(path: Path, raw: bytes) -> History:
    """Plain text, one operation a line: `w(key,value,session,txn)`. Value 0 is the initial value, transaction -1 an
    aborted write. The transactions of a session come in the order of their first lines."""
    lines = None if _regular(raw) else _numbered(path, raw)
    table = _parsed(path, raw if lines is None else b"\n".join(lines.values()), raw)
    numbers = np.array(range(1, len(table) + 1) if lines is None else list(lines), np.int32)
    history, status = _recorded(table, str(path), numbers)
    assert history.recorded is not None
    if ((np.diff(history.recorded) < 0) & (np.diff(history.session) == 0)).any():  # a later number came first
        txn = table["txn"].to_numpy()
        pairs = np.stack([table["session"].to_numpy(), txn])
        _, first, which = np.unique(pairs, axis=1, return_index=True, return_inverse=True)
        table = table.set_column(4, "txn", pa.array(first[which.reshape(-1)]))
        history, status = _recorded(table, str(path), numbers)
        history.labels = txn[history.labels]
    return happened(history, status)


def _parsed(path: Path, lines: bytes, raw: bytes) -> Any:
    """The lines as a table; raises HistoryError for the first one of `raw` that is no operation."""
    from pyarrow import csv

    types = {"kind": pa.string(), "key": pa.uint64(), "value": pa.int64(), "session": pa.int32(), "txn": pa.int64()}
    try:
        table = csv.read_csv(
            io.BytesIO(lines.translate(bytes.maketrans(b"()", b",,"))),
            csv.ReadOptions(column_names=[*types, "end"]),
            convert_options=csv.ConvertOptions(column_types=types, include_columns=list(types), null_values=[]),
        )
    except pa.ArrowException as error:
        _numbered(path, raw)
        raise HistoryError(f"{path}: cannot be read: {str(error)[:SHOWN]}") from None
    txn, value = table["txn"].to_numpy(), table["value"].to_numpy()
    odd = {*table["kind"].unique().to_pylist()} - {"r", "w"}
    if odd or min(txn.min() + 1, compute.min(table["session"]).as_py(), value.min()) < 0:
        _numbered(path, raw)
    status = pa.array(np.where(txn < 0, "aborted", "committed")) if (txn < 0).any() else pa.nulls(len(txn))
    made = {"value": pa.array(value, mask=value == 0), "status": status, "seq": np.arange(txn.size)}
    return pa.table({name: table[name] for name in types} | made)


def _regular(raw: bytes) -> bool:
    """Whether each line has its parentheses in the right places, so that it need not be looked at by itself."""
    data = np.frombuffer(raw, np.uint8)
    last, opened = np.flatnonzero(data == ord(")")), np.flatnonzero(data == ord("("))
    if not last.size or opened.size != last.size or raw[last[-1] + 1 :].strip() or b" " in raw:
        return False
    starts = np.append(0, last[:-1] + 2)
    return bool((data[last[:-1] + 1] == ord("\n")).all() and (opened == starts + 1).all())


def _numbered(path: Path, raw: bytes) -> dict[int, bytes]:
    """Line number -> line, without empty ones; raises HistoryError for the first that is no operation."""
    found: dict[int, bytes] = {}
    for number, line in enumerate(decoded(path, raw).splitlines(), 1):
        if line.strip():
            if LINE.fullmatch(line) is None:
                raise bad_line(path, number, line, "an operation such as w(1,7,0,0): [rw](key,value,session,txn)")
            found[number] = line.encode()
    return found


def decoded(path: Path, raw: bytes) -> str:
    """As UTF-8, without a byte order mark."""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise HistoryError(
            f"{path}, line {line}: no text (byte {raw[error.start]:#04x}); is it another format?"
        ) from None


def bad_line(path: Path, line: int, text: str, wanted: str) -> HistoryError:
    """The error for a line that does not parse."""
    shown = text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
    return HistoryError(f"{path}, line {line}: {shown!r} is not {wanted}")
