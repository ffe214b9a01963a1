"""Rows on the way to the kernel, without Spark."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests.audit.judge.batch.rows import table_of
from tests.audit.spark import traces as spark_traces
from whence.audit.judge.batch import audited, tables
from whence.audit.judge.batch.coding import code, picked
from whence.audit.trace import Row


@given(st.lists(st.integers(1, 5), max_size=4), st.data())
def test_picked_is_take(sizes: list[int], data: st.DataObject) -> None:
    chunks = [pa.table({"n": range(size), "text": [f"{k}-{n}" for n in range(size)]}) for k, size in enumerate(sizes)]
    table = pa.concat_tables([pa.table({"n": pa.array([], pa.int64()), "text": pa.array([], pa.string())}), *chunks])
    rows = data.draw(st.lists(st.integers(0, sum(sizes) - 1), max_size=9) if sizes else st.just([]))
    assert picked(table, np.array(rows, np.int64)) == table.take(pa.array(rows, pa.int64())).to_pylist()


def test_a_long_run_made_in_parts_is_one_run() -> None:
    """The trace of the bench for runs that do not fit into memory."""
    made = list(spark_traces.make_long(30_000, 3, origins=5, members=40, wrongs=4))
    a = audited.audited(code(pa.concat_tables(made), complete=True))
    assert len(made) == 3 and not a.coded.missing.any() and not a.coded.repeated and not a.found.early.any()
    rules = Counter(tables.violations(a)["rule"].to_pylist())
    assert (rules["causal"], rules["integrity"], rules["agreement"], rules["two owners"]) == (4, 4, 4, 4)


def test_a_row_without_a_kind_is_a_step_and_nothing_else() -> None:
    """Readers put such rows into the quarantine. Here it must not pass for one of another kind."""
    rows = [Row("r", "c", "a#1", n, n, "deliver" if n else "publish", "a#1/1") for n in range(3)]
    table = table_of(rows)
    kinds = pa.array(["publish", None, "deliver"])
    a = audited.audited(code(table.set_column(table.column_names.index("kind"), "kind", kinds)))
    assert [v["lseq"] for v in tables.verdicts(a).to_pylist()] == [2]
    assert tables.members(a)["steps"].to_pylist() == [3] and not a.coded.missing.any()
