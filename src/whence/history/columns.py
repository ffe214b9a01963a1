"""Columns from large sources: plain text and Arrow tables (Parquet), without an object for each operation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from whence.errors import HistoryError
from whence.history import kernels as k
from whence.history.arrays import Columns, from_history
from whence.history.kernels import Ints, Longs
from whence.history.model import History, Op, Status, Txn, settle
from whence.history.plain import read_text
from whence.history.source import content, decoded

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


def from_text(path: Path) -> Columns:
    """Plain text, one operation a line. What is not plain (loading transactions, bad lines, transactions of a session
    in turns) goes the way of small files, which names it."""
    raw = content(path)
    data = np.frombuffer(raw, np.uint8)
    lines = int(np.count_nonzero(data == 10)) + 1
    write, key, value = np.empty(lines, np.uint8), np.empty(lines, np.int64), np.empty(lines, np.int64)
    session, txn = np.empty(lines, np.int32), np.empty(lines, np.int64)
    count = k.parse_text(data, write, key, value, session, txn)
    if count < 0 or (write[:count].astype(bool) & (value[:count] == 0)).any():
        return from_history(read_text(path, decoded(path, raw)))
    write, key, value, session, txn = write[:count], key[:count], value[:count], session[:count], txn[:count]
    value[value == 0] = k.NOTHING
    codes, names, size = code_keys(key)
    bad = txn < 0
    aborted = (codes[bad], value[bad])
    good = np.flatnonzero(~bad)
    sessions, numbers = np.unique(session[good], return_inverse=True)
    small = np.uint16 if sessions.size < 1 << 16 else np.int32
    place = good[np.argsort(numbers.astype(small), kind="stable")]
    s, t = session[place], txn[place]
    new = np.flatnonzero(np.concatenate([[True], (s[1:] != s[:-1]) | (t[1:] != t[:-1])])) if place.size else place
    pairs = np.stack([s[new].astype(np.int64), t[new]], axis=1)
    if np.unique(pairs, axis=0).shape[0] < new.size:  # transactions of a session in turns
        return from_history(read_text(path, decoded(path, raw)))
    first = np.searchsorted(s[new], sessions).astype(np.int32)
    return Columns(
        str(path),
        np.append(first, np.int32(new.size)),
        np.append(new, place.size).astype(np.int64),
        write[place],
        codes[place],
        value[place],
        size,
        place[new].astype(np.int64),
        aborted,
        key_names=names,
        session_names=[str(each) for each in sessions],
        txn_names=_Called(t[new], s[new]),
    )


class _Called:
    """Names of transactions by their recorded numbers, made when they are asked for."""

    def __init__(self, numbers: Longs, sessions: Ints) -> None:
        self.numbers, self.sessions = numbers, sessions
        self.unique = np.unique(numbers).size == numbers.size

    def __getitem__(self, t: int) -> str:
        return f"t{self.numbers[t]}" if self.unique else f"s{self.sessions[t]}/t{self.numbers[t]}"


def code_keys(keys: Longs) -> tuple[Ints, Any, int]:
    """Keys as numbers from 0, the names of these numbers (None: themselves), and how many there are."""
    if keys.size == 0:
        return np.empty(0, np.int32), None, 0
    low, high = int(keys.min()), int(keys.max())
    if low >= 0 and high < 4 * keys.size + 1000:
        return keys.astype(np.int32), None, high + 1
    table = np.full(1 << (2 * keys.size).bit_length(), -1, np.int64)
    codes = np.empty(keys.size, np.int32)
    count = k.code(keys, table, np.empty(table.size, np.int32), codes)
    names = np.empty(count, np.int64)
    names[codes] = keys
    return codes, names, count


def from_table(table: Any, file: str) -> Columns:
    """The columns of an Arrow table of one history of registers; see SCHEMA."""
    import pyarrow.compute as pc

    gate(table.column_names, file)
    if "status" in table.column_names:
        states = set(pc.unique(table["status"]).to_pylist()) - {None, "committed"}
        if states:  # few rows of a large history: worth an object each only if there are any
            return from_history(history_of(table, file))
    sessions, s = _coded(table["session"])
    t = table["txn"].to_numpy()
    ops = table["op"].to_numpy() if "op" in table.column_names else np.arange(s.size)
    sorted_ = _ascending(s, t, ops)
    place: Any = slice(None)
    if not sorted_:  # often each session is in order by itself: then a stable sort by session is enough
        small = s.astype(np.uint16) if len(sessions) < 1 << 16 else s
        place = np.argsort(small, kind="stable")
        if not _ascending(s[place], t[place], ops[place]):
            place = np.lexsort((ops, t, s))
    s, t = s[place], t[place]
    compute: Any = pc
    kinds = compute.equal(table["kind"], "r").to_numpy()
    keys = table["key"]
    if _integers(keys):
        codes, names, size = code_keys(keys.to_numpy().astype(np.int64))
    else:
        names, codes = _coded(keys)
        size = len(names)
    values, value_names = _values(table["value"])
    new = (
        np.flatnonzero(np.concatenate([[True], (s[1:] != s[:-1]) | (t[1:] != t[:-1])]))
        if s.size
        else np.empty(0, np.int64)
    )
    recorded = table["seq"].to_numpy()[place][new].astype(np.int64) if "seq" in table.column_names else None
    return Columns(
        file,
        np.append(np.searchsorted(s[new], np.arange(len(sessions))), new.size).astype(np.int32),
        np.append(new, s.size).astype(np.int64),
        (~kinds[place]).astype(np.uint8),
        codes[place].astype(np.int32),
        values[place],
        size,
        recorded,
        key_names=names,
        value_names=value_names,
        numbers=t[new],
        session_names=[str(each) for each in sessions],
    )


def gate(names: list[str], file: str) -> None:
    """Raises HistoryError for a table that is no table of operations."""
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        raise HistoryError(f"{file}: no column {missing[0]!r}; a table of operations has these:\n{SCHEMA}")


def _integers(column: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(column.type)) and column.null_count == 0


def _coded(column: Any) -> tuple[Any, Any]:
    """Names in order, and the number of each row's name."""
    if not _integers(column):
        coded = column.combine_chunks().dictionary_encode()
        coded = coded.combine_chunks() if hasattr(coded, "combine_chunks") else coded
        words = np.array(coded.dictionary.to_pylist(), dtype=object)
        order = np.argsort(words.astype(str), kind="stable")
        rank = np.empty(order.size, np.int64)
        rank[order] = np.arange(order.size)
        return words[order], rank[coded.indices.to_numpy()]
    numbers = column.to_numpy()
    if numbers.size and numbers.min() >= 0 and numbers.max() < 1 << 20:  # without a sort of all rows
        there = np.bincount(numbers) > 0
        return np.flatnonzero(there), (np.cumsum(there) - 1)[numbers]
    return np.unique(numbers, return_inverse=True)


