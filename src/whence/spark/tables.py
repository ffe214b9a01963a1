"""The tables of the pipeline: their published schemas, the gate before each, and writing that is all or nothing.

A table is a directory of Parquet files beside a manifest, `_whence.json`. It is written into a hidden directory and
renamed when complete, and only then entered in the manifest; a reader goes by the manifest. So a killed run leaves
nothing that a later one would read, and running again replaces what was there.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from whence.errors import TraceError, UsageError
from whence.judge.batch import schemas
from whence.judge.batch.schemas import Columns, arrow, columns
from whence.trace.schema import COLUMNS, TRACE_VERSION

if TYPE_CHECKING:  # pyspark is imported where it is used: an audit without Spark does not load it
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

MANIFEST: Final = "_whence.json"

TABLES: Final[dict[str, Columns]] = {
    "events": columns(", ".join(f"{c.name} {c.type}{'!' if c.required else ''}" for c in COLUMNS) + ", file text!"),
    "quarantine": columns("file text!, position int64!, reason text!, raw text"),
    "metrics": columns("run text!, cluster text!, member text, window_start_ns int64, name text!, value double"),
    **schemas.TABLES,
}
"""`events`: the trace, typed and deduplicated, with the file each row came from.
`quarantine`: what could not be read as a row (position: row from 0 or line from 1, -1 for the whole file).
`metrics`: a null member means all members, a null window the whole run.
The others are the judge's (`whence.judge.batch.schemas`)."""


def spark_schema(table: str) -> StructType:
    """The published schema, for Spark."""
    from pyspark.sql import types

    kinds: dict[str, types.DataType] = {
        "text": types.StringType(),
        "int32": types.IntegerType(),
        "int64": types.LongType(),
        "double": types.DoubleType(),
        "boolean": types.BooleanType(),
        "texts": types.ArrayType(types.StringType(), False),
        "int64s": types.ArrayType(types.LongType(), False),
    }
    fields = [types.StructField(name, kinds[kind], not required) for name, kind, required in TABLES[table]]
    return types.StructType(fields)


def arrow_schema(table: str) -> pa.Schema:
    """The published schema, for Arrow."""
    return arrow(TABLES[table])


def require(df: DataFrame, table: str) -> DataFrame:
    """The schema gate: `df` with the table's columns only, in their order. Raises UsageError that names what is
    missing or of another type. Reads no data."""
    there = {field.name: field.dataType for field in df.schema.fields}
    for field, (name, kind, _) in zip(spark_schema(table).fields, TABLES[table], strict=True):
        if name not in there:
            raise UsageError(f"not a table of {table}: it has no column {name!r} (it has {', '.join(there)})")
        if there[name].simpleString() != field.dataType.simpleString():
            raise UsageError(f"not a table of {table}: {name!r} is {there[name].simpleString()}, not {kind}")
    return df.select(*(name for name, _, _ in TABLES[table]))


# -- on disk


def read_table(spark: SparkSession, out: str | os.PathLike[str], table: str) -> DataFrame:
    """A finished table. Raises TraceError when there is none, or only what a killed run left."""
    place = Path(out)
    if table not in manifest(place).get("tables", {}):
        raise TraceError(f"{place}: no finished table {table!r} here")
    return require(spark.read.schema(spark_schema(table)).parquet(str(place / table)), table)


def manifest(out: Path) -> dict[str, Any]:
    """What is finished in this directory; empty when nothing is."""
    try:
        found: dict[str, Any] = json.loads((out / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise TraceError(f"{out / MANIFEST}: damaged: {error}; delete it and run again") from None
    return found


@contextmanager
def staging(out: str | os.PathLike[str]) -> Iterator[Path]:
    """A hidden directory in `out` to write tables into. It is gone afterwards, whatever happens: `publish` moves
    finished tables out of it. What killed runs left behind is removed first."""
    place = Path(out).absolute()  # workers write into it, and may have been started in another directory
    with disk_errors(place):
        place.mkdir(parents=True, exist_ok=True)
        for left in place.glob(".staging-*"):
            if not _in_use(left):
                shutil.rmtree(left, ignore_errors=True)
        stage = place / f".staging-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        stage.mkdir()
    try:
        with disk_errors(place):
            yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _in_use(stage: Path) -> bool:
    """The process that writes there is still running (on this machine)."""
    try:
        os.kill(int(stage.name.split("-")[1]), 0)
    except (ProcessLookupError, IndexError, ValueError):
        return False
    except PermissionError:
        return True
    return True


def publish(stage: Path, out: str | os.PathLike[str], rows: Mapping[str, int], facts: Mapping[str, Any]) -> None:
    """Move the tables of `stage` into place, in one step as far as a reader can tell: their entries leave the manifest
    before the old tables do, and come back when all the new ones are there. `facts` (inputs and the like) go into the
    manifest."""
    place = Path(out)
    with disk_errors(place):
        known = manifest(place)
        tables = {name: entry for name, entry in known.get("tables", {}).items() if name not in rows}
        _write_manifest(place, {**known, "tables": tables})
        now = datetime.now(UTC).isoformat(timespec="seconds")
        for table, count in rows.items():
            if (place / table).exists():
                (place / table).rename(stage / f"old-{table}")
            (stage / table).mkdir(exist_ok=True)
            (stage / table).rename(place / table)
            tables[table] = {"rows": count, "finished": now}
        _write_manifest(place, {"schema": TRACE_VERSION, **known, **facts, "finished": now, "tables": tables})


def _write_manifest(place: Path, content: Mapping[str, Any]) -> None:
    new = place / f".{MANIFEST}.{os.getpid()}"
    with new.open("w", encoding="utf-8") as file:
        json.dump(content, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    new.rename(place / MANIFEST)


@contextmanager
def disk_errors(place: Path) -> Iterator[None]:
    """A full or read-only disk gets a name, also when it was a worker of Spark that met it."""
    try:
        yield
    except OSError as error:
        raise TraceError(f"{place}: cannot write: {error.strerror or error}") from error
    except (TraceError, UsageError):
        raise
    except Exception as error:
        full = next((e for e in (errno.ENOSPC, errno.EDQUOT, errno.EROFS) if os.strerror(e) in str(error)), None)
        if full is None:
            raise
        raise TraceError(f"{place}: cannot write: {os.strerror(full)}") from error


def inputs(files: list[Path]) -> list[dict[str, object]]:
    """What was read, for the manifest."""
    return [{"file": str(f), "size": f.stat().st_size, "mtime_ns": f.stat().st_mtime_ns} for f in files]
