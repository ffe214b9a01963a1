"""Tables of operations (Arrow, Parquet) as columns or, where few rows need more than columns have, as objects."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from whence.audit.history import kernels as k
from whence.audit.history import rows
from whence.audit.history.columns import Columns, code_keys, from_history
from whence.audit.history.kernels import Bytes, Ints, Longs
from whence.audit.history.model import History, Op, Status, Txn, settle
from whence.errors import HistoryError

REQUIRED = ("session", "txn", "kind", "key", "value")
OPTIONAL = ("history", "op", "status", "seq")
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
KINDS: Final = {"r": 0, "w": 1, "a": 1}
compute: Any = pc


def read_parquet(path: Path) -> Any:
    """The table of operations in a Parquet file; raises HistoryError for a file that is none."""
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise HistoryError(f"{path}: no Parquet file: {str(error).splitlines()[0]}") from None
    gate(table, str(path))
    if not table.num_rows:
        raise HistoryError(f"{path}: the table holds no operation, so there is nothing to check")
    return table


def gate(table: Any, file: str) -> None:
    """Raises HistoryError for a table that is no table of operations, and for the first row that is no operation."""
    missing = [name for name in REQUIRED if name not in table.column_names]
    if missing:
        raise HistoryError(f"{file}: no column {missing[0]!r}; a table of operations has these:\n{SCHEMA}")
    for name in table.column_names:
        kind = table.schema.field(name).type
        number, text = pa.types.is_integer(kind), "string" in str(kind)
        good = {
            "session": number or text,
            "key": number or text,
            "kind": text,
            "status": text or pa.types.is_null(kind),
        }
        good |= dict.fromkeys(("txn", "op", "seq"), number)
        good["value"] = number or text or pa.types.is_null(kind) or is_list(kind)
        if not good.get(name, True):
            raise HistoryError(f"{file}: the column {name!r} has the type {kind}; a table of operations:\n{SCHEMA}")
        if name in (*REQUIRED, "op", "seq") and name != "value" and table[name].null_count:
            row = compute.index(compute.is_null(table[name]), True).as_py()
            raise HistoryError(f"{file}, row {row}: the column {name!r} is null")

    if "status" in table.column_names and not pa.types.is_null(table["status"].type):
        good = compute.is_in(table["status"].cast(pa.string()), pa.array([None, *Status], pa.string()))
        if (row := compute.index(good, False).as_py()) >= 0:
            told = f"the status is committed, aborted or indeterminate, not {table['status'][row].as_py()!r}"
            raise HistoryError(f"{file}, row {row}: {told}")


def is_list(kind: Any) -> bool:
    """Whether values of this type are lists."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def from_table(table: Any, file: str) -> Columns:
    """The columns of an Arrow table of one history; see SCHEMA."""
    gate(table, file)
    states = set(table["status"].unique().to_pylist()) - {None, "committed"} if "status" in table.column_names else ()
    if set(states) - {"aborted"}:  # which of the indeterminate ones committed is decided by objects
        return from_history(history_of(table, file))
    aborted = table.slice(0, 0)
    if states:
        gone = compute.fill_null(compute.equal(table["status"], "aborted"), False)
        aborted, table = table.filter(gone), table.filter(compute.invert(gone))
    source = _Source(table, file)
    count = source.survey()
    names = source.sessions
    made = _Made(table.num_rows, count)
    made.fill(source)
    notes = []
    if not source.lists and (initial := np.flatnonzero((made.write == 1) & (made.value == k.NOTHING))).size:
        notes.append(
            f"{file}, row {source.row(made.origin[initial[0]])}: a write without a value: {initial.size} of them write "
            "the initial value again; reads of it are taken as reads of the initial state"
        )
    columns = Columns(
        file, made.first, made.begin, made.write, made.key, made.value, source.keys,
        made.recorded if "seq" in table.column_names else None, notes=notes, key_names=source.key_names,
        value_names=source.value_names, numbers=made.numbers, session_names=[str(each) for each in names],
        origin=made.origin if source.place is None else source.place[made.origin].astype(np.int32),
    )  # fmt: skip
    if source.lists:
        _set_lists(source, columns, made)
    columns.aborted = _aborted(aborted, columns)
    return columns


def _set_lists(source: _Source, columns: Columns, made: _Made) -> None:
    """The elements of each operation; an append has one."""
    lists = source.table["value"].take(pa.array(made.origin))
    sizes = compute.fill_null(compute.list_value_length(lists), 0).to_numpy()
    flat = compute.list_flatten(lists)
    if (bad := np.flatnonzero((made.write == 1) & (sizes != 1))).size:
        row = source.row(made.origin[bad[0]])
        raise HistoryError(f"{source.file}, row {row}: an append has one value, not {sizes[bad[0]]}")
    if pa.types.is_integer(flat.type) or pa.types.is_null(flat.type):
        elements = np.concatenate([_longs(chunk) for chunk in flat.chunks] or [np.empty(0, np.int64)])
    else:
        elements, columns.value_names = _coded_values(flat)
    columns.lists = (np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), elements)


