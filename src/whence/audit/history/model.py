"""The model: sessions of transactions of operations.

`(key, value)` of the writes is unique, so that a read names its writer. A virtual transaction `init` writes the initial
value (None) of every key and comes before everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

Key = int | str
Scalar = int | str | None
Value = Scalar | tuple[Scalar, ...]
"""None: the initial value. A tuple: what a read of a list returned."""

INIT: Final = -1
"""The number of the virtual transaction `init`."""


class Status(StrEnum):
    """What became of a transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    INDETERMINATE = "indeterminate"


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
class Txn:
    """One transaction of one session."""

    session: str
    name: str
    ops: list[Op] = field(default_factory=list)
    status: Status = Status.COMMITTED
    recorded: int = 0
    """When it stands in the file: a guess for the commit order, never more than that."""


@dataclass(slots=True)
class History:
    """What clients saw. `sessions` holds committed transactions only, after `settle`."""

    file: str
    sessions: dict[str, list[Txn]] = field(default_factory=dict)
    aborted: list[Txn] = field(default_factory=list)
    lists: bool = False
    """Writes are appends, and reads return whole lists."""
    notes: list[str] = field(default_factory=list)
    """Trouble with the input that a verdict rests on, in words."""

    def txns(self) -> Iterator[Txn]:
        """All committed transactions, session by session."""
        for session in self.sessions.values():
            yield from session

    @property
    def operations(self) -> int:
        return sum(len(txn.ops) for txn in self.txns())

    @property
    def single(self) -> bool:
        """One operation a transaction, on registers: CC, CM and CCv are defined."""
        return not self.lists and all(len(txn.ops) <= 1 for txn in self.txns())


def settle(file: str, txns: Iterable[Txn], lists: bool = False, notes: Iterable[str] = ()) -> History:
    """A history of these transactions, each session in its own order.

    An indeterminate transaction counts as committed if a committed one read one of its writes (its own reads are
    unknown), and else as one that never happened.
    """
    history = History(file, lists=lists, notes=list(notes))
    everything = list(txns)
    seen: set[tuple[Key, Value]] = set()
    if any(txn.status is Status.INDETERMINATE for txn in everything):
        for txn in everything:
            if txn.status is Status.COMMITTED:
                seen.update((op.key, v) for op in txn.ops if not op.write for v in elements(op.value))
    taken = 0
    for txn in everything:
        if txn.status is Status.ABORTED:
            history.aborted.append(txn)
            continue
        if txn.status is Status.INDETERMINATE:
            txn.ops = [op for op in txn.ops if op.write]
            if not any((op.key, op.value) in seen for op in txn.ops):
                continue
            taken += 1
        history.sessions.setdefault(txn.session, []).append(txn)
    if taken:
        history.notes.append(f"{taken} indeterminate transactions are taken as committed: their writes were read")
    return history


def elements(value: Value) -> tuple[Scalar, ...]:
    """What a read saw: the elements of a list, or the one value; nothing for the initial value."""
    if isinstance(value, tuple):
        return value
    return () if value is None else (value,)
