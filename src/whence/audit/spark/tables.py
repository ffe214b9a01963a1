"""The tables of the pipeline: their published schemas, the gate before each, and writing that is all or nothing.

A table is a directory of Parquet files beside a manifest, `_whence.json`, written last; a reader goes by it. On
a disk a table is written into a hidden directory and renamed when complete. In a store, which has no rename, its files
are written in place under names that are never used again, and the manifest says which of them are the table. So a
killed run leaves nothing that a later one would read, and running again replaces what was there.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from whence.audit.judge.batch import tables as results
from whence.audit.judge.batch.tables import Columns, arrow, columns
from whence.audit.spark.place import (
    Anywhere,
    TraceFile,
    is_local,
    join,
    names_in,
    parquet,
    place_of,
    read_bytes,
    remove,
    write_bytes,
)
from whence.audit.trace.schema import COLUMNS, TRACE_VERSION
from whence.errors import TraceError, UsageError

if TYPE_CHECKING:  # pyspark is imported where it is used: an audit without Spark does not load it
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

MANIFEST: Final = "_whence.json"
NOTES: Final = "tasks"
"""The directory of the notes that tasks leave for the next audit (`whence.audit.spark.kept`)."""

TABLES: Final[dict[str, Columns]] = {
    "events": columns(", ".join(f"{c.name} {c.type}{'!' if c.required else ''}" for c in COLUMNS) + ", file text!"),
    "quarantine": columns("file text!, position int64!, reason text!, raw text"),
    "metrics": columns("run text!, cluster text!, member text, window_start_ns int64, name text!, value double"),
    **results.TABLES,
}
"""`events`: the trace, typed and deduplicated, with the file each row came from.
`quarantine`: what could not be read as a row (position: row from 0 or line from 1, -1 for the whole file).
`metrics`: a null member means all members, a null window the whole run.
The others are the judge's (`whence.audit.judge.batch.tables`)."""


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


def read_table(spark: SparkSession, out: Anywhere, table: str) -> DataFrame:
    """A finished table. Raises TraceError when there is none, or only what a killed run left."""
    return frame(spark, table, table_files(out, table))


def frame(spark: SparkSession, table: str, files: Sequence[str]) -> DataFrame:
    """The rows of these files of a table: read by Spark on a disk, by Arrow elsewhere."""
    schema, arrow_of = spark_schema(table), arrow_schema(table)
    if not files:
        return spark.createDataFrame([], schema)
    if is_local(files[0]):
        return require(spark.read.schema(schema).parquet(*files), table)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for file in batch.column(0).to_pylist():
                yield from pq.read_table(parquet(str(file))).cast(arrow_of).to_batches(max_chunksize=1 << 16)

    listed = spark.createDataFrame([(file,) for file in files], "file string").repartition(len(files))
    return listed.mapInArrow(read, schema)


def table_files(out: Anywhere, table: str) -> list[str]:
    """The files of a finished table. Raises TraceError when there is none, or only what a killed run left."""
    place = place_of(out)
    entry = manifest(place).get("tables", {}).get(table)
    if entry is None:
        raise TraceError(f"{place}: no finished table {table!r} here")
    names = entry.get("files")
    if names is None:
        names = [name for name in names_in(join(place, table)) if name.endswith(".parquet")]
    return [join(place, table, name) for name in names]


def manifest(out: Anywhere) -> dict[str, Any]:
    """What is finished in this directory; empty when nothing is."""
    place = join(place_of(out), MANIFEST)
    try:
        found: dict[str, Any] = json.loads(read_bytes(place))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise TraceError(f"{place}: damaged: {error}; delete it and run again") from None
    return found


LOCK: Final = ".lock"
"""In a staging directory: locked for as long as somebody writes there."""