def _aborted(table: Any, columns: Columns) -> tuple[Ints, Longs]:
    """What aborted transactions wrote, coded; what nobody else names cannot have been read."""
    writes = [row for row in table.select(["kind", "key", "value"]).to_pylist() if row["kind"] != "r"]
    if columns.lists is not None:
        writes = [{**row, "value": (row["value"] or [None])[0]} for row in writes]
    keys, values = {row["key"] for row in writes}, {row["value"] for row in writes}

    def codes(names: Any, wanted: set[Any]) -> dict[Any, int]:
        if names is None:
            return {each: each for each in wanted if each is not None}
        return {each: i for i, name in enumerate(names) if (each := name) in wanted}

    key_code, value_code = codes(columns.key_names, keys), codes(columns.value_names, values)
    pairs = [
        (key_code[row["key"]], value_code[row["value"]])
        for row in writes
        if key_code.get(row["key"], columns.keys) < columns.keys and row["value"] in value_code
    ]
    return np.array([x for x, _ in pairs], np.int32), np.array([v for _, v in pairs], np.int64)


class _Batch(NamedTuple):
    """Some rows, as the kernels take them."""

    offset: int
    session: Ints
    txn: Longs
    op: Longs
    write: Bytes
    key: Longs
    value: Longs
    seq: Longs


class _Source:
    """A table whose rows are read batch by batch, twice: to count them, and to put them where they belong."""

    def __init__(self, table: Any, file: str) -> None:
        self.table, self.file = table, file
        self.sessions, self.codes = _coded(table["session"])
        self.place: Any = None
        """Where each row was before it had to be sorted; None: it did not have to be."""
        self.key_codes: Any = None
        self.key_names: Any = None
        keys = table["key"]
        if pa.types.is_integer(keys.type):
            ends = compute.min_max(keys).as_py()
            low, high = (ends["min"], ends["max"]) if table.num_rows else (0, -1)
            self.keys = high + 1
            if low < 0 or high >= 4 * table.num_rows + 1000:
                self.key_codes, self.key_names, self.keys = code_keys(keys.cast(pa.int64(), safe=False).to_numpy())
        else:
            self.key_names, self.key_codes = _coded(keys)
            self.keys = len(self.key_names)
        self.value_names: Any = None
        self.values: Any = None
        self.lists = is_list(table["value"].type)
        if self.lists:  # the elements are fetched when the rows are in order
            self.values = np.zeros(table.num_rows, np.int64)
        elif not pa.types.is_integer(table["value"].type) and not pa.types.is_null(table["value"].type):
            self.values, self.value_names = _coded_values(table["value"])

    def row(self, i: int) -> int:
        return int(i if self.place is None else self.place[i])

    def survey(self) -> tuple[Longs, Longs]:
        """Rows and transactions of each session. Sorts the table if a session is out of order."""
        for again in (False, True):
            count = len(self.sessions)
            counts = [np.zeros(count, np.int64) for _ in range(4)]
            for batch in self.batches(True):
                found = rows.survey(batch.session, batch.txn, batch.op, *counts)
                if found >= 0:
                    raise HistoryError(
                        f"{self.file}, row {self.row(batch.offset + found)}: a second row of session "
                        f"{self.sessions[batch.session[found]]}, txn {batch.txn[found]}, op {batch.op[found]}"
                    )
                if found == rows.UNSORTED:
                    break
            else:
                return counts[0], counts[1]
            assert not again, "sorted rows are in order"
            self._sort()
        raise AssertionError

    def _sort(self) -> None:
        ops = self.table["op"].to_numpy() if "op" in self.table.column_names else np.arange(self.codes.size)
        self.place = np.lexsort((ops, self.table["txn"].to_numpy(), self.codes))
        self.codes = self.codes[self.place]
        self.table = self.table.take(pa.array(self.place))
        if "op" not in self.table.column_names:
            self.table = self.table.append_column("op", pa.array(self.place))
        if self.key_codes is not None:
            self.key_codes = self.key_codes[self.place]
        if self.values is not None:
            self.values = self.values[self.place]

    def batches(self, brief: bool = False) -> Iterator[_Batch]:
        """`brief`: without keys and values."""
        offset = 0
        nothing, no_bytes = np.empty(0, np.int64), np.empty(0, np.uint8)
        for batch in self.table.to_batches():
            end = offset + batch.num_rows
            names = batch.schema.names
            session, txn = self.codes[offset:end], _longs(batch["txn"])
            if brief:
                op = _longs(batch["op"]) if "op" in names else np.arange(offset, end)
                yield _Batch(offset, session, txn, op, no_bytes, nothing, nothing, nothing)
            else:
                key = _longs(batch["key"]) if self.key_codes is None else self.key_codes[offset:end].astype(np.int64)
                value = _longs(batch["value"]) if self.values is None else self.values[offset:end]
                seq = _longs(batch["seq"]) if "seq" in names else np.zeros(batch.num_rows, np.int64)
                yield _Batch(offset, session, txn, nothing, self._writes(batch["kind"], offset), key, value, seq)
            offset = end

    def _writes(self, kinds: Any, offset: int) -> Bytes:
        kinds = kinds if pa.types.is_dictionary(kinds.type) else kinds.dictionary_encode()
        words = kinds.dictionary.to_pylist()
        code: Bytes = np.array([KINDS.get(word, 2) for word in words], np.uint8)[kinds.indices.to_numpy()]
        if 2 in (KINDS.get(word, 2) for word in words) and (bad := np.flatnonzero(code == 2)).size:
            place = f"{self.file}, row {self.row(offset + int(bad[0]))}"
            raise HistoryError(f"{place}: the kind is r, w or a, not {kinds[int(bad[0])].as_py()!r}")
        return code


