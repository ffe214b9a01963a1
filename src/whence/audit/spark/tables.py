"""The tables of the pipeline: their published schemas, and a directory of them that is written all or nothing.

    out/_whence.json            the manifest: which files are the tables
    out/violations/NAME.parquet a file of a table; its name is never used again
    out/_whence_new/TABLE/NAME  a file that is not published yet

Tasks write below `_whence_new`. When all of them are done the files are moved to their tables, and the manifest is
replaced. Readers of the manifest see the old tables until then, and the new ones from then on, never half an audit.
After one that was killed the next one starts afresh. The manifest is also the mark of a directory that audits write
into: where it is not, what has one of their names is somebody else's, and nothing is touched. Of what is in `out` only
files that an audit wrote are removed, and no link is followed.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from whence.audit.judge.batch import tables as results
from whence.audit.judge.batch.tables import Columns, arrow, columns
from whence.audit.spark import place as files
from whence.audit.spark.place import Anywhere, is_local, join, names_in, place_of
from whence.audit.trace.schema import COLUMNS, TRACE_VERSION
from whence.errors import TraceError, UsageError

if TYPE_CHECKING:  # pyspark is imported where it is used: an audit without Spark does not load it
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

MANIFEST: Final = "_whence.json"
STAGING: Final = "_whence_new"
PAGE: Final = "report.html"
PAGES: Final = "runs"
"""The pages of single runs."""
IMPORTED: Final = "imported.parquet"
"""What another system recorded, as a trace."""
OURS: Final = re.compile(r".*-[0-9a-f]{12}\.(parquet|html)")
"""Names of the files that tasks write."""

TABLES: Final[dict[str, Columns]] = {
    "events": columns(", ".join(f"{c.name} {c.type}{'!' if c.required else ''}" for c in COLUMNS) + ", file text!"),
    "quarantine": columns(
        "file text!, position int64!, reason text!, raw text, run text, cluster text, member text, lseq int64"
    ),
    **results.TABLES,
}
"""`events`: the trace, typed and deduplicated, with the file each row came from.
`quarantine`: what could not be read as a row (position: row from 0 or line from 1, -1 for the whole file), and whose
step it was, as far as it can be told.
The others are the judge's (`whence.audit.judge.batch.tables`)."""

GROUP: Final = 1 << 22
"""Rows of a row group. With each all of a dictionary is written: in small groups of a large run that is most of it."""


# -- schemas


