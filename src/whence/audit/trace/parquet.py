"""Rows as Parquet. pyarrow is imported lazily: only Parquet needs it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import repeat
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from whence.audit.trace.schema import COLUMNS, TRACE_VERSION, Row
from whence.errors import TraceError

_BATCH: Final = 65_536

ENCODINGS: Final[dict[str, Any]] = {
    "compression": "zstd",
    "use_dictionary": [column.name for column in COLUMNS if column.type == "text"],
    "column_encoding": {column.name: "DELTA_BINARY_PACKED" for column in COLUMNS if column.type != "text"},
}
"""For `pyarrow.parquet`. Steps and times mostly rise slowly, so delta encoding is small and several times faster to
read than plain integers under zstd."""


def import_pyarrow(path: Path) -> tuple[ModuleType, ModuleType]:
    """Raises TraceError with what to install."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise TraceError(f"{path}: Parquet needs pyarrow; install it with: pip install 'whence[trace]'") from error
    return pyarrow, pyarrow.parquet


@cache
def arrow_schema(pa: Any) -> Any:
    """The schema of a Parquet trace."""
    types = {"text": pa.string(), "int32": pa.int32(), "int64": pa.int64()}
    fields = [pa.field(c.name, types[c.type], nullable=not c.required) for c in COLUMNS]
    return pa.schema(fields, metadata={"whence.trace": str(TRACE_VERSION)})


def read_parquet(path: Path) -> Iterator[Row]:
    """The rows of one file. Unknown columns are ignored; optional ones may be missing."""
    pa, pq = import_pyarrow(path)
    done = 0
    try:
        with pq.ParquetFile(path) as file:
            _check_columns(path, file.schema_arrow, pa.types)
            present = [name for name in Row.__struct_fields__ if name in file.schema_arrow.names]
            for batch in file.iter_batches(batch_size=_BATCH, columns=present):
                _check_nulls(path, batch, done)
                values: dict[str, list[Any]] = {name: batch.column(name).to_pylist() for name in present}
                yield from map(Row, *(values.get(name, repeat(None)) for name in Row.__struct_fields__))
                done += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        raise TraceError(f"{path}: row {done}: damaged, or not a Parquet file: {error}") from error


def _check_columns(path: Path, schema: Any, types: Any) -> None:
    """Check the schema: required columns exist, and all columns have the right type."""
    for column in COLUMNS:
        at = schema.get_field_index(column.name)
        if at < 0 and column.required:
            raise TraceError(f"{path}: not a whence trace: it has no column {column.name!r}")
        kind = schema.types[at] if at >= 0 else None
        kind = kind.value_type if kind is not None and types.is_dictionary(kind) else kind
        if kind is None or (types.is_null(kind) and not column.required):
            continue
        text = types.is_string(kind) or types.is_large_string(kind)
        if not (text if column.type == "text" else types.is_integer(kind)):
            raise TraceError(f"{path}: column {column.name!r} is {kind}, not {column.type}")


def _check_nulls(path: Path, batch: Any, done: int) -> None:
    for column in COLUMNS:
        if column.required and batch.column(column.name).null_count:
            row = batch.column(column.name).is_null().to_pylist().index(True)
            raise TraceError(f"{path}: row {done + row}: no value in column {column.name!r}")