class _Made:
    """The columns of a history while they are filled."""

    def __init__(self, size: int, count: tuple[Longs, Longs]) -> None:
        per_session, txns = count
        self.first = np.concatenate([[0], np.cumsum(txns)]).astype(np.int32)
        self.at = np.concatenate([[0], np.cumsum(per_session)])[:-1].astype(np.int64)
        total = int(self.first[-1])
        self.numbers, self.recorded = np.empty(total, np.int64), np.empty(total, np.int64)
        self.begin = np.empty(total + 1, np.int64)
        self.begin[total] = size
        self.write, self.key = np.empty(size, np.uint8), np.empty(size, np.int32)
        self.value, self.origin = np.empty(size, np.int64), np.empty(size, np.int32)

    def fill(self, source: _Source) -> None:
        last = self.first[:-1] - np.int32(1)
        for batch in source.batches():
            rows.scatter(
                batch.session, batch.txn, batch.write, batch.key, batch.value, batch.seq, self.first, self.at, last,
                self.numbers, self.begin, self.recorded, self.write, self.key, self.value, self.origin, batch.offset,
            )  # fmt: skip


def _longs(array: Any) -> Longs:
    """As 64-bit integers of our own; null: the initial value."""
    filled = compute.fill_null(array.cast(pa.int64(), safe=False), k.NOTHING)
    return np.array(filled.to_numpy(zero_copy_only=False), np.int64)


def _coded(column: Any) -> tuple[Any, Ints]:
    """Names in order, and the number of each row's name."""
    if pa.types.is_integer(column.type):
        numbers = column.to_numpy()
        if numbers.size and numbers.min() >= 0 and numbers.max() < 1 << 20:  # without a sort of all rows
            there = np.bincount(numbers) > 0
            return np.flatnonzero(there), (np.cumsum(there) - 1).astype(np.int32)[numbers]
        names, codes = np.unique(numbers, return_inverse=True)
        return names, codes.astype(np.int32)
    coded = _dictionary(column)
    words = np.array(coded.dictionary.to_pylist(), dtype=object)
    order = np.argsort(words.astype(str), kind="stable")
    rank = np.empty(order.size, np.int32)
    rank[order] = np.arange(order.size)
    return words[order], rank[coded.indices.to_numpy()]


def _dictionary(column: Any) -> Any:
    coded = column.combine_chunks()
    coded = coded if pa.types.is_dictionary(coded.type) else coded.dictionary_encode()
    return coded.combine_chunks() if hasattr(coded, "combine_chunks") else coded


def _coded_values(column: Any) -> tuple[Longs, Any]:
    coded = _dictionary(column)
    codes = compute.fill_null(coded.indices.cast(pa.int64()), k.NOTHING)
    return codes.to_numpy(zero_copy_only=False), coded.dictionary.to_pylist()


def history_of(table: Any, file: str) -> History:
    """An Arrow table of operations as a history, also of lists and with transactions that did not commit."""
    gate(table, file)
    found: dict[tuple[str, int], Txn] = {}
    lists = "a" in set(table["kind"].to_pylist()) or is_list(table["value"].type)
    order = {name: n for n, name in enumerate(sorted(set(table["session"].to_pylist())))}
    numbered = list(enumerate(table.to_pylist()))
    numbered.sort(key=lambda each: (order[each[1]["session"]], each[1]["txn"], each[1].get("op") or 0))
    for n, row in numbered:
        if row["kind"] not in KINDS:
            raise HistoryError(f"{file}, row {n}: the kind is r, w or a, not {row['kind']!r}")
        place = (str(row["session"]), row["txn"])
        status = Status(row.get("status") or "committed")
        if place not in found:
            found[place] = Txn(place[0], str(place[1]), status=status, recorded=row.get("seq") or 0)
        if found[place].status is not status:
            raise HistoryError(f"{file}, row {n}: {status}, but its transaction is {found[place].status}")
        value = row["value"]
        write = row["kind"] != "r"
        if lists:
            value = (value[0] if isinstance(value, list) else value) if write else tuple(value or ())
        found[place].ops.append(Op(write, row["key"], value))
    return settle(file, found.values(), lists)
