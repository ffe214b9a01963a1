"""The audit of a stream of one's own: streaming DataFrame in, streaming DataFrame out.

The state of a run of a cluster is kept by Spark, keyed by both, and saved with each batch in the checkpoint of the
query: a query that is killed and started again goes on where it was, and with a sink that takes each batch once, each
verdict is there once. The judge is `whence.audit.judge.batch.saved`, as in `whence audit --follow`.

Rows come to the judge and findings leave it in blocks (`whence.audit.spark.blocks`): as rows of pandas they would take
many times as long as judging them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from whence.audit.judge.batch import saved as saved_runs
from whence.audit.judge.batch import tables as results
from whence.audit.judge.batch.coding import Run
from whence.audit.judge.batch.compiled import interpreted
from whence.audit.judge.batch.saved import JudgedRows, SavedRun
from whence.audit.spark.blocks import BLOCKS, NOTICE, REFUSED, pack, packed, unpacked
from whence.audit.spark.findings import few, frozen, thawed, told
from whence.audit.spark.tables import arrow_schema, spark_schema

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.state import GroupState

TABLES: Final = ("verdicts", "violations")
_STATE: Final = "saved binary"
_FOUND: Final = "name string, block binary"


def audit_stream(df: DataFrame, *, exceptions: bool = False) -> DataFrame:
    """A stream of steps -> a stream of findings, with the columns `verdicts` and `violations`, structs of which one is
    filled: `found.where("violations is not null").select("violations.*")`.

    `df` has the columns that `whence.audit.audit` takes. Rows that cannot be judged are passed over. A delivery whose
    publish has not come waits. What depends on rows that may still come (`agreement`, doubts) is for the audit at the
    end. The state of a run grows with the events in it. `exceptions`: verdicts only on deliveries that are not in
    order; to write one for each is most of the work."""
    from pyspark.sql.streaming.state import GroupStateTimeout

    from whence.audit.spark import gate  # needs pyspark, which `whence audit --follow` does without
    from whence.audit.spark.session import check_workers

    check_workers(df.sparkSession)
    blocks = gate.rows(df).mapInArrow(packed, BLOCKS)
    whole = blocks.where(~blocks["run"].isin(REFUSED, NOTICE))
    keyed = whole.select("run", "cluster", "block").groupBy("run", "cluster")
    work = partial(_judged, exceptions)
    found = keyed.applyInPandasWithState(work, _FOUND, _STATE, "append", GroupStateTimeout.NoTimeout)
    kinds = ", ".join(f"{name} {spark_schema(name).simpleString()}" for name in TABLES)
    return found.mapInArrow(_rows, kinds)


def judged(saved: SavedRun, run: Run, rows: pa.Table) -> tuple[JudgedRows, dict[str, pa.Table]]:
    """Judge more rows of a run; with the tables of what was found."""
    with interpreted(few(rows.num_rows)):
        done = saved_runs.judged(saved, rows)
        a = done.audited._replace(coded=done.audited.coded._replace(runs=[run]))
        verdicts = results.verdicts(a)
    return done, {"verdicts": verdicts, "violations": results.violations_table(done.found, [run])}


def _judged(exceptions: bool, key: Any, batches: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    import pandas as pd

    run = str(key[0]), str(key[1])
    rows = told(unpacked(block for batch in batches for block in batch["block"]))
    done, made = judged(thawed(state.get[0]) if state.exists else SavedRun(), run, rows)
    state.update((frozen(done.saved),))
    if exceptions:
        made["verdicts"] = results.exceptions(made["verdicts"])
    blocks = {name: pack(table) for name, table in made.items() if table.num_rows}
    yield pd.DataFrame({"name": list(blocks), "block": list(blocks.values())})


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: the rows of these blocks, each in the column of its table."""
    for batch in batches:
        blocks: list[dict[str, Any]] = batch.to_pylist()
        for name, block in ((row["name"], row["block"]) for row in blocks):
            for part in pa.ipc.open_stream(block).read_all().cast(arrow_schema(name)).to_batches(1 << 16):
                filled = {name: part.to_struct_array()}
                yield pa.RecordBatch.from_arrays(
                    [filled.get(table, pa.nulls(len(part), pa.struct(arrow_schema(table)))) for table in TABLES],
                    names=list(TABLES),
                )
