"""Cobra's logs: a folder of `T<n>.log`, one binary file a session."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Final

from whence.audit.history.model import History, Op, Status, Txn, settle
from whence.audit.history.plain import unload
from whence.audit.history.source import content
from whence.errors import HistoryError

LOG = re.compile(r"T(-?\d+)\.log(\.gz)?")
INITIAL: Final = (0xBEBEEBEE, 0xDEADBEEF)
"""Write ids that mean the initial value: never written, no such key."""
COLLECTION: Final = (0x23332333, 0x66666666)
"""Write ids that mark reads of Cobra's garbage collection."""
FIELDS: Final = {ord("S"): 1, ord("W"): 3, ord("R"): 4, ord("C"): 1, ord("A"): 1}
"""Kind of a record -> how many big-endian 64-bit integers follow it."""


def logs(folder: Path) -> list[Path]:
    """The logs of the sessions, by number."""
    found = [(int(name[1]), path) for path in folder.iterdir() if (name := LOG.fullmatch(path.name))]
    return [path for _, path in sorted(found)]


def read_cobra(folder: Path) -> History:
    """The write id is the value of a write; a read names it. What a log leaves open is dropped, and said."""
    txns: list[Txn] = []
    notes: list[str] = []
    skipped = 0
    for path in logs(folder):
        session = path.name.partition(".")[0]
        skipped += _session(path, session, content(path), txns, notes)
    if skipped:
        notes.append(f"{skipped} reads of Cobra's garbage collection were left out")
    unload(folder, [txn for txn in txns if txn.status is Status.COMMITTED], notes)
    return settle(str(folder), txns, notes=notes)


def _session(path: Path, session: str, raw: bytes, txns: list[Txn], notes: list[str]) -> int:
    """Read one log; returns how many reads of the garbage collection it has."""
    at = skipped = 0
    txn: Txn | None = None
    while at < len(raw):
        fields = FIELDS.get(raw[at])
        if fields is None:
            raise HistoryError(f"{path}, byte {at}: {raw[at]:#04x} begins no record (S, W, R, C or A)")
        if at + 1 + 8 * fields > len(raw):
            notes.append(f"{path}, byte {at}: the log ends inside a record")
            break
        kind = chr(raw[at])
        numbers = struct.unpack_from(f">{fields}q", raw, at + 1)
        if kind == "S":
            if txn is not None:
                raise HistoryError(f"{path}, byte {at}: transaction {numbers[0]} begins inside transaction {txn.name}")
            txn = Txn(session, str(numbers[0]))
        elif txn is None:
            raise HistoryError(f"{path}, byte {at}: a record {kind} outside of a transaction")
        elif kind in "CA":
            txn.status = Status.COMMITTED if kind == "C" else Status.ABORTED
            txns.append(txn)
            txn = None
        elif (wid := numbers[0 if kind == "W" else 1]) in COLLECTION:
            skipped += 1
        else:
            key = numbers[1 if kind == "W" else 2]
            txn.ops.append(Op(kind == "W", key, None if wid in INITIAL else wid, at))
        at += 1 + 8 * fields
    if txn is not None:
        notes.append(f"{path}: the log ends inside transaction {txn.name}, which was dropped")
    return skipped
