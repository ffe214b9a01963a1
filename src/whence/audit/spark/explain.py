"""A closer look at one violation. What is wrong is said by `violations.detail`, in a sentence that names the events;
here is how the one came to be in the past of the other (`chain`), and the steps around it (`neighbourhood`,
`export_shiviz`).

Everything is found in the trace itself: that a cause comes before an effect is shown by who delivered the one and then
published the other, never by the protocol's timestamps. Rows are filtered by Spark before anything else is done.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from whence.audit.spark.pictures import short_trace
from whence.audit.trace import COLUMNS, Row, shiviz
from whence.errors import UsageError

_COLUMNS = [column.name for column in COLUMNS]
_REST = [name for name in _COLUMNS if name not in ("member", "lseq")]


def chain(events: DataFrame, violation: Mapping[str, Any]) -> list[Row]:
    """The shortest true chain from the cause to the effect of an inversion or a gap (a row of `verdicts`): publish,
    deliver, publish, ..., publish; where a member had it from a snapshot, that and its join. Empty if the trace has
    none. Runs a query per link of the chain, and brings at most one row per member of each into memory."""
    cause, effect = violation["event"], violation["cause_event"]
    if violation["verdict"] != "inverted":
        cause, effect = effect, cause
    here = events.where((F.col("run") == violation["run"]) & (F.col("cluster") == violation["cluster"]))
    told = here.where((F.col("kind") == "publish") & (F.col("event") == effect)).orderBy("lseq").limit(1).collect()
    knows: dict[str, list[Row]] = {}  # member -> how it came to know the cause: the fewest links, then the first step
    new: dict[str, list[Row]] = {}
    of_cause = here.where(F.col("kind").isin("publish", "deliver") & (F.col("event") == cause))
    found = [_row(r.asDict()) for r in of_cause.orderBy("lseq").collect()]
    for published in [row for row in found if row.kind == "publish"][:1]:
        for row in found:
            new.setdefault(row.member, [published] if row == published else [published, row])
    while told and new:
        knows |= new
        end = _row(told[0].asDict())
        if end.member in knows and knows[end.member][-1].lseq < end.lseq:
            return [*knows[end.member], end]
        steps = {member: path[-1].lseq for member, path in knows.items()}
        new = {
            got.member: [*knows[gave.member], gave, got]
            for gave, got in _told(here, {member: steps[member] for member in new})
            if got.lseq < steps.get(got.member, got.lseq + 1)
        }
    return []


def _told(here: DataFrame, knowing: dict[str, int]) -> list[tuple[Row, Row]]:
    """Whom those who know tell: their publish (or snapshot) after that step, and the first delivery of any of these (or
    join with it) at each member."""
    spark = here.sparkSession
    who = F.broadcast(spark.createDataFrame(list(knowing.items()), "member string, since long"))
    gave = here.where(F.col("kind").isin("publish", "snapshot")).join(who, "member").where("lseq > since")
    given = gave.select(
        F.coalesce("event", "token").alias("what"), F.struct(*(F.col(c) for c in _COLUMNS)).alias("gave")
    )
    got = here.where(F.col("kind").isin("deliver", "join")).select(
        F.coalesce("event", "token").alias("what"), "member", F.struct("lseq", *_REST).alias("got")
    )
    first = got.join(given, "what").groupBy("member").agg(F.min_by(F.struct("got", "gave"), "got.lseq").alias("x"))
    pairs = first.select("member", "x.got", "x.gave").collect()
    return [(_row(p.gave.asDict()), _row({**p.got.asDict(), "member": p.member})) for p in pairs]


def neighbourhood(events: DataFrame, violation: Mapping[str, Any], radius: int = 3) -> DataFrame:
    """The rows around a violation: its own step, the steps at which its events (`event`, `cause_event` of a verdict,
    `witness` of a violation) were published, and those at which the member itself or their publishers delivered them;
    each with `radius` steps of the same member before and after. `violation`: a row of `verdicts` or `violations` as a
    mapping."""
    if radius < 0:
        raise UsageError(f"a radius is a number of steps, not {radius}")
    named = [violation.get("event"), violation.get("cause_event"), *(violation.get("witness") or ())]
    wanted = sorted({str(event) for event in named if event is not None})
    here = events.where((F.col("run") == violation["run"]) & (F.col("cluster") == violation["cluster"]))
    theirs = here.where(F.col("kind").isin("publish", "deliver") & F.col("event").isin(wanted))
    publishers = theirs.where("kind = 'publish'").select("member").distinct()
    me = F.col("member") == violation["member"]
    anchors = theirs.where(me).unionByName(theirs.join(F.broadcast(publishers), "member", "left_semi"))
    if violation.get("lseq") is not None:
        anchors = anchors.unionByName(here.where(me & (F.col("lseq") == violation["lseq"])))
    near = anchors.select(F.col("member").alias("_m"), F.col("lseq").alias("_l")).distinct()
    close = (F.col("member") == F.col("_m")) & F.col("lseq").between(F.col("_l") - radius, F.col("_l") + radius)
    return here.join(F.broadcast(near), close, "left_semi")


def export_shiviz(rows: DataFrame, path: str | os.PathLike[str]) -> int:
    """Write a neighbourhood as a ShiViz log; returns the number of its rows. A host is a member; records say which
    step of the member they are. This runs the query: hand in what a person can look at."""
    found = short_trace([_row(r.asDict()) for r in rows.collect()])
    shiviz.write_log(found, path)
    return len(found)


def _row(fields: Mapping[str, Any]) -> Row:
    return Row(**{name: fields[name] for name in Row.__struct_fields__ if name in fields})
