"""A closer look at one violation. What is wrong is said by `violations.detail`, in a sentence that names the events;
here is how the one came to be in the past of the other (`chain`), and the steps around it, to be looked at with ShiViz
(`draw` where a run is audited, from the rows that are there anyway; `neighbourhood` and `export_shiviz` afterwards).

Everything is found in the trace itself: that a cause comes before an effect is shown by who delivered the one and then
published the other, never by the protocol's timestamps.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from whence.audit.judge.batch.coding import Coded, Run, picked
from whence.audit.judge.batch.compiled import Ints, Longs
from whence.audit.judge.batch.kernel import PUBLISH
from whence.audit.trace import COLUMNS, Row, shiviz
from whence.errors import UsageError

if TYPE_CHECKING:  # pyspark is imported where it is used: an audit without Spark does not load it
    from pyspark.sql import DataFrame

RADIUS: Final = 3
"""Steps of the same member before and after."""
PER_RUN: Final = 3
"""Pictures of a run, of the first violation of each rule."""
_COLUMNS: Final = [column.name for column in COLUMNS]


# -- where a run is judged


def draw(table: pa.Table, coded: Coded, wrong: pa.Table, most: int = 1 << 30) -> dict[str, bytes]:
    """ShiViz logs of the first violation of each rule in a run, `most` in all, by name. `table`: the rows of the runs,
    `coded`: the same for the kernel; `wrong`: their violations."""
    seen: dict[Run, dict[str, dict[str, Any]]] = {}
    for violation in wrong.slice(0, 10_000).to_pylist():
        if violation["witness"] or violation["lseq"] is not None:  # else there is no step to show
            whose = violation["run"], violation["cluster"]
            seen.setdefault(whose, {}).setdefault(violation["rule"], violation)
    logs: dict[str, bytes] = {}
    for (run, cluster), by_rule in seen.items():
        steps = _Steps(coded, coded.runs.index((run, cluster)), list(by_rule.values())[:PER_RUN])
        for rule, violation in list(by_rule.items())[: min(PER_RUN, most - len(logs))]:
            rows = coded.row[steps.near(violation)]
            near = [_row({**row, "run": run, "cluster": cluster}) for row in picked(table, rows[rows < table.num_rows])]
            with TemporaryDirectory() as here:
                log = Path(here) / "log"
                shiviz.write_log(_short_trace(near), log)
                logs[file_name(run, cluster, rule)] = log.read_bytes()
    return logs


def file_name(run: str, cluster: str, rule: str) -> str:
    """Readable, and another one for anything else: texts that look alike in a file's name differ in their hash."""
    text = re.sub(r"[^\w.-]+", "-", f"{run}-{cluster}-{rule}")[:120]
    mark = blake2b(json.dumps([run, cluster, rule]).encode(), digest_size=4).hexdigest()
    return f"{text}-{mark}.log"


class _Steps:
    """The steps of a run, looked through once for all of its pictures."""

    def __init__(self, coded: Coded, run: int, chosen: list[dict[str, Any]]) -> None:
        self.coded, self.run = coded, run
        wanted = np.zeros(len(coded.events) + 1, bool)  # the last is for -1: no event
        wanted[self._codes([event for violation in chosen for event in violation["witness"]])] = True
        self.told = np.flatnonzero(wanted[coded.event])
        """Steps with an event of a picture: they publish or deliver it."""

    def _codes(self, events: list[str]) -> Ints:
        first, end = self.coded.first_id[self.run : self.run + 2].tolist()
        mine = self.coded.events.slice(first, end - first)
        found: Any = pc.index_in(pa.array(events, pa.string()), value_set=mine)
        codes: Ints = found.drop_null().to_numpy() + first
        return codes

    def near(self, violation: dict[str, Any]) -> Longs:
        """Its own step, where its events were published, where the member or their publishers delivered them; and the
        steps around each."""
        begin, lseq = self.coded.steps.begin, self.coded.lseq
        mine = self.told[np.isin(self.coded.event[self.told], self._codes(violation["witness"]))]
        member = np.searchsorted(begin, mine, side="right") - 1
        me = self.coded.member(self.run, violation["member"])
        close = {me, *member[self.coded.steps.kind[mine] == PUBLISH].tolist()}
        anchors = [(m, int(lseq[k])) for m, k in zip(member.tolist(), mine.tolist(), strict=True) if m in close]
        if violation["lseq"] is not None:
            anchors.append((me, violation["lseq"]))
        near = np.zeros(0, np.int64)
        for m, at in anchors:
            low, high = begin[m] + np.searchsorted(lseq[begin[m] : begin[m + 1]], [at - RADIUS, at + RADIUS + 1])
            near = np.append(near, np.arange(low, high))
        return np.unique(near)


def _row(fields: Mapping[str, Any]) -> Row:
    return Row(**{name: fields[name] for name in Row.__struct_fields__ if name in fields})


def _short_trace(rows: list[Row]) -> list[Row]:
    """A piece of a trace as a trace of its own, whose steps are counted anew: a record says which step it was."""
    out: list[Row] = []
    count: Counter[tuple[str, str, str]] = Counter()
    for row in sorted(rows, key=lambda row: (row.run, row.cluster, row.member, row.lseq)):
        whose = (row.run, row.cluster, row.member)
        said = f"step {row.lseq}" + (f": {row.reason}" if row.reason else "")
        out.append(msgspec.structs.replace(row, lseq=count[whose], reason=said))
        count[whose] += 1
    return out


# -- afterwards, with Spark: rows are filtered before anything else is done


def chain(events: DataFrame, violation: Mapping[str, Any]) -> list[Row]:
    """The shortest true chain from the cause to the effect of an inversion or a gap (a row of `verdicts`): publish,
    deliver, publish, ..., publish; where a member had it from a snapshot, that and its join. Empty if the trace has
    none. Runs a query per link of the chain, and brings at most one row per member of each into memory."""
    from pyspark.sql import functions as F

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
    from pyspark.sql import functions as F

    who = F.broadcast(here.sparkSession.createDataFrame(list(knowing.items()), "member string, since long"))
    row = F.struct(*_COLUMNS)
    what = F.coalesce("event", "token").alias("what")
    gave = here.where(F.col("kind").isin("publish", "snapshot")).join(who, "member").where("lseq > since")
    got = here.where(F.col("kind").isin("deliver", "join")).select(what, "member", row.alias("got"))
    both = got.join(gave.select(what, row.alias("gave")), "what")
    first = both.groupBy("member").agg(F.min_by(F.struct("got", "gave"), "got.lseq").alias("x"))
    pairs = first.select("x.got", "x.gave").collect()
    return [(_row(p.gave.asDict()), _row(p.got.asDict())) for p in pairs]


def neighbourhood(events: DataFrame, violation: Mapping[str, Any], radius: int = RADIUS) -> DataFrame:
    """The rows around a violation: its own step, the steps at which its events (`event`, `cause_event` of a verdict,
    `witness` of a violation) were published, and those at which the member itself or their publishers delivered them;
    each with `radius` steps of the same member before and after. `violation`: a row of `verdicts` or `violations` as a
    mapping."""
    from pyspark.sql import functions as F

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
    found = _short_trace([_row(r.asDict()) for r in rows.collect()])
    shiviz.write_log(found, path)
    return len(found)
