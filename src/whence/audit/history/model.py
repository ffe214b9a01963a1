"""The model: sessions of transactions of operations, as columns with one entry an operation.

`(key, value)` of the writes is unique, so that a read names its writer. A virtual transaction `init` writes the initial
value (None) of every key and comes before everything. Transactions are numbered session by session.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Key = int | str
Scalar = int | str | None
Value = Scalar | tuple[Scalar, ...]
"""None: the initial value. A tuple: what a read of a list returned."""

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Bytes = NDArray[np.uint8]

INIT: Final = -1
"""The number of the virtual transaction `init`."""
NOTHING: Final = -(1 << 63)
"""The initial value, in a column."""


class Status(StrEnum):
    """What became of a transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    INDETERMINATE = "indeterminate"


STATUSES: Final = tuple(Status)


class Op(NamedTuple):
    """One operation: `r(key)=value`, `w(key)=value`, or an append of `value` to the list `key`."""

    write: bool
    key: Key
    value: Value
    line: int = 0
    """Where it stands in the file: the line, or the byte in a binary file."""

    def __str__(self) -> str:
        if isinstance(self.value, tuple):
            return f"r({self.key})=[{' '.join(map(str, self.value))}]"
        return f"{'w' if self.write else 'r'}({self.key})={'initial' if self.value is None else self.value}"


@dataclass(slots=True)
class Transaction:
    """One transaction of one session, as a reader finds it."""

    session: str
    name: str
    ops: list[Op] = field(default_factory=list)
    status: Status = Status.COMMITTED
    recorded: int = 0
    """When it stands in the file: a guess for the commit order, never more than that."""


@dataclass
class History:
    """What clients saw: committed transactions, sorted by session, transaction and operation."""

    file: str
    first: Ints
    """Of each session: the number of its first transaction; one more entry for all."""
    begin: Longs
    """Of each transaction: its first operation; one more entry for all."""
    write: Bytes
    key: Ints
    """Coded 0, 1, ..."""
    value: Longs
    """`NOTHING`: the initial value."""
    keys: int
    recorded: Longs | None = None
    """Of each transaction: when it was recorded, a guess for the commit order."""
    aborted: tuple[Ints, Longs] = field(default_factory=lambda: (np.empty(0, np.int32), np.empty(0, np.int64)))
    """Keys and values that aborted transactions wrote."""
    notes: list[str] = field(default_factory=list)
    """Trouble with the input that a verdict rests on, in words."""
    key_names: Sequence[Any] = ()
    """By code."""
    value_names: Sequence[Any] | None = None
    """By code; None: the code is the value."""
    session_names: Sequence[str] = ()
    labels: Any = None
    """Of each transaction: its own number or name."""
    origin: Ints | None = None
    """Of each operation: its row in a table, or its line in a file."""
    unit: str = "row"
    lists: tuple[Longs, Longs] | None = None
    """Histories of lists: where the elements of each operation begin, one more entry for all; and the elements."""

    @property
    def single(self) -> bool:
        """One operation a transaction, on registers: CC, CM and CCv are defined."""
        return self.lists is None and bool((np.diff(self.begin) <= 1).all())

    @cached_property
    def session(self) -> Ints:
        """Of each transaction."""
        return np.repeat(np.arange(self.first.size - 1, dtype=np.int32), np.diff(self.first))

    @cached_property
    def _unique(self) -> bool:
        return len(set(self.labels)) == len(self.labels)

    def place(self, t: int) -> tuple[str, int]:
        """The session of a transaction, and which one of the session it is."""
        s = int(self.session[t])
        return self.session_names[s], int(t - self.first[s])

    def name(self, t: int) -> str:
        """What a person calls a transaction: `t5` where the recorded number is unique, else `s0/t5`."""
        if t == INIT:
            return "init"
        return f"t{self.labels[t]}" if self._unique else f"s{self.place(t)[0]}/t{self.labels[t]}"

    def key_of(self, code: int) -> Key:
        return self.key_names[code]  # type: ignore[no-any-return]

    def value_of(self, code: int) -> Value:
        if code == NOTHING:
            return None
        return int(code) if self.value_names is None else self.value_names[code]

    def where(self, i: int) -> str:
        """Where operation i stands, for a message."""
        return self.file if self.origin is None else f"{self.file}, {self.unit} {self.origin[i]}"

    def ops(self, t: int) -> list[Op]:
        """The operations of a transaction; none of `init`."""
        return (
            []
            if t == INIT
            else [
                Op(bool(self.write[i]), self.key_of(self.key[i]), self._seen(i))
                for i in range(self.begin[t], self.begin[t + 1])
            ]
        )

    def _seen(self, i: int) -> Value:
        if self.lists is None:
            return self.value_of(self.value[i])
        offset, element = self.lists
        seen: Any = tuple(self.value_of(each) for each in element[offset[i] : offset[i + 1]])
        return seen[0] if self.write[i] else seen  # type: ignore[no-any-return]

    def rows(self) -> Iterator[list[Any]]:
        """The committed operations as `verify` takes them: session, transaction, r/w/a, key, value."""
        write = "w" if self.lists is None else "a"
        for t in range(self.begin.size - 1):
            for op in self.ops(t):
                value = list(op.value) if isinstance(op.value, tuple) else op.value
                yield [*self.place(t), write if op.write else "r", op.key, value]


