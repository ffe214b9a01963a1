"""Files of tables, written by the tasks themselves: text stays a dictionary from the trace to the table, and no row
passes through the JVM.

A file has a name that no other task or attempt uses, and is only part of a table when the task says so at its end
(`written`): a task that fails, or is run twice, leaves files that nobody reads. So nothing is renamed.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import pyarrow as pa
import pyarrow.parquet as pq

from whence.audit.spark.place import is_local, join, make_directory, output, remove, write_bytes
from whence.audit.spark.tables import NOTES, TABLES

GROUP: Final = 1 << 22
"""Rows of a row group. With each all of a dictionary is written: in small groups of a large run that is most of it."""
SMALL: Final = 1 << 16
"""Tables of fewer rows wait for others, and share a row group: a task may have 10^5 small runs, and a row group costs a
millisecond and a place in the file's footer."""
ROW_BYTES: Final = 256
"""So many bytes, also of dictionaries, count as a row: a short table of a large run does not wait."""


class Group(NamedTuple):
    """What is judged together: a run of a cluster, or all of them (`whence.audit.spark.kept.ALL`)."""

    run: str
    cluster: str
    digest: str
    """Of the pieces of files that its rows are in, and of the terms."""


class Parts:
    """The files of one task, one for each table that it has rows of."""

    def __init__(self, stage: str, task: str) -> None:
        self._stage, self._task = stage, task
        self._mark = uuid.uuid4().hex[:8]
        self._open: dict[str, Any] = {}
        self._sinks: dict[str, Any] = {}
        self._rows: Counter[str] = Counter()
        self._waiting: dict[str, list[pa.Table]] = {}
        self._waiting_rows: Counter[str] = Counter()
        self.written: dict[str, tuple[str, int]] = {}
        """Table -> its file and the rows in it, when the task is over."""

    def write(self, table: str, rows: pa.Table) -> None:
        """Append to the task's file of this table."""
        if not rows.num_rows:
            return
        if table not in self._open:
            make_directory(join(self._stage, table))
            self._sinks[table] = output(self._file(table))
            self._open[table] = pq.ParquetWriter(self._sinks[table], _schema(table, rows), **_options(table))
        schema = self._open[table].schema
        if rows.schema.types == schema.types:
            rows = pa.Table.from_arrays(rows.columns, schema=schema)
        size = max(rows.num_rows, rows.get_total_buffer_size() // ROW_BYTES)
        if size >= SMALL and table in self._waiting:
            self._write(table)  # what is large is not copied to be put together with them
        self._waiting.setdefault(table, []).append(rows if rows.schema == schema else rows.cast(schema))
        self._waiting_rows[table] += size
        self._rows[table] += rows.num_rows
        if self._waiting_rows[table] >= SMALL:
            self._write(table)

    def _write(self, table: str) -> None:
        """What waits, in the order in which it came."""
        waiting = self._waiting.pop(table)
        del self._waiting_rows[table]
        rows = waiting[0]
        if len(waiting) > 1:  # each has dictionaries of its own
            rows = pa.concat_tables(waiting).unify_dictionaries().combine_chunks()
        self._open[table].write_table(rows, row_group_size=GROUP)

    def note(self, groups: Sequence[Group], said: Sequence[str]) -> str:
        """When all files are there: leave word of what was judged and written, for the next audit
        (`whence.audit.spark.kept`). Returns the name of the note."""
        name = f"{self._task}-{self._mark}.json"
        make_directory(join(self._stage, NOTES))
        write_bytes(join(self._stage, NOTES, name), json.dumps({"groups": groups, "said": said}).encode())
        return name

    def _file(self, table: str) -> str:
        return join(self._stage, table, f"{self._task}-{self._mark}.parquet")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for table, writer in self._open.items():
            if kind is not None:
                writer.is_open = False  # no footer: nobody will take it for a table
                if is_local(self._file(table)):
                    remove(self._file(table))
                continue
            if table in self._waiting:
                self._write(table)
            writer.close()
            if not is_local(self._file(table)):
                self._sinks[table].close()
            self.written[table] = self._file(table).partition("?")[0].rpartition("/")[2], self._rows[table]


def _schema(table: str, rows: pa.Table) -> pa.Schema:
    """Text as it comes; what is never null is said to be so, which saves a level for each value."""
    required = {name for name, _, never_null in TABLES[table] if never_null}
    return pa.schema([field.with_nullable(field.name not in required) for field in rows.schema])


def _options(table: str) -> dict[str, Any]:
    """Statistics are what makes text slow to write: of the one table that is large there are only those that lead to
    what is wrong (of which run a row group is its dictionary tells, too). Numbers of a dictionary hardly get smaller by
    zstd, so that table does without. All ids of a run are one dictionary, however many they are: as text they take
    several times as long."""
    numbers = [name for name, kind, _ in TABLES[table] if kind == "int64"]
    large = table == "verdicts"
    return {
        "compression": "snappy" if large else "zstd",
        "store_schema": False,
        "use_dictionary": [name for name, kind, _ in TABLES[table] if kind == "text"],
        "column_encoding": dict.fromkeys(numbers, "DELTA_BINARY_PACKED"),
        "write_statistics": ["violation"] if large else [name for name, _, _ in TABLES[table] if name == "run"],
        "dictionary_pagesize_limit": 1 << 28,
        "write_batch_size": 1 << 14,
    }
