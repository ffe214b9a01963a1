"""Trace writers. Rows are on disk after `close`."""

from __future__ import annotations

import glob
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import islice
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Protocol, Self

import msgspec

from whence.audit.trace.parquet import ENCODINGS, arrow_schema, import_pyarrow
from whence.audit.trace.read import read
from whence.audit.trace.schema import Row
from whence.errors import TraceError, UsageError
from whence.files import why


class TraceWriter(Protocol):
    """The interface of trace writers."""

    def append(self, row: Row) -> None:
        """Add one row."""

    def close(self) -> None:
        """Finish the trace. Closing again does nothing."""


class MemoryTrace:
    """Keeps rows in memory."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def append(self, row: Row) -> None:
        self.rows.append(row)

    def close(self) -> None:
        pass


class _FileTrace(ABC):
    """Collects rows into batches of a fixed size and passes each to `_write`. So memory is bounded, and the file
    depends only on the rows."""

    def __init__(self, path: str | os.PathLike[str], batch: int, mode: str, partial: Path | None = None) -> None:
        self.path = Path(path)
        self.closed = False
        self._batch = batch
        self._rows: list[Row] = []
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file: BinaryIO = (partial or self.path).open(mode)  # type: ignore[assignment]
        except OSError as error:
            raise TraceError(f"{self.path}: cannot write the trace: {why(error)}") from error

    def append(self, row: Row) -> None:
        self._rows.append(row)
        if len(self._rows) >= self._batch:
            self.flush()

    def append_many(self, rows: Iterable[Row]) -> None:
        """Add many rows, faster than one by one."""
        source = iter(rows)
        while chunk := list(islice(source, self._batch - len(self._rows))):
            self._rows += chunk
            if len(self._rows) >= self._batch:
                self.flush()

    def flush(self) -> None:
        """Write what was collected: lines are visible to readers then."""
        rows, self._rows = self._rows, []
        if self.closed:
            raise UsageError(f"{self.path}: the trace is closed; nothing can be added to it")
        with self._discarding():
            self._write(rows)

    def close(self) -> None:
        """Write what is left and finish the file."""
        if self.closed:
            return
        if self._rows:
            self.flush()
        with self._discarding():
            self._finish()
        self.closed, self._batch = True, 1  # so that the next row is refused at once

    @contextmanager
    def _discarding(self) -> Iterator[None]:
        try:
            yield
        except TraceError:
            self.discard()
            raise
        except OSError as error:
            self.discard()
            raise TraceError(f"{self.path}: cannot write the trace: {error.strerror or error}") from error

    @abstractmethod
    def _write(self, rows: list[Row]) -> None:
        """Write one batch."""

    def _finish(self) -> None:
        self._file.close()

    def discard(self) -> None:
        """Stop without finishing."""
        self.closed, self._batch = True, 1
        with suppress(OSError):  # the first error is the one to report
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        # Keep the trace of a failed run: it is needed to find the cause.
        if kind is None or not issubclass(kind, TraceError):
            self.close()


class ParquetTrace(_FileTrace):
    """One Parquet file, a row group per batch. It is renamed when complete: a killed run leaves only a hidden
    `.partial`, which readers ignore. Equal rows give equal bytes."""

    def __init__(self, path: str | os.PathLike[str], batch: int = 65_536) -> None:
        path = Path(path)
        self._partial = path.with_name(f".{path.name}.partial")
        self._pa, pq = import_pyarrow(path)
        super().__init__(path, batch, "wb", self._partial)
        self._writer = pq.ParquetWriter(self._file, arrow_schema(self._pa), **ENCODINGS)

    def _write(self, rows: list[Row]) -> None:
        arrays, schema = [], arrow_schema(self._pa)
        for field in schema:
            try:
                arrays.append(self._pa.array(list(map(attrgetter(field.name), rows)), type=field.type))
            except (self._pa.ArrowException, OverflowError, TypeError, ValueError) as error:
                raise TraceError(f"{self.path}: column {field.name}: {error}") from error
        self._writer.write_table(self._pa.Table.from_arrays(arrays, schema=schema), row_group_size=len(rows))

    def _finish(self) -> None:
        self._writer.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._partial.replace(self.path)

    def discard(self) -> None:
        """Leave no file behind."""
        self._writer.is_open = False  # it writes nothing more, not even when it is garbage collected
        super().discard()
        self._partial.unlink(missing_ok=True)


class JsonlTrace(_FileTrace):
    """One JSON object per line, appended: the file can be read while it grows. A killed run loses at most the last
    batch, and may leave half a line, which the reader reports and the next writer terminates."""

    def __init__(self, path: str | os.PathLike[str], batch: int = 1_024) -> None:
        super().__init__(path, batch, "ab")
        self._encode = msgspec.json.Encoder().encode_lines
        if _ends_within_a_line(self.path):
            self._file.write(b"\n")

    def _write(self, rows: list[Row]) -> None:
        self._file.write(self._encode(rows))
        self._file.flush()


class RotatingTrace:
    """Parquet for a process that may be killed at any time. Rows are appended to a segment of JSON lines; a full
    segment becomes a Parquet file in a background thread, and is deleted only then. So at every moment each row that
    was flushed is in a readable file. A process that is killed in between leaves rows in both files: the audit takes
    such rows once.

    `path` is `dir/name.parquet`; the files are `dir/name-000001.parquet`, ... and `dir/name-000007.jsonl` at the end.
    """

    def __init__(self, path: str | os.PathLike[str], rows: int = 65_536) -> None:
        self.path = Path(path)
        import_pyarrow(self.path)  # fails now if pyarrow is missing
        self.closed = False
        self.failed: list[TraceError | OSError] = []
        """Why segments stayed JSON lines, such as a full disk. No row is lost by that."""
        self._most = rows
        self._converter = ThreadPoolExecutor(1, thread_name_prefix="whence-trace")
        self._number = _last_number(self.path)
        self._rows = 0
        self._segment: JsonlTrace | None = None  # begun with its first row: an empty file is no trace

    def append(self, row: Row) -> None:
        if self.closed:
            raise UsageError(f"{self.path}: the trace is closed; nothing can be added to it")
        if self._segment is None:
            self._number += 1
            self._rows = 0
            name = f"{self.path.stem}-{self._number:06d}.jsonl"
            self._segment = JsonlTrace(self.path.with_name(name))
        self._segment.append(row)
        self._rows += 1
        if self._rows >= self._most:
            self._rotate()

    def flush(self) -> None:
        """Make all rows visible to readers."""
        if self._segment is not None:
            self._segment.flush()

    def _rotate(self) -> None:
        if self._segment is not None:
            self._segment.close()
            self._converter.submit(self._convert, self._segment.path)
            self._segment = None

    def _convert(self, segment: Path) -> None:
        try:
            with ParquetTrace(segment.with_suffix(".parquet")) as out:
                out.append_many(read(segment))
            segment.unlink()
        except (TraceError, OSError) as error:
            self.failed.append(error)

    def close(self) -> None:
        """Finish the last segment; waits until all are Parquet."""
        if self.closed:
            return
        self.closed = True
        self._rotate()
        self._converter.shutdown(wait=True)


def _last_number(path: Path) -> int:
    """The highest number of a segment that is there: an earlier life of the process may have written some."""
    found = (file.stem.rpartition("-")[2] for file in path.parent.glob(f"{glob.escape(path.stem)}-*"))
    return max((int(number) for number in found if number.isdecimal()), default=0)


def open_trace(path: str | os.PathLike[str]) -> ParquetTrace | JsonlTrace:
    """A writer for the format given by the file's suffix."""
    kinds: dict[str, type[ParquetTrace] | type[JsonlTrace]] = {".parquet": ParquetTrace, ".jsonl": JsonlTrace}
    if (kind := kinds.get(Path(path).suffix)) is not None:
        return kind(path)
    raise UsageError(f"{path}: a trace is a .parquet or a .jsonl file")


def _ends_within_a_line(path: Path) -> bool:
    if not path.is_file() or path.stat().st_size == 0:
        return False
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"
