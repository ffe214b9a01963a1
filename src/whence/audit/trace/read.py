"""Reads the rows of a file, or of all files under a directory; errors name file, line and byte."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from math import inf
from pathlib import Path
from typing import BinaryIO, Literal, TypeVar

import msgspec

from whence.audit.trace.parquet import read_parquet
from whence.audit.trace.schema import PARQUET, Row
from whence.errors import TraceError

OnBad = Literal["raise", "collect"]
T = TypeVar("T")

LINE_LIMIT = 1 << 20
"""The longest JSON line in bytes. A longer one is not a row, and is not read into memory."""

SUFFIXES = (".jsonl", ".parquet")


class TraceReader(Iterator[Row]):
    """Iterates over rows. With `on_bad="collect"`, errors are kept in `bad` (the first `KEPT`; `bad_count` counts all)
    and reading continues: with the next line of a JSON file, or with the next file after a damaged Parquet file."""

    KEPT = 1_000

    def __init__(self, path: str | os.PathLike[str], on_bad: OnBad = "raise") -> None:
        self.bad: list[TraceError] = []
        self.bad_count = 0
        self._collect = on_bad == "collect"
        self._rows = self._read(trace_files(Path(path)))

    def __next__(self) -> Row:
        return next(self._rows)

    def _read(self, files: list[Path]) -> Iterator[Row]:
        for file in files:
            try:
                yield from read_parquet(file) if _is_parquet(file) else self._read_jsonl(file)
            except TraceError as error:
                self._bad(error)
            except OSError as error:
                self._bad(TraceError(f"{file}: cannot read: {error.strerror or error}"))

    def _bad(self, error: TraceError) -> None:
        if not self._collect:
            raise error
        self.bad_count += 1
        if len(self.bad) < self.KEPT:
            self.bad.append(error)

    def _read_jsonl(self, path: Path) -> Iterator[Row]:
        decode = msgspec.json.Decoder(Row).decode
        with path.open("rb") as file:
            for number, (start, line) in enumerate(lines(file), 1):
                row, why = decoded(line, decode)
                if row is not None and row.version >= 1:
                    yield row
                else:
                    why = why or f"version {row and row.version} does not exist"
                    self._bad(TraceError(f"{path}: line {number} (byte {start}): {why}"))


def lines(file: BinaryIO, end: float = inf) -> Iterator[tuple[int, bytes]]:
    """Where each line begins, and the line; up to the one that begins at `end`. Of a line that is too long for a row
    only the first bytes are kept in memory."""
    start = file.tell()
    while start < end and (line := file.readline(LINE_LIMIT)):
        yield start, line
        start += len(line)
        while len(line) == LINE_LIMIT and not line.endswith(b"\n"):
            line = file.readline(LINE_LIMIT)
            start += len(line)


def decoded(line: bytes, decode: Callable[[bytes], T]) -> tuple[T | None, str]:
    """The row in this line; or None, and why there is none."""
    if len(line) == LINE_LIMIT and not line.endswith(b"\n"):
        return None, f"longer than {LINE_LIMIT} bytes: not a whence trace"
    try:
        return decode(line), ""
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return None, ("" if line.endswith(b"\n") else "truncated: ") + str(error)


def read(path: str | os.PathLike[str], on_bad: OnBad = "raise") -> TraceReader:
    """The rows of a trace: a `.parquet` or `.jsonl` file, or a directory of them. Rows of other versions are read too:
    unknown columns are ignored, and missing optional ones are None."""
    return TraceReader(path, on_bad)


def by_member(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """The steps of each member of one run of one cluster, by `lseq`. Raises TraceError for a missing or repeated step,
    since no verdict is possible then."""
    steps: dict[str, list[Row]] = {}
    where: tuple[str, str] | None = None
    for row in rows:
        where = where or (row.run, row.cluster)
        if (row.run, row.cluster) != where:
            raise TraceError(f"rows of two runs or clusters: {where} and {(row.run, row.cluster)}; take one at a time")
        steps.setdefault(row.member, []).append(row)
    for member, mine in steps.items():
        mine.sort(key=lambda row: row.lseq)
        for expected, row in enumerate(mine):
            if row.lseq != expected:
                what = "is there twice" if row.lseq < expected else f"is missing (the next is {row.lseq})"
                raise TraceError(f"run {row.run}, member {member}: step {min(expected, row.lseq)} {what}")
    return steps


def trace_files(path: Path) -> list[Path]:
    """The files of a trace, sorted, without hidden ones (a writer's `.partial`) and those that begin with `_`."""
    if path.is_file():
        return [path]
    if not path.exists():
        raise TraceError(f"{path}: no such file or directory")
    found = sorted(p for p in path.rglob("*") if p.suffix in SUFFIXES and p.is_file())
    found = [p for p in found if not any(part[0] in "._" for part in p.relative_to(path).parts)]
    if not found:
        raise TraceError(f"{path}: no trace in this directory (no {' or '.join(SUFFIXES)} file)")
    return found


def _is_parquet(path: Path) -> bool:
    """Whether it is Parquet, by its name or its first bytes."""
    if path.stat().st_size == 0:
        raise TraceError(f"{path}: empty file")
    with path.open("rb") as file:
        return path.suffix == ".parquet" or file.read(len(PARQUET)) == PARQUET
