"""Columns from large text files, without an object for each operation; and codes for keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from whence.history import kernels as k
from whence.history import rows
from whence.history.arrays import Columns, from_history
from whence.history.kernels import Ints, Longs
from whence.history.plain import read_text
from whence.history.source import content, decoded


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
