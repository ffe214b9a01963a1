"""Histories in the formats of others: Plume and PolySI, AWDIT, dbcop, Cobra, Jepsen (Elle), and tables of operations.

The tables at the end are all that knows which file has which format. Every reader gives transactions to `settle`.
"""

from __future__ import annotations

import gzip
import json
import re
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from whence.audit.history import edn
from whence.audit.history.model import History, Op, Status, Transaction, settle
from whence.audit.history.tables import bad_line, decoded, from_table, from_text, read_parquet, read_rows
from whence.errors import HistoryError

# -- which file has which format


def discover(paths: list[Path]) -> list[Path]:
    """The histories below these paths: files, and folders that are one history (Cobra's logs)."""
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise HistoryError(f"{path}: no such file or folder")
        inside = _inside(path) if path.is_dir() else [path]
        if not inside:
            raise HistoryError(f"{path}: no history in this folder ({', '.join(READERS)}, gzipped or not; T<n>.log)")
        found += inside
    return found


def _inside(folder: Path) -> list[Path]:
    if _logs(folder):
        return [folder]
    found: list[Path] = []
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            found += _inside(path)
        elif suffix_of(path) in READERS:
            found.append(path)
    return found


def suffix_of(path: Path) -> str:
    """The ending of a name that says the format, without .gz."""
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def read(path: Path | str, form: str = "auto") -> History:
    """The history in a file or folder. `form`: one of `FORMATS`; auto looks at the name, then at the first bytes.

    Raises HistoryError with file, line and text for what does not parse, and for a file that holds no operation.
    """
    path = Path(path)
    try:
        history = _parsed(path, form)
    except HistoryError:
        raise
    except RecursionError:
        raise HistoryError(f"{path}, line {_deepest(content(path))}: nested too deeply: no history is") from None
    except Exception as error:  # such as a number with more digits than Python takes
        raise HistoryError(f"{path}: cannot be read: {type(error).__name__}: {error}") from None
    if not history.key.size:
        notes = "".join(f"; {note}" for note in history.notes)
        raise HistoryError(
            f"{path}: holds no operation of a committed transaction, so there is nothing to check{notes}"
        )
    return history


def _deepest(raw: bytes) -> int:
    """The line with the innermost bracket."""
    data = np.frombuffer(raw, np.uint8)
    depth = (
        np.isin(data, np.frombuffer(b"[{(", np.uint8)).cumsum()
        - np.isin(data, np.frombuffer(b"]})", np.uint8)).cumsum()
    )
    return raw.count(b"\n", 0, int(depth.argmax())) + 1


def _parsed(path: Path, form: str) -> History:
    if path.is_dir():
        if form not in ("auto", "cobra") or not _logs(path):
            raise HistoryError(f"{path}: a folder is a history of format cobra only, with files T<n>.log")
        return read_cobra(path)
    if form == "cobra":
        raise HistoryError(f"{path}: a history of format cobra is a folder of files T<n>.log, not a file")
    suffix = suffix_of(path)
    if suffix == ".parquet" and form in ("auto", "parquet"):
        return _read_table(path)
    raw = content(path)
    if not raw.strip():
        raise HistoryError(f"{path}: holds no operation: the file is empty")
    if form == "auto":
        return READERS[suffix if suffix in READERS else _sniffed(path, raw)](path, raw)
    endings = FORMATS[form]
    return READERS[suffix if suffix in endings else endings[0]](path, raw)


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


