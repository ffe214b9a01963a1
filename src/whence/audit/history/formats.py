"""Histories in the formats of others: Plume and PolySI, dbcop, Jepsen (Elle), and tables of operations.

The tables at the end are all that knows which file has which format. Every reader gives transactions to `settle`.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from whence.audit.history import edn
from whence.audit.history.model import History, Op, Status, Transaction, settle
from whence.audit.history.tables import decoded, from_table, from_text, read_parquet
from whence.errors import HistoryError

# -- which file has which format


def discover(paths: list[Path]) -> list[Path]:
    """The files of histories at and below these paths."""
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise HistoryError(f"{path}: no such file or folder")
        inside = [file for file in sorted(path.rglob("*")) if suffix_of(file) in READERS and file.is_file()]
        if path.is_dir() and not inside:
            raise HistoryError(f"{path}: no history in this folder ({', '.join(READERS)}, gzipped or not)")
        found += inside if path.is_dir() else [path]
    return found


def suffix_of(path: Path) -> str:
    """The ending of a name that says the format, without .gz."""
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def read(path: Path | str, form: str = "auto") -> History:
    """The history in a file. `form`: one of `FORMATS`; auto looks at the name, then at the first bytes.

    Raises HistoryError with file, line and text for what does not parse, and for a file that holds no operation.
    """
    path = Path(path)
    try:
        history = _parsed(path, form)
    except RecursionError:
        raise HistoryError(f"{path}: nested too deeply: no history is") from None
    except (ValueError, OverflowError) as error:  # such as a number with more digits than Python takes
        raise HistoryError(f"{path}: cannot be read: {error}") from None
    if not history.key.size:
        notes = "".join(f"; {note}" for note in history.notes)
        raise HistoryError(
            f"{path}: holds no operation of a committed transaction, so there is nothing to check{notes}"
        )
    return history


def _parsed(path: Path, form: str) -> History:
    suffix = suffix_of(path) if form == "auto" else FORMATS[form]
    if suffix == ".parquet":
        return _read_table(path)
    raw = content(path)
    if not raw.strip():
        raise HistoryError(f"{path}: holds no operation: the file is empty")
    return READERS[suffix if suffix in READERS else _sniffed(path, raw)](path, raw)


def _sniffed(path: Path, raw: bytes) -> str:
    """The ending that a file with these bytes should have."""
    begin = raw[:200].removeprefix(b"\xef\xbb\xbf").lstrip()
    for suffix, begins in BEGINS.items():
        if begin.startswith(begins):
            return suffix
    shown = begin[:40].decode("utf-8", "replace")
    raise HistoryError(f"{path}, line 1: {shown!r} begins no format known here; name one by --format")


def content(path: Path) -> bytes:
    """The bytes of a file, decompressed."""
    try:
        raw = path.read_bytes()
        return gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise HistoryError(f"{path}: cannot be read: {reason}") from None


# -- dbcop's JSON


def read_dbcop(path: Path, data: Any) -> History:
    """An array of sessions of transactions, or an object with that array as `data`. `null` is the initial value."""
    sessions: Any = data.get("data") if isinstance(data, dict) else data
    txns: list[Transaction] = []
    try:
        for s, session in enumerate(sessions):
            for t, txn in enumerate(session):
                ops = [_event(f"{path}, session {s}, transaction {t}", event) for event in txn["events"]]
                txns.append(Transaction(str(s), str(t), ops, Status.COMMITTED if txn["committed"] else Status.ABORTED))
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


# -- Jepsen's histories, as Elle takes them: list-append and rw-register, in EDN or JSON

OUTCOMES: Final = {"ok": Status.COMMITTED, "fail": Status.ABORTED} | dict.fromkeys(
    ("info", "invoke"), Status.INDETERMINATE
)


JSON: Final = re.compile(rb'\s*(\[\s*\[|[\[{\s]*")')
"""How arrays of arrays and of objects begin; keys in EDN are keywords."""


def read_edn(path: Path, raw: bytes) -> History:
    """One map a line, or vectors of maps; or all that as JSON."""
    if JSON.match(raw):
        return read_json(path, raw)

    def rows() -> Iterator[tuple[int, Any]]:
        for line, form in edn.parse(path, decoded(path, raw)):
            yield from ((line, each) for each in form) if isinstance(form, list) else [(line, form)]

    return read_jepsen(path, rows())


def read_json(path: Path, raw: bytes) -> History:
    """dbcop's JSON, or Jepsen's as an array or as lines: told apart by their shape."""
    text = decoded(path, raw)
    try:
        data = json.loads(text)
    except ValueError as error:
        if getattr(error, "msg", "") == "Extra data":  # more than one document: lines
            return read_jepsen(path, _lines(path, text))
        place = f", line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise HistoryError(f"{path}{place}: not JSON: {error}") from None
    if isinstance(data, dict) and "type" in data:
        return read_jepsen(path, [(1, data)])
    if isinstance(data, list) and data and isinstance(data[0], dict):
        return read_jepsen(path, enumerate(data, 1))
    return read_dbcop(path, data)


def _lines(path: Path, text: str) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except ValueError as error:
                raise HistoryError(f"{path}, line {number}: not JSON: {error}") from None


def read_jepsen(path: Path, rows: Iterable[tuple[int, Any]]) -> History:
    """An invocation, then its completion: `ok` has the values, `fail` aborts, `info` may have committed."""
    txns: list[Transaction] = []
    open_: dict[str, Transaction] = {}
    kinds: dict[str, int] = {}
    alone = 0
    for line, row in rows:
        if not isinstance(row, dict):
            raise HistoryError(f"{path}, line {line}: an operation is a map, not {str(row)[:60]!r}")
        process = row.get("process")
        if "process" in row and (not isinstance(process, int) or isinstance(process, bool)):
            continue  # the nemesis, and whoever else is no client
        outcome = str(row.get("type"))
        if outcome not in OUTCOMES:
            raise HistoryError(f"{path}, line {line}: the type is invoke, ok, fail or info, not {outcome!r}")
        if row.get("f", "txn") != "txn":
            raise HistoryError(
                f"{path}, line {line}: the workload {row['f']!r} is not checked here; :txn is (docs/histories.md)"
            )
        ops = _ops(path, line, row, kinds)
        txn = Transaction(str(process), str(row.get("index", line)), ops, OUTCOMES[outcome], line)
        if process is not None:
            _complete(path, line, txn, outcome, open_, txns)
        elif outcome != "invoke":  # each is a session of its own; an invocation cannot be told from another's
            txn.session = f"alone {alone}"
            alone += 1
            txns.append(txn)
    txns += open_.values()
    if "append" in kinds and "w" in kinds:
        raise HistoryError(f"{path}, line {kinds['w']}: a :w in a history that appends (line {kinds['append']})")
    if "list" in kinds and "w" in kinds:
        raise HistoryError(f"{path}, line {kinds['list']}: a read of a list in a history of registers")
    lists = "append" in kinds or "list" in kinds
    for txn in txns if lists else ():
        txn.ops = [_typed(path, op) for op in txn.ops]
    notes = [f"{alone} operations have no process: each is a session of its own"] if alone else []
    return settle(str(path), txns, lists, notes)


def _complete(
    path: Path, line: int, txn: Transaction, outcome: str, open_: dict[str, Transaction], txns: list[Transaction]
) -> None:
    """Put a transaction where it belongs: what was invoked is open until its completion."""
    begun = open_.pop(txn.session, None)
    if outcome == "invoke":
        if begun is not None:
            raise HistoryError(
                f"{path}, line {line}: process {txn.session} invokes, but that of line {begun.recorded} is open"
            )
        open_[txn.session] = txn
        return
    if begun is not None and outcome != "ok":  # the completion may lack the values; the writes are the invocation's
        txn.ops = begun.ops
    txns.append(txn)


def _ops(path: Path, line: int, row: dict[Any, Any], kinds: dict[str, int]) -> list[Op]:
    ops: list[Op] = []
    value = row.get("value") or ()
    for each in value if isinstance(value, list | tuple) else [value]:
        match each:
            case ["append" | "w" as kind, int() | str() as key, int() | str() as value]:
                kinds.setdefault(str(kind), line)
                ops.append(Op(True, key, value, line))
            case ["r", int() | str() as key, [*items]] if all(isinstance(item, int | str) for item in items):
                kinds.setdefault("list", line)
                ops.append(Op(False, key, tuple(items), line))
            case ["r", int() | str() as key, int() | str() | None as value]:
                ops.append(Op(False, key, value, line))
            case _:
                raise HistoryError(f"{path}, line {line}: {str(each)[:60]} is not [:r k v], [:w k v] or [:append k v]")
    return ops


def _typed(path: Path, op: Op) -> Op:
    """A read of a list returns a tuple; nil and [] are the initial value."""
    if op.write or isinstance(op.value, tuple):
        return op
    if op.value is not None:
        raise HistoryError(f"{path}, line {op.line}: key {op.key} is a list, but {op.value!r} was read")
    return op._replace(value=())


def _read_table(path: Path, _: bytes = b"") -> History:
    return from_table(read_parquet(path), str(path))


READERS: Final[dict[str, Callable[[Path, bytes], History]]] = {
    ".txt": from_text,
    ".edn": read_edn,
    ".json": read_json,
    ".jsonl": read_json,
    ".parquet": _read_table,
}
"""By the ending of the name."""
FORMATS: Final = {"text": ".txt", "elle": ".edn", "json": ".json", "parquet": ".parquet"}
"""Name on the command line -> an ending of files of this format."""
BEGINS: Final[dict[str, tuple[bytes, ...]]] = {
    ".txt": (b"w(", b"r("),
    ".edn": (b"{:", b"[{:", b"[ {:", b"#jepsen", b";"),
    ".parquet": (b"PAR1",),
    ".json": (b"[", b"{"),
}
"""First bytes, where the name says nothing; in the order in which they are tried."""