def spark_schema(table: str) -> StructType:
    """The published schema, for Spark."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(arrow_schema(table))


def arrow_schema(table: str) -> pa.Schema:
    """The published schema, for Arrow."""
    return arrow(TABLES[table])


# -- reading


def read_table(spark: SparkSession, out: Anywhere, table: str) -> DataFrame:
    """A finished table: read by Spark on a disk, by Arrow elsewhere. Raises TraceError when there is none, or only what
    a killed run left."""
    names, arrow_of = table_files(out, table), arrow_schema(table)
    if is_local(place_of(out)):
        return spark.read.schema(spark_schema(table)).parquet(*names)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for file in batch.column(0).to_pylist():
                yield from pq.read_table(files.parquet(str(file))).cast(arrow_of).to_batches(max_chunksize=1 << 16)

    listed = spark.createDataFrame([(name,) for name in names], "file string").repartition(len(names))
    return listed.mapInArrow(read, spark_schema(table))


def table_files(out: Anywhere, table: str) -> list[str]:
    """The files of a finished table. Raises TraceError when there is none, or only what a killed run left."""
    place = place_of(out)
    entry = manifest(place).get("tables", {}).get(table)
    if entry is None:
        raise TraceError(f"{place}: no finished table {table!r} here")
    return [join(place, table, name) for name in entry["files"]]


def manifest(out: Anywhere) -> dict[str, Any]:
    """What is finished in this directory; empty when nothing is."""
    place = join(place_of(out), MANIFEST)
    try:
        found: dict[str, Any] = json.loads(files.read_bytes(place))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise TraceError(f"{place}: damaged: {error}; delete it and run again") from None
    return found


# -- writing, in a task


class Parts:
    """The files of one task, not published yet: one for each table that it has rows of. Text stays a dictionary from
    the trace to the table, and no row passes through the JVM."""

    def __init__(self, out: str, task: str) -> None:
        self._out = out
        self.name = f"{task}-{uuid.uuid4().hex[:12]}"
        self._open: dict[str, tuple[Any, Any]] = {}
        self.written: dict[str, dict[str, int]] = {}
        """Table -> its files and the rows in each; complete when the task is over."""

    def write(self, table: str, rows: pa.Table) -> None:
        """Append to the task's file of this table."""
        if not rows.num_rows:
            return
        name = f"{self.name}.parquet"
        if table not in self._open:
            sink = files.output(self._place(table, name))
            self._open[table] = sink, pq.ParquetWriter(sink, _schema(table, rows), **_options(table))
            self.written.setdefault(table, {})[name] = 0
        _, writer = self._open[table]
        if rows.schema.types == writer.schema.types:
            rows = pa.Table.from_arrays(rows.columns, schema=writer.schema)
        writer.write_table(rows.cast(writer.schema), row_group_size=GROUP)
        self.written[table][name] += rows.num_rows

    def add(self, table: str, name: str, data: bytes) -> None:
        """A file that is no Parquet."""
        files.write_bytes(self._place(table, name), data)
        self.written.setdefault(table, {})[name] = 1

    def _place(self, table: str, name: str) -> str:
        files.make_directory(join(self._out, STAGING, table))
        return join(self._out, STAGING, table, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for sink, writer in self._open.values():
            if kind is None:
                writer.close()
                sink.close()
            else:
                writer.is_open = False  # no footer: nobody will take it for a table


def _schema(table: str, rows: pa.Table) -> pa.Schema:
    """Text as it comes; what is never null is said to be so, which saves a level for each value."""
    required = {name for name, _, never_null in TABLES[table] if never_null}
    return pa.schema([field.with_nullable(field.name not in required) for field in rows.schema])


def _options(table: str) -> dict[str, Any]:
    """Statistics are what makes text slow to write: there are those that lead to a run, a member, and what is wrong.
    Numbers of a dictionary hardly get smaller by zstd, so the one table that is large does without. All ids of a run
    are one dictionary, however many they are: as text they take several times as long."""
    numbers = [name for name, kind, _ in TABLES[table] if kind == "int64"]
    large = table == "verdicts"
    return {
        "compression": "snappy" if large else "zstd",
        "store_schema": False,
        "use_dictionary": [name for name, kind, _ in TABLES[table] if kind == "text"],
        "column_encoding": dict.fromkeys(numbers, "DELTA_BINARY_PACKED"),
        "write_statistics": [name for name, _, _ in TABLES[table] if name in ("run", "member", "violation")],
        "dictionary_pagesize_limit": 1 << 28,
        "write_batch_size": 1 << 14,
    }


# -- publishing


Written = Mapping[str, Mapping[str, int]]
"""Table -> its files, and the rows in each."""


@contextmanager
def alone(out: Anywhere) -> Iterator[None]:
    """A directory of this machine, made if need be, to write into: one process at a time (UsageError). The directory
    itself is locked, so nothing is left of that. A store cannot be locked: its callers have to see to it."""
    with disk_errors(out):
        if not is_local(out):
            yield
            return
        place = Path(place_of(out))
        place.mkdir(parents=True, exist_ok=True)
        lock = os.open(place, os.O_RDONLY)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UsageError(f"{out}: another process is writing here") from None
            except OSError:  # a file system without locks
                pass
            yield
        finally:
            os.close(lock)


def claim(out: Anywhere) -> None:
    """Mark a directory as one of audits. UsageError if something in it that has one of their names is not theirs."""
    place, names = place_of(out), (MANIFEST, STAGING, PAGE, PAGES, IMPORTED, *TABLES)
    marked = files.there(join(place, MANIFEST))
    for name in names:
        if files.is_link(join(place, name)):
            raise UsageError(f"{join(place, name)} is a link, and an audit follows none: name another directory")
        if not marked and files.there(join(place, name)):
            raise UsageError(f"{join(place, name)} is there, and no audit wrote it: name another directory")
    if not marked:
        files.make_directory(place)
        files.replace_bytes(join(place, MANIFEST), json.dumps({"schema": TRACE_VERSION, "tables": {}}).encode())


@contextmanager
def staging(out: Anywhere) -> Iterator[None]:
    """A place for what is not published yet, empty at first; to write into `out` alone (see `alone` and `claim`)."""
    place = join(place_of(out), STAGING)
    with alone(out):
        claim(out)
        files.remove_directory(place)
        files.make_directory(place)
        yield
        files.remove_directory(place)


def publish(out: Anywhere, written: Written, facts: Mapping[str, Any]) -> None:
    """Make these files the tables of `out`, then remove those that were it. `facts` (inputs and the like) go into the
    manifest. A table without a file gets an empty one."""
    place = place_of(out)
    old = manifest(place).get("tables", {})
    now = datetime.now(UTC).isoformat(timespec="seconds")
    new: dict[str, Any] = {}
    for table, names in written.items():
        files.make_directory(join(place, table))
        if not names:
            names = {f"empty-{uuid.uuid4().hex[:12]}.parquet": 0}
            files.make_directory(join(place, STAGING, table))
            with files.output(join(place, STAGING, table, *names)) as sink:
                pq.write_table(arrow_schema(table).empty_table(), sink)
        for name in names:
            files.move(join(place, STAGING, table, name), join(place, table, name))
        new[table] = {"rows": sum(names.values()), "finished": now, "files": sorted(names)}
    said = {"schema": TRACE_VERSION, **facts, "finished": now, "tables": new}
    files.replace_bytes(join(place, MANIFEST), json.dumps(said, indent=1).encode())
    for table in {**old, **new}:
        used = new[table]["files"] if table in new else []
        for name in names_in(join(place, table)):
            if name not in used and OURS.fullmatch(name):
                files.remove(join(place, table, name))


@contextmanager
def meanwhile(look: Callable[[], None], seconds: float) -> Iterator[None]:
    """Look every so many seconds, until the end of the block."""
    over = threading.Event()

    def looking() -> None:
        while not over.wait(seconds):
            look()

    thread = threading.Thread(target=looking, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


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
