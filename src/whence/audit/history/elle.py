"""Jepsen's histories, as Elle takes them: list-append and rw-register, in EDN or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from whence.audit.history import edn
from whence.audit.history.model import History, Op, Status, Txn, Value, settle
from whence.errors import HistoryError

OUTCOMES = {"ok": Status.COMMITTED, "fail": Status.ABORTED, "info": Status.INDETERMINATE}


def read_edn(path: Path, text: str) -> History:
    """One map a line, or vectors of maps."""

    def rows() -> Iterator[tuple[int, Any]]:
        for line, form in edn.parse(path, text):
            yield from ((line, each) for each in form) if isinstance(form, list) else [(line, form)]

    return _history(path, rows())


def read_rows(path: Path, text: str) -> History:
    """JSON Lines: one operation a line."""

    def rows() -> Iterator[tuple[int, Any]]:
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip():
                try:
                    yield number, json.loads(line)
                except ValueError as error:
                    raise HistoryError(f"{path}, line {number}: not JSON: {error}") from None

    return _history(path, rows())


def read_array(path: Path, data: list[Any]) -> History:
    """One JSON array of operations."""
    return _history(path, enumerate(data, 1))


def _history(path: Path, rows: Iterable[tuple[int, Any]]) -> History:
    """An invocation, then its completion: `ok` has the values, `fail` aborts, `info` may have committed."""
    txns: list[Txn] = []
    open_: dict[str, Txn] = {}
    kinds: dict[str, int] = {}
    alone = 0
    for line, row in rows:
        if not isinstance(row, dict):
            raise HistoryError(f"{path}, line {line}: an operation is a map, not {str(row)[:60]!r}")
        process = row.get("process")
        if "process" in row and (not isinstance(process, int) or isinstance(process, bool)):
            continue  # the nemesis, and whoever else is no client
        outcome = str(row.get("type"))
        if outcome != "invoke" and outcome not in OUTCOMES:
            raise HistoryError(f"{path}, line {line}: the type is invoke, ok, fail or info, not {outcome!r}")
        if row.get("f", "txn") != "txn":
            raise HistoryError(
                f"{path}, line {line}: the workload {row['f']!r} is not checked here; :txn is (docs/histories.md)"
            )
        txn = Txn("", str(row.get("index", line)), _ops(path, line, row, kinds), recorded=line)
        if outcome == "invoke":
            txn.status = Status.INDETERMINATE
        else:
            txn.status = OUTCOMES[outcome]
        if process is None:  # each operation is a session of its own; an invocation cannot be told from another's
            if outcome != "invoke":
                txn.session = f"alone {alone}"
                alone += 1
                txns.append(txn)
            continue
        txn.session = str(process)
        _complete(path, line, txn, outcome, open_, txns)
    txns += open_.values()
    lists = "append" in kinds
    if lists and "w" in kinds:
        raise HistoryError(f"{path}, line {kinds['w']}: a :w in a history that appends (line {kinds['append']})")
    if not lists and "list" in kinds:
        if "w" in kinds:
            raise HistoryError(f"{path}, line {kinds['list']}: a read of a list in a history of registers")
        lists = True
    for txn in txns:
        txn.ops = [_typed(path, op, lists) for op in txn.ops]
    notes = [f"{alone} operations have no process: each is a session of its own"] if alone else []
    return settle(str(path), txns, lists, notes)


def _complete(path: Path, line: int, txn: Txn, outcome: str, open_: dict[str, Txn], txns: list[Txn]) -> None:
    """Put a transaction where it belongs: what was invoked is open until its completion."""
    begun = open_.pop(txn.session, None)
    if outcome == "invoke":
        if begun is not None:
            raise HistoryError(
                f"{path}, line {line}: process {txn.session} invokes, but that of line {begun.recorded} is open"
            )
        open_[txn.session] = txn
        return
    if (
        begun is not None and outcome != "ok"
    ):  # the values of the completion may be missing; writes are the invocation's
        txn.ops = begun.ops
    txns.append(txn)


def _ops(path: Path, line: int, row: dict[Any, Any], kinds: dict[str, int]) -> list[Op]:
    ops: list[Op] = []
    for each in row.get("value") or ():
        match each:
            case ["append" | "w" as kind, int() | str() as key, int() | str() as value]:
                kinds.setdefault(str(kind), line)
                ops.append(Op(True, key, value, line))
            case ["r", int() | str() as key, [*items]]:
                kinds.setdefault("list", line)
                ops.append(Op(False, key, tuple(items), line))
            case ["r", int() | str() as key, int() | str() | None as value]:
                ops.append(Op(False, key, value, line))
            case _:
                raise HistoryError(f"{path}, line {line}: {str(each)[:60]} is not [:r k v], [:w k v] or [:append k v]")
    return ops


def _typed(path: Path, op: Op, lists: bool) -> Op:
    """A read of a list returns a tuple; nil and [] are the initial value."""
    if op.write or not lists or isinstance(op.value, tuple):
        return op
    if op.value is not None:
        raise HistoryError(f"{path}, line {op.line}: key {op.key} is a list, but {op.value!r} was read")
    empty: Value = ()
    return op._replace(value=empty)
