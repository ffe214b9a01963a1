"""A history in every format that can hold it, to be read back. Keys and values have to be integers from 0."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

from tests.audit.history.cases import transactions
from whence.audit.history import History, Transaction
from whence.audit.history.model import Status

BORN = 0xBEBEEBEE
"""Cobra: the initial value."""


def every(history: History) -> list[tuple[Transaction, bool]]:
    """All transactions, the aborted ones before the others of their session, and whether each committed."""
    return sorted(transactions(history), key=lambda each: int(each[0].session))


def mixed(history: History, rng: Random) -> Iterator[tuple[Transaction, bool]]:
    """The same, sessions in turns as they come."""
    sessions: dict[str, list[tuple[Transaction, bool]]] = {}
    for txn, good in every(history):
        sessions.setdefault(txn.session, []).append((txn, good))
    while sessions:
        name = rng.choice(list(sessions))
        yield sessions[name].pop(0)
        if not sessions[name]:
            del sessions[name]


def by_session(history: History) -> list[list[tuple[Transaction, bool]]]:
    found: dict[str, list[tuple[Transaction, bool]]] = {}
    for txn, good in every(history):
        found.setdefault(txn.session, []).append((txn, good))
    return list(found.values())


def text(history: History, rng: Random) -> str:
    lines = []
    for number, (txn, good) in enumerate(mixed(history, rng)):
        for op in txn.ops:
            value = 0 if op.value is None else op.value + 1  # type: ignore[operator]
            if good or op.write:
                lines.append(f"{'rw'[op.write]}({op.key},{value},{txn.session},{number if good else -1})")
    return "\n".join(lines)


def awdit(history: History, rng: Random) -> str | None:
    if any(not good or any(op.value is None for op in txn.ops) for txn, good in every(history)):
        return None  # it has no initial value, and nothing that aborts
    sessions = [
        "\n---\n".join("\n".join(f"{'rw'[op.write]} {op.key} {op.value}" for op in txn.ops) for txn, _ in session)
        for session in by_session(history)
    ]
    rng.shuffle(sessions)
    return "\n=====\n".join(sessions)


def hist(history: History, rng: Random) -> str:
    sessions = []
    for session in by_session(history):
        words = []
        for txn, good in session:
            ops = [f"k{op.key}{':=' if op.write else '=='}{'?' if op.value is None else op.value}" for op in txn.ops]
            words.append(f"[{' '.join(ops)}]{'' if good else '!'}")
        sessions.append(" ".join(words))
    rng.shuffle(sessions)
    return "\n---\n".join(sessions)


def dbcop(history: History, rng: Random) -> str:
    sessions = [
        [
            {
                "events": [
                    {"Write" if op.write else "Read": {"variable": op.key, "version": op.value}} for op in txn.ops
                ],
                "committed": good,
            }
            for txn, good in session
        ]
        for session in by_session(history)
    ]
    rng.shuffle(sessions)
    return json.dumps(sessions)


def bincode(history: History, rng: Random) -> bytes:
    sessions = by_session(history)
    rng.shuffle(sessions)
    out = struct.pack("<5Q", 0, 0, 0, 0, 0) + struct.pack("<3Q", 0, 0, 0) + struct.pack("<Q", len(sessions))
    for session in sessions:
        out += struct.pack("<Q", len(session))
        for txn, good in session:
            out += struct.pack("<Q", len(txn.ops))
            for op in txn.ops:
                value = 0 if op.value is None else op.value + 1  # type: ignore[operator]
                out += struct.pack("<?QQ?", op.write, op.key, value, True)
            out += struct.pack("<?", good)
    return out


def jepsen(history: History, rng: Random) -> Iterator[dict[str, object]]:
    """Operations as Jepsen records them: an invocation, then its completion."""
    write = "w" if history.lists is None else "append"
    for txn, good in mixed(history, rng):
        seen = [[write if op.write else "r", op.key, op.value] for op in txn.ops]
        asked = [[kind, key, value if kind == write else None] for kind, key, value in seen]
        yield {"type": "invoke", "process": int(txn.session), "f": "txn", "value": asked}
        done: dict[str, object] = {"process": int(txn.session), "f": "txn"}
        yield {"type": "ok", **done, "value": seen} if good else {"type": "fail", **done, "value": asked}


def elle_json(history: History, rng: Random) -> str:
    return "\n".join(json.dumps(row) for row in jepsen(history, rng))


def elle_edn(history: History, rng: Random) -> str:
    def form(value: object) -> str:
        if isinstance(value, dict):
            return "{" + ", ".join(f":{key} {form(each)}" for key, each in value.items()) + "}"
        if isinstance(value, list | tuple):
            return f"[{' '.join(map(form, value))}]"
        return "nil" if value is None else f":{value}" if isinstance(value, str) else str(value)

    return "\n".join(form(row) for row in jepsen(history, rng))


def parquet(history: History, path: Path, rng: Random) -> None:
    """Rows in any order."""
    rows = []
    counted: dict[str, int] = {}
    for txn, good in every(history):
        number = counted[txn.session] = counted.get(txn.session, -1) + 1
        for at, op in enumerate(txn.ops):
            value = [op.value] if history.lists is not None and op.write else op.value
            status = Status.COMMITTED if good else Status.ABORTED
            kind = "r" if not op.write else "w" if history.lists is None else "a"
            rows.append((txn.session, number, at, kind, op.key, value, str(status)))
    rng.shuffle(rows)
    names = ("session", "txn", "op", "kind", "key", "value", "status")
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    value_type = pa.list_(pa.int64()) if history.lists is not None else pa.int64()
    pq.write_table(pa.table(columns | {"value": pa.array(columns["value"], value_type)}), path)


def cobra(history: History, folder: Path) -> None:
    folder.mkdir(parents=True)
    number = 0
    ids = {}
    for txn, _ in every(history):
        for op in txn.ops:
            if op.write:
                ids[op.key, op.value] = len(ids) + 1
    for n, session in enumerate(by_session(history)):
        out = b""
        for txn, good in session:
            number += 1
            out += b"S" + struct.pack(">q", number)
            for op in txn.ops:
                wid = BORN if op.value is None else ids.get((op.key, op.value), 10**6 + op.value)  # type: ignore[operator]
                key = op.key
                out += b"W" + struct.pack(">3q", wid, key, 7) if op.write else b"R" + struct.pack(">4q", 0, wid, key, 7)
            out += (b"C" if good else b"A") + struct.pack(">q", number)
        (folder / f"T{n}.log").write_bytes(out)


Writer = Callable[[History, Random], str | bytes | None]
REGISTERS: dict[str, Writer] = {
    ".txt": text,
    "-awdit.txt": awdit,
    ".hist": hist,
    "-dbcop.json": dbcop,
    ".bincode": bincode,
    ".jsonl": elle_json,
    ".edn": elle_edn,
}
LISTS: dict[str, Writer] = {".jsonl": elle_json, ".edn": elle_edn}


def write(history: History, folder: Path, name: str, rng: Random) -> list[Path]:
    """The history in every format that can hold it; returns the paths."""
    made = [folder / f"{name}.parquet"]
    parquet(history, made[0], rng)
    for ending, writer in (REGISTERS if history.lists is None else LISTS).items():
        content = writer(history, rng)
        if content is not None:
            made.append(folder / f"{name}{ending}")
            made[-1].write_bytes(content if isinstance(content, bytes) else content.encode())
    if history.lists is None:
        made.append(folder / f"{name}-cobra")
        cobra(history, made[-1])
    return made