def settle(file: str, txns: Iterable[Transaction], lists: bool = False, notes: Iterable[str] = ()) -> History:
    """A history of these transactions, each session in its own order."""
    found = sorted(txns, key=lambda txn: txn.status is Status.ABORTED)
    sessions: dict[str, list[Transaction]] = {}
    for txn in found:
        sessions.setdefault(txn.session, []).append(txn)
    found = [txn for session in sessions.values() for txn in session]
    ops = [op for txn in found for op in txn.ops]
    keys: dict[Key, int] = {}
    values: dict[Value, int] = {}
    key = [keys.setdefault(op.key, len(keys)) for op in ops]
    seen = [[values.setdefault(v, len(values)) for v in elements(op.value)] for op in ops]
    sizes = [len(each) for each in seen]
    flat = np.array([v for each in seen for v in each], np.int64)
    value = np.full(len(ops), NOTHING, np.int64)
    if not lists:
        value[np.array(sizes, bool)] = flat
    history = History(
        file,
        _offsets([len(session) for session in sessions.values()], np.int32),
        _offsets([len(txn.ops) for txn in found]),
        np.array([op.write for op in ops], np.uint8),
        np.array(key, np.int32),
        value,
        len(keys),
        np.array([txn.recorded for txn in found], np.int64),
        notes=list(notes),
        key_names=list(keys),
        value_names=list(values),
        session_names=list(sessions),
        labels=[txn.name for txn in found],
        origin=np.array([op.line for op in ops], np.int64) if any(op.line for op in ops) else None,
        unit="line",
        lists=(_offsets(sizes), flat) if lists else None,
    )
    return happened(history, np.array([STATUSES.index(txn.status) for txn in found], np.uint8))


def happened(history: History, status: Bytes | None) -> History:
    """The transactions that happened, without those that load the initial state. `status`: of each, as its place in
    `STATUSES`; None: all committed.

    An indeterminate transaction counts as committed if a committed one read one of its writes (its own reads are
    unknown), and else as one that never happened.
    """
    if status is None or not status.any():
        return _without_loading(history)
    sizes = np.diff(history.begin)
    of, key, write = np.repeat(status, sizes), history.key, history.write == 1
    offset, element = history.lists or (np.arange(key.size + 1), history.value)
    seen = np.append(element, NOTHING)[offset[:-1]]  # of an append what it appends
    gone = np.flatnonzero((of == 1) & write)
    good = status == 0
    doubtful = np.flatnonzero((of == 2) & write)
    if doubtful.size:
        reader = np.repeat(np.arange(key.size), np.diff(offset))
        reads = np.flatnonzero((of[reader] == 0) & ~write[reader] & (element != NOTHING))
        known = set(zip(key[reader[reads]].tolist(), element[reads].tolist(), strict=True))
        txn = np.repeat(np.arange(status.size), sizes)
        taken = {int(txn[i]) for i in doubtful if (int(key[i]), int(seen[i])) in known}
        good[list(taken)] = True
        if taken:
            told = f"{len(taken)} indeterminate transactions are taken as committed: their writes were read"
            history.notes.append(told)
    history.aborted = key[gone], seen[gone]
    return _without_loading(_kept(history, good, np.repeat(good, sizes) & ((of == 0) | write)))


def _without_loading(history: History) -> History:
    """Drop the writes of loading transactions, and name the first other write of the initial value.

    A loading transaction is the first of its session and writes the initial value and nothing else: it is `init` again.
    """
    initial = (history.write == 1) & (history.value == NOTHING) if history.lists is None else np.empty(0, bool)
    if not initial.any():
        return history
    sizes, many = np.diff(history.begin), np.diff(np.append(0, np.cumsum(initial))[history.begin])
    loads = np.zeros(sizes.size, bool)
    loads[history.first[:-1]] = True
    loads &= (many == sizes) & (many > 0)
    again = np.flatnonzero(initial & ~np.repeat(loads, sizes))
    if again.size:
        first = int(again[0])
        history.notes.append(
            f"{history.where(first)}: the initial value of key {history.key_of(history.key[first])} is written by "
            "a transaction that does not only load: reads of it are ambiguous, and taken as reads of the initial state"
            + (f" ({again.size} such writes)" if again.size > 1 else "")
        )
    if loads.any():
        dropped = int(sizes[loads].sum())
        history.notes.append(f"{dropped} writes of loading transactions were dropped: they write the initial state")
    return _kept(history, np.ones(sizes.size, bool), ~np.repeat(loads, sizes))


def _kept(history: History, txns: Any, ops: Any) -> History:
    """These transactions with these operations; sessions without a transaction go, too."""
    sessions = np.bincount(history.session[txns], minlength=history.first.size - 1)
    many = np.diff(np.append(0, np.cumsum(ops))[history.begin])
    lists, values = history.lists, history.value
    if lists is not None:
        sizes = np.diff(lists[0])
        lists = _offsets(sizes[ops]), lists[1][np.repeat(ops, sizes)]
    return replace(
        history,
        first=_offsets(sessions[sessions > 0], np.int32),
        begin=_offsets(many[txns]),
        write=history.write[ops],
        key=history.key[ops],
        value=values[ops] if values.size else values,
        recorded=None if history.recorded is None else history.recorded[txns],
        session_names=[history.session_names[s] for s in np.flatnonzero(sessions).tolist()],
        labels=np.asarray(history.labels)[txns],
        origin=None if history.origin is None else history.origin[ops],
        lists=lists,
    )


def _offsets(sizes: Any, kind: Any = np.int64) -> Any:
    """Where things of these sizes begin, one more entry for all."""
    return np.append(0, np.cumsum(sizes)).astype(kind)


def elements(value: Value) -> tuple[Scalar, ...]:
    """What a read saw: the elements of a list, or the one value; nothing for the initial value."""
    if isinstance(value, tuple):
        return value
    return () if value is None else (value,)
