"""dbcop's formats: bincode (2019), JSON and its text form `.hist`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from whence.audit.history.model import History, Op, Status, Txn, settle
from whence.audit.history.plain import unload
from whence.audit.history.source import bad_line
from whence.errors import HistoryError

HEADER: Final = 5
"""Numbers before the strings: id, nodes, variables, transactions, events."""


class _Bytes:
    """A cursor over bincode 1.x with default options: little-endian, lengths as u64."""

    def __init__(self, path: Path, raw: bytes) -> None:
        self.path, self.raw, self.at = path, raw, 0

    def u64(self) -> int:
        return int.from_bytes(self.take(8, "a number"), "little")

    def flag(self) -> bool:
        byte = self.take(1, "a flag")[0]
        if byte > 1:
            raise HistoryError(f"{self.path}, byte {self.at - 1}: {byte} is no flag (0 or 1); is it another format?")
        return byte == 1

    def string(self) -> None:
        self.take(self.length(1), "a string")

    def length(self, least: int) -> int:
        """A number of things that take `least` bytes each: more than the file holds is refused."""
        count = self.u64()
        if count * least > len(self.raw) - self.at:
            raise HistoryError(
                f"{self.path}, byte {self.at - 8}: a length of {count} is longer than the rest of the file"
            )
        return count

    def take(self, size: int, what: str) -> bytes:
        if self.at + size > len(self.raw):
            raise HistoryError(f"{self.path}, byte {self.at}: the file ends inside {what}")
        self.at += size
        return self.raw[self.at - size : self.at]


def read_bincode(path: Path, raw: bytes) -> History:
    """Value 0 is the initial one. Events that did not succeed are as if they had not been."""
    data = _Bytes(path, raw)
    for _ in range(HEADER):
        data.u64()
    for _ in range(3):
        data.string()
    txns: list[Txn] = []
    failed = 0
    for session in range(data.length(8)):
        for number in range(data.length(9)):
            txn = Txn(str(session), str(number))
            for _ in range(data.length(18)):
                at = data.at
                write, key, value, done = data.flag(), data.u64(), data.u64(), data.flag()
                failed += not done
                if done:
                    txn.ops.append(Op(write, key, value or None, at))
            txn.status = Status.COMMITTED if data.flag() else Status.ABORTED
            txns.append(txn)
    if data.at != len(raw):
        raise HistoryError(f"{path}, byte {data.at}: {len(raw) - data.at} bytes after the end of the history")
    notes = [f"{failed} operations that did not succeed were left out"] if failed else []
    unload(path, [txn for txn in txns if txn.status is Status.COMMITTED], notes)
    return settle(str(path), txns, notes=notes)


def read_json(path: Path, data: Any) -> History:
    """An array of sessions of transactions, or an object with that array as `data`. `null` is the initial value."""
    sessions: Any = data.get("data") if isinstance(data, dict) else data
    txns: list[Txn] = []
    try:
        for s, session in enumerate(sessions):
            for t, txn in enumerate(session):
                where = f"{path}, session {s}, transaction {t}"
                ops = [_event(where, event) for event in txn["events"]]
                status = Status.COMMITTED if txn["committed"] else Status.ABORTED
                txns.append(Txn(str(s), str(t), ops, status))
    except (TypeError, KeyError, AttributeError) as error:
        place = f"session {len({txn.session for txn in txns})}"
        raise HistoryError(f"{path}, near {place}: not dbcop's JSON (sessions of transactions): {error!r}") from None
    return settle(str(path), txns)


def _event(where: str, event: Any) -> Op:
    match event:
        case {"Write": {"variable": int() | str() as key, "version": int() | str() as value}}:
            return Op(True, key, value)
        case {"Read": {"variable": int() | str() as key, "version": int() | str() | None as value}}:
            return Op(False, key, value)
    raise HistoryError(f"{where}: {event!r} is neither a Read nor a Write with variable and version")


TXN = re.compile(r"\[([^\[\]]*)\](!?)")
EVENT = re.compile(r"(\w+)(:=|==)(\w+|\?)")


def read_hist(path: Path, text: str) -> History:
    """`[x:=1 y==2]` a transaction, `!` after it: not committed; dashes between sessions; `//` begins a comment."""
    txns: list[Txn] = []
    session = 0
    number = 0
    for at, line in enumerate(text.splitlines(), 1):
        rest = line.partition("//")[0].strip()
        if rest and set(rest) == {"-"}:
            session, number = session + 1, 0
            continue
        while rest:
            found = TXN.match(rest)
            if found is None:
                raise bad_line(path, at, line, "transactions such as [x:=1 y==2], or dashes between sessions")
            ops = []
            for word in found[1].split():
                event = EVENT.fullmatch(word)
                if event is None or (event[2] == ":=" and event[3] == "?"):
                    raise bad_line(
                        path, at, word, "an event: x:=1 (write), x==1 (read), x==? (read of the initial value)"
                    )
                value = None if event[3] == "?" else int(event[3]) if event[3].isdecimal() else event[3]
                ops.append(Op(event[2] == ":=", event[1], value, at))
            status = Status.ABORTED if found[2] else Status.COMMITTED
            txns.append(Txn(str(session), str(number), ops, status, at))
            number += 1
            rest = rest[found.end() :].strip()
    return settle(str(path), txns)
