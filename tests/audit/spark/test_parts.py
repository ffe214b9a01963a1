"""The files of a task, without Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from whence.audit.spark.tables import SMALL, TASKS, Parts, arrow_schema


def ranges(run: str, rows: int) -> pa.Table:
    """Rows of `in_order`, with dictionaries of their own."""
    schema = arrow_schema("in_order")
    columns = [
        pa.array([f"{run}/{k % 5}" for k in range(rows)])
        if pa.types.is_string(f.type)
        else pa.array(range(rows), f.type)
        for f in schema
    ]
    coded = [c.dictionary_encode() if pa.types.is_string(c.type) else c for c in columns]
    return pa.Table.from_arrays(coded, names=schema.names)


def written(place: Path, tables: list[pa.Table]) -> pq.ParquetFile:
    with Parts(str(place), "task") as parts:
        for table in tables:
            parts.write("in_order", table)
    ((name, rows),) = parts.written["in_order"].items()
    assert rows == sum(table.num_rows for table in tables)
    return pq.ParquetFile(place / TASKS / "in_order" / name)


def test_many_small_runs_share_a_row_group(tmp_path: Path) -> None:
    tables = [ranges(f"run-{n}", 1 + n % 3) for n in range(300)]
    file = written(tmp_path, tables)
    assert file.metadata.num_row_groups == 1
    assert file.read().to_pylist() == [row for table in tables for row in table.to_pylist()]


def test_a_large_one_has_a_row_group_of_its_own_in_its_place(tmp_path: Path) -> None:
    tables = [ranges("a", 2), ranges("b", 3), ranges("large", SMALL), ranges("c", 4)]
    file = written(tmp_path, tables)
    assert [file.metadata.row_group(g).num_rows for g in range(file.metadata.num_row_groups)] == [5, SMALL, 4]
    assert file.read().column("run").to_pylist() == [run for table in tables for run in table.column("run").to_pylist()]
