"""Reads and writes rows as Parquet. The only module that needs pyarrow, which is imported lazily."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import repeat
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, Final

from whence.audit.trace.schema import COLUMNS, TRACE_VERSION, Row
from whence.errors import TraceError

_BATCH = 65_536
_FIELDS = Row.__struct_fields__

ENCODINGS: Final[dict[str, Any]] = {
    "compression": "zstd",
    "use_dictionary": [column.name for column in COLUMNS if column.type == "text"],
    "column_encoding": {column.name: "DELTA_BINARY_PACKED" for column in COLUMNS if column.type != "text"},
}
"""For `pyarrow.parquet`. Steps and times mostly rise slowly, so delta encoding is small and several times faster to
read than plain integers under zstd."""


def _pyarrow(path: Path) -> tuple[ModuleType, ModuleType]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise TraceError(f"{path}: Parquet needs pyarrow; install it with: pip install 'whence[trace]'") from error
    return pyarrow, pyarrow.parquet


@cache
def _schema(pa: Any) -> Any:
    types = {"text": pa.string(), "int32": pa.int32(), "int64": pa.int64()}
    fields = [pa.field(c.name, types[c.type], nullable=not c.required) for c in COLUMNS]
    return pa.schema(fields, metadata={"whence.trace": str(TRACE_VERSION)})


class ParquetEncoder:
    """Writes row groups into an open file."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self._pa, pq = _pyarrow(path)
        self._schema = _schema(self._pa)
        self._writer = pq.ParquetWriter(file, self._schema, **ENCODINGS)

    def write(self, rows: list[Row]) -> None:
        """One row group."""
        arrays = []
        for field in self._schema:
            try:
                arrays.append(self._pa.array(list(map(attrgetter(field.name), rows)), type=field.type))
            except (self._pa.ArrowException, OverflowError, TypeError, ValueError) as error:
                raise TraceError(f"{self._path}: column {field.name}: {error}") from error
        self._writer.write_table(self._pa.Table.from_arrays(arrays, schema=self._schema), row_group_size=len(rows))

    def close(self) -> None:
        """Write the footer."""
        self._writer.close()

    def abandon(self) -> None:
        """Write nothing more, not even when the writer is garbage collected."""
        self._writer.is_open = False


def parquet_encoder(path: Path) -> Callable[[BinaryIO], ParquetEncoder]:
    """A factory of encoders for an open file. Fails now, before the file is created, if pyarrow is missing."""
    _pyarrow(path)
    return lambda file: ParquetEncoder(path, file)


def read_parquet(path: Path) -> Iterator[Row]:
    """The rows of one file. Unknown columns are ignored; optional ones may be missing."""
    pa, pq = _pyarrow(path)
    done = 0
    try:
        with pq.ParquetFile(path) as file:
            _check_columns(path, file.schema_arrow, pa.types)
            present = [name for name in _FIELDS if name in file.schema_arrow.names]
            for batch in file.iter_batches(batch_size=_BATCH, columns=present):
                _check_nulls(path, batch, done)
                values: dict[str, list[Any]] = {name: batch.column(name).to_pylist() for name in present}
                yield from map(Row, *(values.get(name, repeat(None)) for name in _FIELDS))
                done += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        raise TraceError(f"{path}: row {done}: damaged, or not a Parquet file: {error}") from error


def _check_columns(path: Path, schema: Any, types: Any) -> None:
    """Check the schema: required columns exist, and all columns have the right type."""
    for column in COLUMNS:
        at = schema.get_field_index(column.name)
        if at < 0:
            if column.required:
                raise TraceError(f"{path}: not a whence trace: it has no column {column.name!r}")
            continue
        kind = schema.types[at]
        if types.is_dictionary(kind):
            kind = kind.value_type
        text = types.is_string(kind) or types.is_large_string(kind)
        fits = text if column.type == "text" else types.is_integer(kind)
        if not fits and not (types.is_null(kind) and not column.required):
            raise TraceError(f"{path}: column {column.name!r} is {kind}, not {column.type}")


def _check_nulls(path: Path, batch: Any, done: int) -> None:
    for column in COLUMNS:
        if column.required and batch.column(column.name).null_count:
            row = batch.column(column.name).is_null().to_pylist().index(True)
            raise TraceError(f"{path}: row {done + row}: no value in column {column.name!r}")