def _number(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


# -- plain text (Plume, PolySI) and AWDIT's hand-written test files

AWDIT: Final = re.compile(r"([rw]) (\S+) (\S+)")


def read_text(path: Path, raw: bytes) -> History:
    """Plume's and PolySI's operations, or AWDIT's."""
    return _read_awdit(path, raw) if raw[:200].lstrip()[1:2] == b" " else from_text(path, raw)


def _read_awdit(path: Path, raw: bytes) -> History:
    """`r key value` a line; a line of `-` ends a transaction, one of `=` a session. There is no initial value."""
    sessions: list[list[Transaction]] = [[Transaction("0", "0")]]
    for number, line in enumerate(decoded(path, raw).splitlines(), 1):
        words = line.strip()
        last = sessions[-1]
        if not words:
            continue
        if set(words) == {"="}:
            sessions.append([Transaction(str(len(sessions)), "0")])
        elif set(words) == {"-"}:
            last.append(Transaction(last[0].session, str(len(last))))
        elif found := AWDIT.fullmatch(words):
            last[-1].ops.append(Op(found[1] == "w", _number(found[2]), _number(found[3]), number))
            last[-1].recorded = last[-1].recorded or number
        else:
            raise bad_line(path, number, line, "`r key value`, `w key value`, a line of - or a line of =")
    return settle(str(path), [txn for session in sessions for txn in session if txn.ops])


# -- dbcop: bincode (2019), JSON and its text form `.hist`

HEADER: Final = 5
"""Numbers before the strings: id, nodes, variables, transactions, events."""


def read_bincode(path: Path, raw: bytes) -> History:
    """bincode 1.x: little-endian, lengths of 64 bits. Value 0 is the initial one. Events that did not succeed are left
    out."""
    at = 8 * HEADER

    def take(form: str, least: int = 0) -> Any:
        """The next fields; B is a flag. `least`: they are a length of things that take this many bytes each."""
        nonlocal at
        try:
            found = struct.unpack_from(form, raw, at)
        except struct.error:
            raise HistoryError(f"{path}, byte {at}: the file ends inside a record") from None
        if "B" in form and max(found[0], found[-1]) > 1:
            raise HistoryError(f"{path}, byte {at}: a flag is neither 0 nor 1; is it another format?")
        at += struct.calcsize(form)
        if least and found[0] * least > len(raw) - at:
            raise HistoryError(f"{path}, byte {at - 8}: a length of {found[0]} is longer than the rest of the file")
        return found[0] if len(found) == 1 else found

    for _ in range(3):  # strings
        length = take("<Q", 1)
        at += length
    txns: list[Transaction] = []
    failed = 0
    for session in range(take("<Q", 8)):
        for number in range(take("<Q", 9)):
            txn = Transaction(str(session), str(number))
            for _ in range(take("<Q", 18)):
                write, key, value, done = take("<BQQB")
                failed += not done
                if done:
                    txn.ops.append(Op(bool(write), key, value or None, at - 18))
            txn.status = Status.COMMITTED if take("<B") else Status.ABORTED
            txns.append(txn)
    if at != len(raw):
        raise HistoryError(f"{path}, byte {at}: {len(raw) - at} bytes after the end of the history")
    notes = [f"{failed} operations that did not succeed were left out"] if failed else []
    return settle(str(path), txns, notes=notes)


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


TXN: Final = re.compile(r"\[([^\[\]]*)\](!?)")
EVENT: Final = re.compile(r"(\w+)(?:(:=)(\w+)|==(\w+|\?))")


def read_hist(path: Path, raw: bytes) -> History:
    """`[x:=1 y==2]` a transaction, `!` after it: not committed; dashes between sessions; `//` begins a comment."""
    txns: list[Transaction] = []
    session = number = 0
    for at, line in enumerate(decoded(path, raw).splitlines(), 1):
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
                if (event := EVENT.fullmatch(word)) is None:
                    raise bad_line(
                        path, at, word, "an event: x:=1 (write), x==1 (read), x==? (read of the initial value)"
                    )
                value = event[3] or event[4]
                ops.append(Op(bool(event[2]), event[1], None if value == "?" else _number(value), at))
            txns.append(
                Transaction(str(session), str(number), ops, Status.ABORTED if found[2] else Status.COMMITTED, at)
            )
            number += 1
            rest = rest[found.end() :].strip()
    return settle(str(path), txns)


# -- Cobra: a folder of `T<n>.log`, one binary file a session

LOG: Final = re.compile(r"T(-?\d+)\.log(\.gz)?")
INITIAL: Final = (0xBEBEEBEE, 0xDEADBEEF)
"""Write ids that mean the initial value: never written, no such key."""
COLLECTION: Final = (0x23332333, 0x66666666)
"""Write ids that mark reads of Cobra's garbage collection."""
FIELDS: Final = {ord("S"): 1, ord("W"): 3, ord("R"): 4, ord("C"): 1, ord("A"): 1}
"""Kind of a record -> how many big-endian 64-bit integers follow it."""


def _logs(folder: Path) -> list[Path]:
    """The logs of the sessions, by number."""
    found = [(int(name[1]), path) for path in folder.iterdir() if (name := LOG.fullmatch(path.name))]
    return [path for _, path in sorted(found)]


def read_cobra(folder: Path) -> History:
    """The write id is the value of a write; a read names it. What a log leaves open is dropped, and said."""
    txns: list[Transaction] = []
    notes: list[str] = []
    skipped = 0
    for path in _logs(folder):
        skipped += _session(path, path.name.partition(".")[0], content(path), txns, notes)
    if skipped:
        notes.append(f"{skipped} reads of Cobra's garbage collection were left out")
    return settle(str(folder), txns, notes=notes)


def _session(path: Path, session: str, raw: bytes, txns: list[Transaction], notes: list[str]) -> int:
    """Read one log; returns how many reads of the garbage collection it has."""
    at = skipped = 0
    txn: Transaction | None = None
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
            txn = Transaction(session, str(numbers[0]))
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


# -- Jepsen's histories, as Elle takes them: list-append and rw-register, in EDN or JSON

OUTCOMES: Final = {"ok": Status.COMMITTED, "fail": Status.ABORTED} | dict.fromkeys(
    ("info", "invoke"), Status.INDETERMINATE
)


def read_edn(path: Path, raw: bytes) -> History:
    """One map a line, or vectors of maps."""
    if raw.lstrip().startswith((b"[[", b'[{"', b'{"')):
        return read_json(path, raw)

    def rows() -> Iterator[tuple[int, Any]]:
        for line, form in edn.parse(path, decoded(path, raw)):
            yield from ((line, each) for each in form) if isinstance(form, list) else [(line, form)]

    return read_jepsen(path, rows())


def read_json(path: Path, raw: bytes) -> History:
    """dbcop's JSON, Jepsen's as an array or as lines, or operations as lines: told apart by their shape."""
    text = decoded(path, raw)
    if _OPERATION.match(text):
        return _read_rows(path, raw)
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


_OPERATION: Final = re.compile(r'\s*\{[^{}]*"session"\s*:')
"""So a line of a table of operations begins, and no line of Jepsen's."""


def _read_rows(path: Path, raw: bytes) -> History:
    return from_table(read_rows(path, raw), str(path))


def _read_table(path: Path, _: bytes = b"") -> History:
    return from_table(read_parquet(path), str(path))


READERS: Final[dict[str, Callable[[Path, bytes], History]]] = {
    ".txt": read_text,
    ".edn": read_edn,
    ".json": read_json,
    ".jsonl": read_json,
    ".bincode": read_bincode,
    ".hist": read_hist,
    ".parquet": _read_table,
    ".csv": _read_rows,
}
"""By the ending of the name."""
FORMATS: Final[dict[str, tuple[str, ...]]] = {
    "text": (".txt",),
    "elle": (".edn", ".json", ".jsonl"),
    "json": (".json",),
    "dbcop": (".json", ".bincode", ".hist"),
    "parquet": (".parquet",),
    "table": (".csv", ".jsonl"),
}
"""Name on the command line -> endings of files of this format. A file with any other ending is read as the first."""
BEGINS: Final[dict[str, tuple[bytes, ...]]] = {
    ".txt": (b"w(", b"r(", b"w ", b"r "),
    ".edn": (b"{:", b"[{:", b"[ {:", b"#jepsen", b";"),
    ".parquet": (b"PAR1",),
    ".json": (b"[", b"{"),
}
"""First bytes, where the name says nothing; in the order in which they are tried."""
