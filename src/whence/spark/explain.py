"""Why a delivery was wrong: at most three events, at which members, at which of their steps, in which order.

Everything is found in the trace itself: that a cause comes before an effect is shown by who delivered the one and then
published the other, never by the protocol's timestamps. The rows are filtered by Spark before anything else is done
with them: what is joined are the steps of the events in question, one or two per member.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from whence.errors import UsageError
from whence.trace import COLUMNS, Row, shiviz

SCHEMA: Final = (
    "run string, cluster string, member string, lseq bigint, event string, verdict string, text string, "
    "steps array<struct<member:string,lseq:bigint,kind:string,event:string>>"
)
"""`text`: the explanation as a sentence. `steps`: the same for machines, causes before effects."""

_GROUP = ["run", "cluster"]
_COLUMNS = [column.name for column in COLUMNS]
_REST = [name for name in _COLUMNS if name not in ("member", "lseq")]
_KEY = ["run", "cluster", "member", "lseq"]


def explain(events: DataFrame, verdicts: DataFrame) -> DataFrame:
    """An explanation for every verdict that names a cause, and for duplicates and unknown events (see `SCHEMA`). Hand
    in the verdicts that are to be explained: all of a bad run are many."""
    pairs = _pairs(verdicts)
    touched = _touched(events, pairs)
    found = _via(events, _direct(pairs, touched), touched)
    return found.select(*_KEY, "event", "verdict", _text().alias("text"), _steps().alias("steps"))


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


# -- how. Cause and effect are events; whoever published the effect is its teller, and knew the cause before


def _pairs(verdicts: DataFrame) -> DataFrame:
    """Cause and effect of every verdict to be explained; of a duplicate or an unknown event there is only the one."""
    verdict = F.col("verdict")
    alone = verdict.isin("duplicate", "unknown")
    mine = verdicts.where(
        alone | (F.col("cause_event").isNotNull() & verdict.isin("inverted", "over a gap", "after a gap"))
    )
    inverted = verdict == "inverted"
    return mine.select(
        *_KEY,
        "event",
        "verdict",
        F.when(inverted | alone, F.col("event")).otherwise(F.col("cause_event")).alias("cause"),
        F.when(inverted, F.col("cause_event")).when(~alone, F.col("event")).alias("effect"),
    )


def _touched(events: DataFrame, pairs: DataFrame) -> DataFrame:
    """Where these events were published and delivered, and at which step; the first one, should there be several."""
    wanted = pairs.select(*_GROUP, F.explode(F.array("cause", "effect")).alias("event")).where("event IS NOT NULL")
    rows = events.where(F.col("kind").isin("publish", "deliver")).join(
        F.broadcast(wanted.distinct()), [*_GROUP, "event"], "left_semi"
    )
    return rows.groupBy(*_GROUP, "event", F.col("member").alias("at"), "kind").agg(F.min("lseq").alias("step"))


def _direct(pairs: DataFrame, touched: DataFrame) -> DataFrame:
    """Adds the publishes (`cause_by`, `cause_step`; `teller`, `told`), the deliveries here (`effect_here`,
    `cause_here`), and the teller's own first step with the cause, if it was before it published the effect (`knew`,
    `knew_kind`)."""
    first = touched.where("kind = 'publish'").groupBy(*_GROUP, "event").agg(F.min(F.struct("step", "at")).alias("x"))
    of_cause, of_effect = (
        first.select(*_GROUP, F.col("event").alias(of), F.col("x.at").alias(by), F.col("x.step").alias(step))
        for of, by, step in (("cause", "cause_by", "cause_step"), ("effect", "teller", "told"))
    )
    delivered = touched.where("kind = 'deliver'")
    cause_here, effect_here = (
        delivered.select(
            *_GROUP, F.col("at").alias("member"), F.col("event").alias(of), F.col("step").alias(f"{of}_here")
        )
        for of in ("cause", "effect")
    )
    knew = (
        touched.groupBy(*_GROUP, F.col("event").alias("cause"), F.col("at").alias("teller"))
        .agg(F.min(F.struct("step", "kind")).alias("x"))
        .select(*_GROUP, "cause", "teller", F.col("x.step").alias("knew"), F.col("x.kind").alias("knew_kind"))
    )
    found = pairs.join(of_cause, [*_GROUP, "cause"], "left").join(of_effect, [*_GROUP, "effect"], "left")
    found = found.join(cause_here, [*_GROUP, "member", "cause"], "left")
    found = found.join(effect_here, [*_GROUP, "member", "effect"], "left")
    found = found.join(knew, [*_GROUP, "cause", "teller"], "left")
    before = F.col("knew") < F.col("told")
    return found.withColumns({c: F.when(before, F.col(c)) for c in ("knew", "knew_kind")})


def _via(events: DataFrame, direct: DataFrame, touched: DataFrame) -> DataFrame:
    """Where the teller did not have the cause itself: adds `way`, an event `way.link` which the teller delivered
    (`way.got`) before it published the effect, and whose publisher `way.by` had the cause (`way.knew`) before it
    published the link (`way.step`). Of several the one that the teller delivered first."""
    open_ = direct.where("effect IS NOT NULL AND knew IS NULL AND teller IS NOT NULL")
    informed = (
        touched.groupBy(*_GROUP, F.col("event").alias("cause"), F.col("at").alias("by"))
        .agg(F.min(F.struct("step", "kind")).alias("x"))
        .select(*_GROUP, "cause", "by", F.col("x.step").alias("by_knew"), F.col("x.kind").alias("by_kind"))
    )
    told = events.where("kind = 'publish'").select(
        *_GROUP, F.col("member").alias("by"), F.col("lseq").alias("step"), F.col("event").alias("link")
    )
    heard = events.where("kind = 'deliver'").select(
        *_GROUP, F.col("member").alias("teller"), F.col("lseq").alias("got"), F.col("event").alias("link")
    )
    ways = (
        F.broadcast(open_.select(*_KEY, "cause", "teller", "told"))
        .join(informed, [*_GROUP, "cause"])
        .join(told, [*_GROUP, "by"])
        .where("step > by_knew AND by != teller")
        .join(heard, [*_GROUP, "teller", "link"])
        .where("got < told")
        .groupBy(*_KEY)
        .agg(F.min(F.struct("got", "link", "by", F.col("by_knew").alias("knew"), "by_kind", "step")).alias("way"))
    )
    return direct.join(ways, _KEY, "left")


def _past() -> Column:
    """Why the cause is in the past of the effect."""
    how = F.when(F.col("knew_kind") == "publish", F.lit("published")).otherwise(F.lit("delivered"))
    told = F.format_string("published %s at step %d", "effect", "told")
    shown = F.concat(F.format_string("%s %s %s at its step %d and ", "teller", how, "cause", "knew"), told)
    way = F.concat(
        F.format_string("%s had %s at its step %d and ", "way.by", "cause", "way.knew"),
        F.format_string("published %s at step %d; ", "way.link", "way.step"),
        F.format_string("%s delivered that at its step %d and ", "teller", "way.got"),
        told,
    )
    far = F.concat("teller", F.lit(" "), told, F.lit(" with it in its past, by a longer way or a snapshot"))
    return (
        F.when(F.col("teller").isNull() | F.col("cause_by").isNull(), F.lit("a publish is not in this trace"))
        .when(F.col("knew").isNotNull(), shown)
        .when(F.col("way").isNotNull(), way)
        .otherwise(far)
    )


def _text() -> Column:
    verdict, here, now = F.col("verdict"), F.col("cause_here"), F.col("lseq")
    inverted = F.concat(
        F.format_string("%s delivered %s at its step %d, ", "member", "effect", "effect_here"),
        F.format_string("and %s only at step %d; but ", "cause", "lseq"),
        _past(),
    )
    later = (
        F.when(here.isNull(), F.lit("never delivered it"))
        .when(here > now, F.format_string("delivered it only at step %d", "cause_here"))
        .otherwise(F.lit("had delivered it before it began anew"))
    )
    gap = F.concat(
        F.format_string("%s delivered %s at its step %d without %s before it, ", "member", "effect", "lseq", "cause"),
        F.lit("and "),
        later,
        F.lit("; but "),
        _past(),
    )
    again = F.when(here < now, F.format_string("at its step %d, and again at step %d", "cause_here", "lseq")).otherwise(
        F.format_string("at its step %d, and had it in the state that it began with", "lseq")
    )
    unknown = F.format_string("at its step %d, but nobody has published it", "lseq")
    alone = F.concat("member", F.lit(" delivered "), "cause", F.lit(" "))
    return (
        F.when(verdict == "inverted", inverted)
        .when(verdict == "duplicate", F.concat(alone, again))
        .when(verdict == "unknown", F.concat(alone, unknown))
        .otherwise(gap)
    )


def _steps() -> Column:
    """The steps that the sentence names, causes first."""

    def step(member: str, lseq: str, kind: str | Column, event: str) -> Column:
        what = F.lit(kind) if isinstance(kind, str) else kind
        there = F.col(lseq).isNotNull() & F.col(member).isNotNull() & F.col(event).isNotNull()
        named = (
            F.col(member).alias("member"),
            F.col(lseq).alias("lseq"),
            what.alias("kind"),
            F.col(event).alias("event"),
        )
        return F.when(there, F.struct(*named))

    published = (F.col("teller") == F.col("cause_by")) & (F.col("knew") == F.col("cause_step"))
    steps = F.array(
        step("cause_by", "cause_step", "publish", "cause"),
        F.when(~published, step("teller", "knew", F.col("knew_kind"), "cause")),
        F.when(F.col("way.by_kind") == "deliver", step("way.by", "way.knew", "deliver", "cause")),
        step("way.by", "way.step", "publish", "way.link"),
        step("teller", "way.got", "deliver", "way.link"),
        step("teller", "told", "publish", "effect"),
        step("member", "effect_here", "deliver", "effect"),
        step("member", "cause_here", "deliver", "cause"),
        F.when(F.col("effect").isNull(), step("member", "lseq", "deliver", "cause")),
    )
    return F.array_distinct(F.filter(steps, lambda x: x.isNotNull()))


def _row(fields: Mapping[str, Any]) -> Row:
    return Row(**{name: fields[name] for name in Row.__struct_fields__ if name in fields})
