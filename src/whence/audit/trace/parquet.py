"""Rows as Parquet. pyarrow is imported lazily: only Parquet needs it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import repeat
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from whence.audit.trace.schema import COLUMNS, REQUIRED, TRACE_VERSION, Row
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


def gate(schema: Any, needed: Iterable[str]) -> str | None:
    """Why a file with these columns is no trace; None if it is one. `needed`: the columns that it has to have."""
    from pyarrow import types

    missing = [name for name in needed if schema.get_field_index(name) < 0]
    wrong = [f"not a whence trace: it has no column {', '.join(map(repr, missing))}"] if missing else []
    for column in COLUMNS:
        at = schema.get_field_index(column.name)
        if at < 0:
            continue
        kind = schema.field(at).type
        if types.is_dictionary(kind):
            kind = kind.value_type
        text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
        fits = text if column.type == "text" else types.is_integer(kind)
        if not fits and not (types.is_null(kind) and not column.required):
            wrong.append(f"column {column.name!r} is {kind}, not {column.type}")
    return "; ".join(wrong) or None


def read_parquet(path: Path) -> Iterator[Row]:
    """The rows of one file. Unknown columns are ignored; optional ones may be missing."""
    pa, pq = import_pyarrow(path)
    done = 0
    try:
        with pq.ParquetFile(path) as file:
            if why := gate(file.schema_arrow, REQUIRED):
                raise TraceError(f"{path}: {why}")
            present = [name for name in Row.__struct_fields__ if name in file.schema_arrow.names]
            for batch in file.iter_batches(batch_size=_BATCH, columns=present):
                for name in REQUIRED:
                    if batch.column(name).null_count:
                        row = done + batch.column(name).is_null().to_pylist().index(True)
                        raise TraceError(f"{path}: row {row}: no value in column {name!r}")
                values: dict[str, list[Any]] = {name: batch.column(name).to_pylist() for name in present}
                yield from map(Row, *(values.get(name, repeat(None)) for name in Row.__struct_fields__))
                done += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        raise TraceError(f"{path}: row {done}: damaged, or not a Parquet file: {error}") from error
