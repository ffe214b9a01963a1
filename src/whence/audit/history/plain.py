"""Plain text: `w(key,value,session,txn)` (Plume, PolySI) and AWDIT's hand-written test files."""

from __future__ import annotations

import re
from pathlib import Path

from whence.audit.history.model import History, Op, Status, Txn, settle
from whence.audit.history.source import bad_line

LINE = re.compile(r"([rw])\((\d+),(\d+),(\d+),(\d+|-1)\)")
AWDIT = re.compile(r"([rw]) (\S+) (\S+)")


def read_text(path: Path, text: str) -> History:
    """One operation a line. Value 0 is the initial value, transaction -1 an aborted write.

    The transactions of a session come in the order of their first lines.
    """
    txns: dict[tuple[str, str], Txn] = {}
    aborted: list[Txn] = []
    for number, line in enumerate(text.splitlines(), 1):
        found = LINE.fullmatch(line)
        if found is None:
            if not line.strip():
                continue
            raise bad_line(path, number, line, "an operation such as w(1,7,0,0): [rw](key,value,session,txn)")
        kind, key, value, session, name = found.groups()
        op = Op(kind == "w", int(key), int(value) or None, number)
        if name == "-1":
            aborted.append(Txn(session, "-1", [op], Status.ABORTED))
            continue
        txn = txns.get((session, name))
        if txn is None:
            txn = txns[session, name] = Txn(session, name, recorded=number)
        txn.ops.append(op)
    notes: list[str] = []
    ordered = sorted(txns.values(), key=lambda txn: (int(txn.session), txn.recorded))
    unload(path, ordered, notes)
    return settle(str(path), [*ordered, *aborted], notes=notes)


def unload(path: Path, txns: list[Txn], notes: list[str]) -> None:
    """Drop the writes of loading transactions; name every other write of the initial value.

    A loading transaction is the first of its session and writes the initial value and nothing else: it is `init` again.
    """
    begun: set[str] = set()
    dropped = 0
    for txn in txns:
        first = txn.session not in begun
        begun.add(txn.session)
        initial = [op for op in txn.ops if op.write and op.value is None]
        if not initial:
            continue
        if first and len(initial) == len(txn.ops):
            dropped += len(initial)
            txn.ops = []
            continue
        notes.append(
            f"{path}, line {initial[0].line}: the initial value of key {initial[0].key} is written by a transaction "
            "that does not only load: reads of it are ambiguous, and taken as reads of the initial state"
        )
    if dropped:
        notes.append(f"{dropped} writes of loading transactions were dropped: they write the initial state")


def read_awdit(path: Path, text: str) -> History:
    """`r key value` a line; a line of `-` ends a transaction, one of `=` a session. There is no initial value."""
    sessions: list[list[Txn]] = [[Txn("0", "0")]]
    for number, line in enumerate(text.splitlines(), 1):
        words = line.strip()
        if not words:
            continue
        if set(words) == {"="}:
            sessions.append([Txn(str(len(sessions)), "0")])
        elif set(words) == {"-"}:
            last = sessions[-1]
            last.append(Txn(last[0].session, str(len(last))))
        elif found := AWDIT.fullmatch(words):
            kind, key, value = found.groups()
            txn = sessions[-1][-1]
            txn.ops.append(Op(kind == "w", _number(key), _number(value), number))
            txn.recorded = txn.recorded or number
        else:
            raise bad_line(path, number, line, "`r key value`, `w key value`, a line of - or a line of =")
    return settle(str(path), [txn for session in sessions for txn in session if txn.ops])


def _number(text: str) -> int | str:
    return int(text) if text.isdecimal() else text
