"""Pictures of violations: the steps around one, as a log for the ShiViz viewer.

They are drawn where a run is judged, from the rows that are there anyway. What is wrong is said by `violations.detail`,
in a sentence that names the events.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from whence.audit.judge.batch.coding import Coded, Run, picked
from whence.audit.judge.batch.compiled import Ints, Longs
from whence.audit.judge.batch.kernel import PUBLISH
from whence.audit.trace import Row, shiviz

RADIUS: Final = 3
"""Steps of the same member before and after."""
PER_RUN: Final = 3
"""Pictures of a run, of the first violation of each rule."""


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
            logs[file_name(run, cluster, rule)] = "".join(shiviz.to_log(_short_trace(near))).encode()
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
