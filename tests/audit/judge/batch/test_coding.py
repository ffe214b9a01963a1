"""Rows on the way to the kernel, without Spark."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests.audit.spark import traces as spark_traces
from whence.audit.judge.batch import audited, tables
from whence.audit.judge.batch.coding import code, picked


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
    assert len(made) == 3 and not a.coded.missing.any() and not a.coded.repeated and not a.circles
    rules = Counter(tables.violations(a)["rule"].to_pylist())
    assert (rules["causal"], rules["integrity"], rules["agreement"], rules["two owners"]) == (4, 4, 4, 4)
