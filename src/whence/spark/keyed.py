"""The audit of a stream of one's own: streaming DataFrame in, streaming DataFrame out.

The state of a run of a cluster is kept by Spark, keyed by both, and saved with each batch in the checkpoint of the
query: a query that is killed and started again goes on where it was, and with a sink that takes each batch once, each
verdict is there once. The judge is `whence.judge.follow`, as in `whence watch`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from whence.judge import Follower, Judged
from whence.judge.batch.coding import READ
from whence.judge.batch.tables import from_rows, violations_table
from whence.judge.findings import Finding
from whence.judge.follow import KINDS, Changes, Step
from whence.judge.promises import PROMISES
from whence.spark import gate
from whence.spark.tables import spark_schema

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.state import GroupState

TABLES: Final = ("verdicts", "violations")
_STATE: Final = "saved binary"


def audit_stream(df: DataFrame) -> DataFrame:
    """A stream of steps (columns as for `whence.spark.audit`) -> a stream of findings, with the columns `verdicts` and
    `violations`, structs of which one is filled: `found.where("violations is not null").select("violations.*")`. Rows
    that cannot be judged are passed over. A delivery whose publish has not come waits. What depends on rows that may
    still come (`agreement`, doubts) is for the audit at the end. The state of a run grows with the events in it."""
    from pyspark.sql import functions as F
    from pyspark.sql.streaming.state import GroupStateTimeout

    from whence.spark.session import check_workers

    check_workers(df.sparkSession)
    kinds = ", ".join(f"{name} {spark_schema(name).simpleString()}" for name in TABLES)
    rows = gate.rows(df).where("run is not null and cluster is not null and member is not null and kind is not null")
    known = F.col("order").isNull() | F.col("order").isin([*PROMISES])
    good = rows.where(F.expr("lseq >= 0 and bad is null") & known)
    keyed = good.select(*READ).groupBy("run", "cluster")
    return keyed.applyInPandasWithState(_judged, kinds, _STATE, "append", GroupStateTimeout.NoTimeout)


def _judged(key: Any, batches: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    import pandas as pd

    follower = Follower()
    if state.exists:
        follower.apply(msgspec.msgpack.decode(state.get[0], type=Changes))
    judged: list[Judged] = []
    for batch in batches:
        table = pa.Table.from_pandas(batch, preserve_index=False)
        judged += follower.feed(steps_of(table))
    found = [finding for finding in follower.findings() if finding.doubt is None]
    state.update((msgspec.msgpack.encode(follower.whole()),))
    run = str(key[0]), str(key[1])
    made = {
        "verdicts": from_rows("verdicts", list(verdict_rows(run, judged, found))),
        "violations": violations_table(found, *run),
    }
    for name, rows in made.items():
        if rows.num_rows:
            filled = rows.to_pylist()
            yield pd.DataFrame({table: filled if table == name else [None] * len(filled) for table in TABLES})


def steps_of(rows: pa.Table) -> Iterator[tuple[str, int, Step | None]]:
    """Rows of one run and cluster, as the follower wants them."""
    numbers = [rows[name].cast(pa.int64()).to_pylist() for name in ("lseq", "ticket", "t_ns")]  # floats, by pandas
    texts = [rows[name].to_pylist() for name in ("member", "kind", "event", "reason", "peer", "order", "token")]
    for lseq, ticket, t, member, kind, event, reason, peer, order, token in zip(*numbers, *texts, strict=True):
        step = Step(kind, event, None, reason, peer, order, token, ticket, t) if kind in KINDS else None
        yield member, lseq, step


def verdict_rows(key: tuple[str, str], judged: list[Judged], found: list[Finding]) -> Iterator[tuple[Any, ...]]:
    """Rows of `verdicts`."""
    wrong = {(finding.member, finding.step) for finding in found}
    for one in judged:
        cause = (None, None, None) if one.cause is None else (one.cause.origin, one.cause.seq, one.cause.id)
        at = (one.member, one.step)
        yield (*key, *at, one.event, one.origin, one.seq, one.verdict.text, one.order, *cause, at in wrong)