@contextmanager
def staging(out: Anywhere, take: Callable[[str], None] = lambda stage: None) -> Iterator[str]:
    """A place to write tables into: on a disk a hidden directory in `out`, which is gone afterwards (`publish` moves
    finished tables out of it), unless the run was killed or interrupted with some tasks finished; else `out`. What such
    runs left behind is removed first, but before that `take` may have it."""
    if not is_local(out):
        with disk_errors(place_of(out)):
            take(place_of(out))
            yield place_of(out)
        return
    place = Path(place_of(out))  # workers write into it, and may have been started in another directory
    with disk_errors(place):
        place.mkdir(parents=True, exist_ok=True)
        stage = place / f".staging-{uuid.uuid4().hex[:12]}"
        with _alone(place):
            stage.mkdir()
            lock = os.open(stage / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
    interrupted = False
    try:
        with disk_errors(place):
            take(str(stage))
            _remove_unused(place)
            yield str(stage)
    except KeyboardInterrupt:  # as after a kill, the next run may take what is finished
        interrupted = (stage / NOTES).exists()
        raise
    finally:
        os.close(lock)
        if not interrupted:
            _remove_unused(place)  # this one, and what a worker of a killed run may still have written into another


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    """One process at a time: a staging directory is not taken for a left one before it is locked, and tables of two
    audits are not mixed. The directory itself is locked: nothing is left of that. Not all file systems can do it."""
    lock = os.open(place, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _remove_unused(place: Path) -> None:
    with _alone(place):
        for left in place.glob(".staging-*"):
            if not _in_use(left):
                shutil.rmtree(left, ignore_errors=True)


def _in_use(stage: Path) -> bool:
    """A running process holds its lock. A process id would not do: a killed run's may be another's by now."""
    try:
        lock = os.open(stage / LOCK, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def publish(
    stage: str,
    out: Anywhere,
    rows: Mapping[str, int],
    facts: Mapping[str, Any],
    files: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Make the tables of `stage` those of `out`, in one step as far as a reader can tell: their entries leave the
    manifest before the old tables do, and come back when all the new ones are there. `rows`: of each table. `facts`
    (inputs and the like) go into the manifest. `files`: the names of the files of each table; others are of tasks that
    failed. Without it, all files are the table's."""
    place = place_of(out)
    with disk_errors(place), _alone(Path(place)) if is_local(place) else nullcontext():
        known = manifest(place)
        tables = {name: entry for name, entry in known.get("tables", {}).items() if name not in rows}
        _write_manifest(place, {**known, "tables": tables})
        now = datetime.now(UTC).isoformat(timespec="seconds")
        for table, count in rows.items():
            mine = None if files is None else sorted(files.get(table, ()))
            if is_local(place):
                _move(Path(stage) / table, Path(place) / table, mine)
            tables[table] = {"rows": count, "finished": now, **({} if mine is None else {"files": mine})}
        new = {"schema": TRACE_VERSION, **known, **facts, "finished": now, "tables": tables}
        _write_manifest(place, new)
        if not is_local(place):
            for table in rows:
                _only(place, table, tables[table]["files"])


def _move(table: Path, to: Path, files: Sequence[str] | None) -> None:
    table.mkdir(exist_ok=True)
    if files is not None:
        for file in [file for file in table.iterdir() if file.name not in files]:
            file.unlink()
    if to.exists():
        to.rename(table.with_name(f"old-{table.name}"))
    table.rename(to)


def _only(place: str, table: str, files: Sequence[str]) -> None:
    """Remove files of this table that are not of it any more."""
    for name in set(names_in(join(place, table))) - set(files):
        remove(join(place, table, name))


def _write_manifest(place: str, content: Mapping[str, Any]) -> None:
    if not is_local(place):  # a store shows a file when it is complete
        write_bytes(join(place, MANIFEST), json.dumps(content, indent=1).encode())
        return
    new = Path(place) / f".{MANIFEST}.{os.getpid()}"
    with new.open("w", encoding="utf-8") as file:
        json.dump(content, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    new.rename(Path(place) / MANIFEST)


@contextmanager
def disk_errors(place: Anywhere) -> Iterator[None]:
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


def inputs(files: Sequence[TraceFile]) -> list[dict[str, object]]:
    """What was read, for the manifest."""
    return [{"file": file.place, "size": file.size, "mtime_ns": file.mtime_ns} for file in files]
