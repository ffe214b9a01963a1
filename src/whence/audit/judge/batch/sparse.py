"""Verdicts, sparse: nearly all deliveries are in order, and writing that down is a third of the work of an audit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from whence.audit.judge.batch.coding import codes
from whence.audit.judge.batch.schemas import SCHEMAS
from whence.audit.judge.promises import NAMES


def sparse(verdicts: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The table `verdicts` of one run, by member and step, as its exceptions and the table `in_order`: ranges of
    deliveries that are in order and break nothing, with nothing else in between."""
    n = verdicts.num_rows
    verdict, names = codes(verdicts["verdict"])
    member, _ = codes(verdicts["member"])
    wrong = verdicts["violation"].to_numpy(zero_copy_only=False)
    fine = (verdict == names.to_pylist().index(NAMES[0])) & ~wrong if NAMES[0] in names.to_pylist() else wrong & ~wrong
    moves = np.ones(n, bool)
    moves[1:] = member[1:] != member[:-1]
    first = fine & (moves | ~np.append(False, fine[:-1]))
    last = fine & (np.append(moves[1:], True) | ~np.append(fine[1:], False))
    at, to = np.flatnonzero(first), np.flatnonzero(last)
    lseq = verdicts["lseq"].to_numpy()
    begin: Any = pa.array(at)
    kept = verdicts.select(["run", "cluster", "member", "order"]).take(begin)
    numbers: list[Any] = [lseq[at], lseq[to], to - at + 1]
    columns = [*kept.columns, *(pa.array(values.astype(np.int64)) for values in numbers)]
    exceptions: Any = pa.array(~fine)
    return verdicts.filter(exceptions), pa.Table.from_arrays(columns, names=SCHEMAS["in_order"].names)
