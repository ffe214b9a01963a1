"""A ShiViz log of the neighbourhood of a violation: the steps of its events, and a few around each.

Made where a run is audited, from the rows that are there anyway. `whence.audit.spark.explain` does the same for any
violation afterwards.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from whence.audit.judge.batch.coding import Coded, picked
from whence.audit.judge.batch.compiled import Ints, Longs
from whence.audit.judge.batch.kernel import PUBLISH
from whence.audit.spark.place import join, make_directory, write_bytes
from whence.audit.trace import Row, shiviz

RADIUS: Final = 3
"""Steps of the same member before and after."""
PER_RUN: Final = 3
"""Pictures of a run, of the first violation of each rule."""


def draw(table: pa.Table, coded: Coded, wrong: pa.Table, run: str, cluster: str, stage: str) -> list[str]:
    """A log for the first violation of each rule, into the directory `shiviz`. Returns their names. `table`: the rows
    of the run, `coded`: the same for the kernel; `wrong`: its violations."""
    seen: dict[str, dict[str, Any]] = {}
    for violation in wrong.slice(0, 10_000).to_pylist():
        if violation["witness"] or violation["lseq"] is not None:  # else there is no step to show
            seen.setdefault(violation["rule"], violation)
    chosen = list(seen.values())[:PER_RUN]
    if not chosen:
        return []
    make_directory(join(stage, "shiviz"))
    steps = _Steps(coded, chosen)
    for violation in chosen:
        rows = coded.row[steps.near(violation)]
        near = _rows(picked(table, rows[rows < table.num_rows]), run, cluster)
        with TemporaryDirectory() as here:
            log = Path(here) / "log"
            shiviz.write_log(short_trace(near), log)
            write_bytes(join(stage, "shiviz", file_name(run, cluster, violation["rule"])), log.read_bytes())
    return [file_name(run, cluster, violation["rule"]) for violation in chosen]


def file_name(run: str, cluster: str, rule: str) -> str:
    """Readable, and another one for anything else: texts that look alike in a file's name differ in their hash."""
    text = re.sub(r"[^\w.-]+", "-", f"{run}-{cluster}-{rule}")[:120]
    mark = blake2b(json.dumps([run, cluster, rule]).encode(), digest_size=4).hexdigest()
    return f"{text}-{mark}.log"


class _Steps:
    """The steps of a run, looked through once for all of its pictures."""

    def __init__(self, coded: Coded, chosen: list[dict[str, Any]]) -> None:
        self.coded = coded
        wanted = np.zeros(len(coded.events) + 1, bool)  # the last is for -1: no event
        wanted[self._codes([event for violation in chosen for event in violation["witness"]])] = True
        self.told = np.flatnonzero(wanted[coded.event])
        """Steps with an event of a picture: they publish or deliver it."""

    def _codes(self, events: list[str]) -> Ints:
        found: Any = pc.index_in(pa.array(events, pa.string()), value_set=self.coded.events)
        codes: Ints = found.drop_null().to_numpy()
        return codes

    def near(self, violation: dict[str, Any]) -> Longs:
        """Its own step, where its events were published, where the member or their publishers delivered them; and the
        steps around each."""
        begin, lseq = self.coded.steps.begin, self.coded.lseq
        mine = self.told[np.isin(self.coded.event[self.told], self._codes(violation["witness"]))]
        member = np.searchsorted(begin, mine, side="right") - 1
        me: Any = pc.index(self.coded.members, pa.scalar(violation["member"])).as_py()
        close = {me, *member[self.coded.steps.kind[mine] == PUBLISH].tolist()}
        anchors = [(m, int(lseq[k])) for m, k in zip(member.tolist(), mine.tolist(), strict=True) if m in close]
        if violation["lseq"] is not None:
            anchors.append((me, violation["lseq"]))
        near = np.zeros(0, np.int64)
        for m, at in anchors:
            low, high = begin[m] + np.searchsorted(lseq[begin[m] : begin[m + 1]], [at - RADIUS, at + RADIUS + 1])
            near = np.append(near, np.arange(low, high))
        return np.unique(near)


def _rows(found: list[dict[str, Any]], run: str, cluster: str) -> list[Row]:
    names = ("member", "lseq", "t_ns", "kind", "event", "ticket", "reason", "peer", "order", "token")
    return [Row(run=run, cluster=cluster, **{name: row[name] for name in names}) for row in found]


def short_trace(rows: list[Row]) -> list[Row]:
    """A piece of a trace as a trace of its own, whose steps are counted anew: a record says which step it was."""
    out: list[Row] = []
    count: Counter[tuple[str, str, str]] = Counter()
    for row in sorted(rows, key=lambda row: (row.run, row.cluster, row.member, row.lseq)):
        whose = (row.run, row.cluster, row.member)
        said = f"step {row.lseq}" + (f": {row.reason}" if row.reason else "")
        out.append(msgspec.structs.replace(row, lseq=count[whose], reason=said))
        count[whose] += 1
    return out