def _ascending(s: Any, t: Any, ops: Any) -> bool:
    """Whether rows are sorted by session, transaction and operation."""
    later = (t[1:] > t[:-1]) | ((t[1:] == t[:-1]) & (ops[1:] > ops[:-1]))
    return bool(((s[1:] > s[:-1]) | ((s[1:] == s[:-1]) & later)).all())


def _values(column: Any) -> tuple[Longs, Any]:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_integer(column.type):
        return pc.fill_null(column.cast(pa.int64()), k.NOTHING).to_numpy(), None
    coded = column.combine_chunks().dictionary_encode()
    coded = coded.combine_chunks() if hasattr(coded, "combine_chunks") else coded
    codes = pc.fill_null(coded.indices.cast(pa.int64()), k.NOTHING)
    return codes.to_numpy(zero_copy_only=False), coded.dictionary.to_pylist()


def history_of(table: Any, file: str) -> History:
    """An Arrow table of operations as a history, also of lists and with transactions that did not commit."""
    gate(table.column_names, file)
    found: dict[tuple[str, int], Txn] = {}
    lists = "a" in set(table["kind"].to_pylist()) or "list" in str(table["value"].type)
    rows = table.to_pylist()
    rows.sort(key=lambda row: (str(row["session"]), row["txn"], row.get("op") or 0))
    for n, row in enumerate(rows):
        if row["kind"] not in ("r", "w", "a"):
            raise HistoryError(f"{file}, row {n}: the kind is r, w or a, not {row['kind']!r}")
        place = (str(row["session"]), row["txn"])
        if place not in found:
            status = Status(row.get("status") or "committed")
            found[place] = Txn(place[0], str(place[1]), status=status, recorded=row.get("seq") or 0)
        value = row["value"]
        write = row["kind"] != "r"
        if lists:
            value = (value[0] if isinstance(value, list) else value) if write else tuple(value or ())
        found[place].ops.append(Op(write, row["key"], value))
    return settle(file, found.values(), lists)
