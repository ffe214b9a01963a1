"""A history as columns: one entry an operation, without an object for each. From objects, and from large text files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from whence.audit.history import kernels as k
from whence.audit.history import rows
from whence.audit.history.kernels import Bytes, Ints, Longs
from whence.audit.history.model import History, Key, Op, Value, elements
from whence.audit.history.plain import read_text
from whence.audit.history.report import names_of
from whence.audit.history.source import content, decoded


@dataclass(slots=True)
class Columns:
    """One history, sorted by session, transaction and operation."""

    file: str
    first: Ints
    """Of each session: the number of its first transaction; one more entry for all."""
    begin: Longs
    """Of each transaction: its first operation; one more entry for all."""
    write: Bytes
    key: Ints
    """Coded 0, 1, ..."""
    value: Longs
    """`kernels.NOTHING`: the initial value."""
    keys: int
    recorded: Longs | None = None
    """Of each transaction: when it was recorded, a guess for the commit order."""
    aborted: tuple[Ints, Longs] = field(default_factory=lambda: (np.empty(0, np.int32), np.empty(0, np.int64)))
    notes: list[str] = field(default_factory=list)
    key_names: Any = None
    """Code -> key; None: the code is the key."""
    value_names: Any = None
    session_names: Sequence[str] | None = None
    numbers: Longs | None = None
    """The transactions' own numbers, where the source has them."""
    txn_names: Any = None
    """By number; None: session and position."""
    origin: Ints | None = None
    """Of each operation: its row in a table, or its line in a file."""
    unit: str = "row"
    lists: tuple[Longs, Longs] | None = None
    """Histories of lists: where the elements of each operation begin, one more entry for all; and the elements."""

    def key_of(self, code: int) -> Key:
        return int(code) if self.key_names is None else _plain(self.key_names[code])

    def value_of(self, code: int) -> Value:
        if code == k.NOTHING:
            return None
        return int(code) if self.value_names is None else _plain(self.value_names[code])

    def place(self, i: int) -> str:
        """Where operation i stands, for a message."""
        return self.file if self.origin is None else f"{self.file}, {self.unit} {self.origin[i]}"

    def ops(self, t: int) -> list[Op]:
        return [
            Op(bool(self.write[i]), self.key_of(self.key[i]), self._seen(i))
            for i in range(self.begin[t], self.begin[t + 1])
        ]

    def _seen(self, i: int) -> Value:
        if self.lists is None:
            return self.value_of(self.value[i])
        offset, element = self.lists
        seen: Any = tuple(self.value_of(each) for each in element[offset[i] : offset[i + 1]])
        return seen[0] if self.write[i] else seen  # type: ignore[no-any-return]


def _plain(name: Any) -> Any:
    return name.item() if isinstance(name, np.generic) else name


def from_history(history: History) -> Columns:
    """The columns of a history; keys and values are coded."""
    keys: dict[Key, int] = {}
    values: dict[Value, int] = {}
    txns = list(history.txns())
    write, key, value, sizes_of = [], [], [], [0]
    for txn in txns:
        for op in txn.ops:
            write.append(op.write)
            key.append(keys.setdefault(op.key, len(keys)))
            seen = elements(op.value)
            value += [values.setdefault(each, len(values)) for each in seen]
            sizes_of.append(len(seen))
            if not history.lists and not seen:
                value.append(k.NOTHING)
    bad = [(op.key, op.value) for txn in history.aborted for op in txn.ops if op.write]
    known = [(keys[x], values[v]) for x, v in bad if x in keys and v in values]
    sizes = [len(txn.ops) for txn in txns]
    return Columns(
        history.file,
        np.cumsum([0, *(len(s) for s in history.sessions.values())]).astype(np.int32),
        np.cumsum([0, *sizes]).astype(np.int64),
        np.array(write, np.uint8),
        np.array(key, np.int32),
        np.empty(0, np.int64) if history.lists else np.array(value, np.int64),
        len(keys),
        np.array([txn.recorded for txn in txns], np.int64),
        (np.array([x for x, _ in known], np.int32), np.array([v for _, v in known], np.int64)),
        list(history.notes),
        list(keys),
        list(values),
        list(history.sessions),
        txn_names=names_of(history),
        lists=(np.cumsum(sizes_of), np.array(value, np.int64)) if history.lists else None,
    )


def from_text(path: Path) -> Columns:
    """Plain text, one operation a line. What is not plain (loading transactions, bad lines, transactions of a session
    in turns) goes the way of small files, which names it."""
    raw = content(path)
    data = np.frombuffer(raw, np.uint8)
    lines = int(np.count_nonzero(data == 10)) + 1
    write, key, value = np.empty(lines, np.uint8), np.empty(lines, np.int64), np.empty(lines, np.int64)
    session, txn = np.empty(lines, np.int32), np.empty(lines, np.int64)
    count = rows.parse_text(data, write, key, value, session, txn)
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
        key_names=None if names is None else names.view(np.uint64),
        session_names=[str(each) for each in sessions],
        txn_names=_Called(t[new], s[new]),
        origin=(place + 1).astype(np.int32) if count >= lines - 1 else None,  # else there are blank lines
        unit="line",
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
    count = rows.code(keys, table, np.empty(table.size, np.int32), codes)
    names = np.empty(count, np.int64)
    names[codes] = keys
    return codes, names, count
