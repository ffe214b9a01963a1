"""Why a delivery was wrong: at most three events, at which members, at which of their steps, in which order.

Everything is found in the trace itself: that a cause C comes before an effect E is shown by who delivered C and then
published E, never by the protocol's timestamps. The rows are filtered by Spark before anything else is done with them:
what is joined are the steps of the events in question, one or two per member.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from whence.errors import UsageError
from whence.trace import Row, shiviz

STEP = StructType(
    [
        StructField("member", StringType(), False),
        StructField("lseq", LongType(), False),
        StructField("kind", StringType(), False),
        StructField("event", StringType(), False),
    ]
)

SCHEMA = StructType(
    [
        StructField("run", StringType(), False),
        StructField("cluster", StringType(), False),
        StructField("member", StringType(), False),
        StructField("lseq", LongType(), False),
        StructField("event", StringType()),
        StructField("verdict", StringType(), False),
        StructField("text", StringType(), False),
        StructField("steps", ArrayType(STEP, False), False),
    ]
)
"""`text`: the explanation as a sentence. `steps`: the same for machines, causes before effects."""

_GROUP = ["run", "cluster"]
_KEY = ["run", "cluster", "member", "lseq"]


def explain(events: DataFrame, verdicts: DataFrame) -> DataFrame:
    """An explanation for every verdict that names a cause, and for duplicates and unknown events (see `SCHEMA`). Hand
    in the verdicts that are to be explained: all of a bad run are many."""
    pairs = _pairs(verdicts)
    touched = _touched(events, pairs)
    found = _via(events, _direct(pairs, touched), touched)
    return found.select(*_KEY, "event", "verdict", _text().alias("text"), _steps().alias("steps")).to(SCHEMA)


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
    found = [_row(r.asDict()) for r in rows.orderBy("member", "lseq").collect()]
    count: dict[tuple[str, str, str], int] = {}
    out = []
    for row in found:
        key = (row.run, row.cluster, row.member)
        said = f"step {row.lseq}" + (f": {row.reason}" if row.reason else "")
        # The viewer's clocks are counted from the rows that are there: a piece of a trace is a short trace.
        out.append(msgspec.structs.replace(row, lseq=count.get(key, 0), reason=said))
        count[key] = count.get(key, 0) + 1
    shiviz.write_log(out, path)
    return len(out)


# -- how: C is the cause, E the effect; P published E, and knew C by its step `knew`


def _pairs(verdicts: DataFrame) -> DataFrame:
    """C and E of every verdict to be explained."""
    mine = verdicts.where(
        F.col("cause_event").isNotNull() & F.col("verdict").isin("inverted", "over a gap", "after a gap")
        | F.col("verdict").isin("duplicate", "unknown")
    )
    late = F.col("verdict") == "inverted"
    alone = F.col("verdict").isin("duplicate", "unknown")
    return mine.select(
        *_KEY,
        "event",
        "verdict",
        F.when(late | alone, F.col("event")).otherwise(F.col("cause_event")).alias("C"),
        F.when(late, F.col("cause_event")).when(~alone, F.col("event")).alias("E"),
    )


def _touched(events: DataFrame, pairs: DataFrame) -> DataFrame:
    """Where these events were published and delivered, and at which step; the first one, should there be several."""
    wanted = pairs.select(*_GROUP, F.explode(F.array("C", "E")).alias("event")).where("event IS NOT NULL").distinct()
    rows = events.where(F.col("kind").isin("publish", "deliver")).join(
        F.broadcast(wanted), [*_GROUP, "event"], "left_semi"
    )
    return rows.groupBy(*_GROUP, "event", F.col("member").alias("at"), "kind").agg(F.min("lseq").alias("step"))


def _direct(pairs: DataFrame, touched: DataFrame) -> DataFrame:
    """Adds the publishes (`o`, `a` of C; `p`, `s` of E), the deliveries here (`e_here`, `c_here`), and P's own first
    step with C, if that was before it published E (`knew`, `knew_kind`)."""
    publishes = (
        touched.where("kind = 'publish'").groupBy(*_GROUP, "event").agg(F.min(F.struct("step", "at")).alias("first"))
    )
    of = publishes.select(*_GROUP, F.col("event"), F.col("first.at").alias("at"), F.col("first.step").alias("step"))
    of_c = of.select(*_GROUP, F.col("event").alias("C"), F.col("at").alias("o"), F.col("step").alias("a"))
    of_e = of.select(*_GROUP, F.col("event").alias("E"), F.col("at").alias("p"), F.col("step").alias("s"))
    delivered = touched.where("kind = 'deliver'").select(*_GROUP, "event", F.col("at").alias("member"), "step")
    c_here = delivered.select(*_GROUP, "member", F.col("event").alias("C"), F.col("step").alias("c_here"))
    e_here = delivered.select(*_GROUP, "member", F.col("event").alias("E"), F.col("step").alias("e_here"))
    knew = (
        touched.groupBy(*_GROUP, F.col("event").alias("C"), F.col("at").alias("p"))
        .agg(F.min(F.struct(F.col("step"), F.col("kind"))).alias("first"))
        .select(*_GROUP, "C", "p", F.col("first.step").alias("knew"), F.col("first.kind").alias("knew_kind"))
    )
    all_ = pairs.join(of_c, [*_GROUP, "C"], "left").join(of_e, [*_GROUP, "E"], "left")
    all_ = all_.join(c_here, [*_GROUP, "member", "C"], "left").join(e_here, [*_GROUP, "member", "E"], "left")
    all_ = all_.join(knew, [*_GROUP, "C", "p"], "left")
    before = F.col("knew") < F.col("s")
    return all_.withColumns({c: F.when(before, F.col(c)) for c in ("knew", "knew_kind")})


def _via(events: DataFrame, direct: DataFrame, touched: DataFrame) -> DataFrame:
    """Where P did not have C itself: adds D, which P delivered (`got`) before it published E, and whose publisher `d`
    had C (`d_knew`) before it published D (`t`). The D that P delivered first, if there are several."""
    open_ = direct.where("E IS NOT NULL AND knew IS NULL AND p IS NOT NULL").select(*_KEY, "C", "p", "s")
    informed = touched.groupBy(*_GROUP, F.col("event").alias("C"), F.col("at").alias("d")).agg(
        F.min("step").alias("d_knew")
    )
    told = events.where("kind = 'publish'").select(
        *_GROUP, F.col("member").alias("d"), F.col("lseq").alias("t"), F.col("event").alias("D")
    )
    heard = events.where("kind = 'deliver'").select(
        *_GROUP, F.col("member").alias("p"), F.col("lseq").alias("got"), F.col("event").alias("D")
    )
    ways = (
        F.broadcast(open_)
        .join(informed, [*_GROUP, "C"])
        .join(told, [*_GROUP, "d"])
        .where("t > d_knew AND d != p")
        .join(heard, [*_GROUP, "p", "D"])
        .where("got < s")
        .groupBy(*_KEY)
        .agg(F.min(F.struct("got", "D", "d", "d_knew", "t")).alias("way"))
    )
    return direct.join(ways, _KEY, "left")


def _past() -> Column:
    """Why C is in the past of E."""
    how = F.when(F.col("knew_kind") == "publish", F.lit("published")).otherwise(F.lit("delivered"))
    shown = F.format_string("%s %s %s at its step %d and published %s at step %d", "p", how, "C", "knew", "E", "s")
    way = F.format_string(
        "%s had %s at its step %d and published %s at step %d; %s delivered that at its step %d and published %s at step %d",
        *("way.d", "C", "way.d_knew", "way.D", "way.t", "p", "way.got", "E", "s"),
    )
    far = F.format_string(
        "%s published %s at its step %d with %s in its past, by a longer way or a snapshot", "p", "E", "s", "C"
    )
    nobody = F.lit("the publish of one of them is not in this trace")
    known = F.col("p").isNotNull() & F.col("o").isNotNull()
    return (
        F.when(~known, nobody).when(F.col("knew").isNotNull(), shown).when(F.col("way").isNotNull(), way).otherwise(far)
    )


def _text() -> Column:
    inverted = F.concat(
        F.format_string(
            "%s delivered %s at its step %d, and %s only at step %d; ", "member", "E", "e_here", "C", "lseq"
        ),
        F.lit("but "),
        _past(),
    )
    later = F.when(F.col("c_here") > F.col("lseq"), F.format_string("delivered it at step %d", "c_here"))
    earlier = F.when(F.col("c_here").isNotNull(), later).otherwise(F.lit("never delivered it"))
    gap = F.concat(
        F.format_string("%s delivered %s at its step %d without %s before it, and ", "member", "E", "lseq", "C"),
        F.coalesce(earlier, F.lit("had it in another life")),
        F.lit("; but "),
        _past(),
    )
    again = F.format_string("%s delivered %s at its step %d, and again at step %d", "member", "C", "c_here", "lseq")
    twice = F.when(F.col("c_here") < F.col("lseq"), again).otherwise(
        F.format_string("%s delivered %s at its step %d, and had it in the state it began with", "member", "C", "lseq")
    )
    unknown = F.format_string("%s delivered %s at its step %d, but nobody has published it", "member", "C", "lseq")
    verdict = F.col("verdict")
    return (
        F.when(verdict == "inverted", inverted)
        .when(verdict == "duplicate", twice)
        .when(verdict == "unknown", unknown)
        .otherwise(gap)
    )


def _steps() -> Column:
    """The steps that the sentence names, causes first."""

    def step(member: str, lseq: str, kind: str | Column, event: str) -> Column:
        what = F.lit(kind) if isinstance(kind, str) else kind
        there = F.col(lseq).isNotNull() & F.col(member).isNotNull() & F.col(event).isNotNull()
        of = F.struct(
            F.col(member).alias("member"), F.col(lseq).alias("lseq"), what.alias("kind"), F.col(event).alias("event")
        )
        return F.when(there, of)

    here = [step("member", "e_here", "deliver", "E"), step("member", "c_here", "deliver", "C")]
    own = F.when((F.col("knew") != F.col("a")) | (F.col("p") != F.col("o")), step("p", "knew", F.col("knew_kind"), "C"))
    all_ = F.array(
        step("o", "a", "publish", "C"),
        own,
        step("way.d", "way.t", "publish", "way.D"),
        step("p", "way.got", "deliver", "way.D"),
        step("p", "s", "publish", "E"),
        *here,
        F.when(
            F.col("lseq") != F.coalesce("c_here", F.lit(-1)),
            F.when(F.col("E").isNull(), step("member", "lseq", "deliver", "C")),
        ),
    )
    return F.filter(all_, lambda x: x.isNotNull())


def _row(fields: Mapping[str, Any]) -> Row:
    return Row(**{name: fields[name] for name in Row.__struct_fields__ if name in fields})
