"""Which file has which format, and what is a history in a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from whence.audit.history import cobra, dbcop, elle, plain
from whence.audit.history.model import History
from whence.audit.history.source import content, decoded
from whence.errors import HistoryError

FORMATS: Final = ("auto", "text", "dbcop", "cobra", "elle", "json")

SUFFIXES: Final = (".txt", ".edn", ".json", ".jsonl", ".hist", ".bincode", ".parquet")


def discover(paths: list[Path]) -> list[Path]:
    """The histories below these paths: files, and folders that are one history (Cobra's logs, dbcop's)."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = _inside(path)
            if not inside:
                raise HistoryError(
                    f"{path}: no history in this folder ({', '.join(SUFFIXES)}, gzipped or not; T<n>.log)"
                )
            found += inside
        elif path.exists():
            found.append(path)
        else:
            raise HistoryError(f"{path}: no such file or folder")
    return found


def _inside(folder: Path) -> list[Path]:
    if cobra.logs(folder):
        return [folder]
    found: list[Path] = []
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            found += _inside(path)
        elif suffix_of(path) in SUFFIXES:
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
    history = _parsed(path, form)
    if not any(txn.ops for txn in history.txns()):
        notes = "".join(f"; {note}" for note in history.notes)
        raise HistoryError(
            f"{path}: holds no operation of a committed transaction, so there is nothing to check{notes}"
        )
    return history


def _parsed(path: Path, form: str) -> History:
    if path.is_dir():
        if form not in ("auto", "cobra") or not cobra.logs(path):
            raise HistoryError(f"{path}: a folder is a history of format cobra only, with files T<n>.log")
        return cobra.read_cobra(path)
    if form == "cobra":
        raise HistoryError(f"{path}: a history of format cobra is a folder of files T<n>.log, not a file")
    raw = content(path)
    if not raw.strip():
        raise HistoryError(f"{path}: holds no operation: the file is empty")
    suffix = suffix_of(path)
    if suffix == ".bincode" and form in ("auto", "dbcop"):
        return dbcop.read_bincode(path, raw)
    text = decoded(path, raw)
    if form == "auto":
        form = _sniffed(path, suffix, text)
    if form == "text":
        return (plain.read_awdit if text.lstrip()[1:2] == " " else plain.read_text)(path, text)
    if form == "dbcop" and suffix == ".hist":
        return dbcop.read_hist(path, text)
    if form == "elle" and text.lstrip()[:2] not in ("[[", '[{"', '{"') and suffix not in (".json", ".jsonl"):
        return elle.read_edn(path, text)
    return read_json(path, text)


def _sniffed(path: Path, suffix: str, text: str) -> str:
    by_name = {".edn": "elle", ".hist": "dbcop", ".json": "json", ".jsonl": "json"}
    if suffix in by_name:
        return by_name[suffix]
    begin = text.lstrip()[:200]
    if begin[:2] in ("w(", "r(", "w ", "r ") or not begin or suffix == ".txt":
        return "text"
    if begin.startswith(("{:", "[{:", "[ {:", "#jepsen", ";")):
        return "elle"
    if begin.startswith(("[", "{")):
        return "json"
    raise HistoryError(f"{path}, line 1: {begin[:40]!r} begins no format known here; name one by --format")


def read_json(path: Path, text: str) -> History:
    """dbcop's JSON, or Jepsen's as an array or as lines: told apart by their shape."""
    try:
        data = json.loads(text)
    except ValueError as error:
        if getattr(error, "msg", "") == "Extra data":  # more than one document: lines
            return elle.read_rows(path, text)
        place = f", line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise HistoryError(f"{path}{place}: not JSON: {error}") from None
    if isinstance(data, dict) and "type" in data:
        return elle.read_rows(path, text)
    if isinstance(data, list) and data and isinstance(data[0], dict):
        return elle.read_array(path, data)
    return dbcop.read_json(path, data)
