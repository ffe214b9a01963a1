"""A ShiViz log of the neighbourhood of a violation: the steps of its events, and a few around each.

Made where a run is audited, from the rows that are there anyway. `whence.spark.explain` does the same for any violation
afterwards.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from whence.spark.coding import codes
from whence.spark.compiled import Ints, Longs
from whence.trace import Row, shiviz

RADIUS: Final = 3
"""Steps of the same member before and after."""
PER_RUN: Final = 3
"""Pictures of a run, of the first violation of each rule."""


def draw(table: pa.Table, wrong: pa.Table, run: str, cluster: str, stage: str) -> int:
    """A log for the first violation of each rule, into the directory `shiviz`. Returns how many. `table`: the rows of
    the run; `wrong`: its violations."""
    seen: dict[str, dict[str, Any]] = {}
    for violation in wrong.slice(0, 10_000).to_pylist():
        seen.setdefault(violation["rule"], violation)
    chosen = list(seen.values())[:PER_RUN]
    if not chosen:
        return 0
    place = Path(stage) / "shiviz"
    place.mkdir(exist_ok=True)
    steps = _Steps(table, chosen)
    for violation, rows in zip(chosen, steps.near([steps.anchors(violation) for violation in chosen]), strict=True):
        name = re.sub(r"[^\w.-]+", "-", f"{run}-{cluster}-{violation['rule']}")
        hidden = place / f".{uuid4().hex}"
        shiviz.write_log(_log(table.take(rows), run, cluster), hidden)
        hidden.rename(place / f"{name}.log")
    return len(chosen)


Anchors = set[tuple[int, int]]
"""Members and steps."""


class _Steps:
    """The rows of a run, looked through once for all of its pictures."""

    def __init__(self, table: pa.Table, chosen: list[dict[str, Any]]) -> None:
        self.event, self.events = codes(table["event"])
        self.member, members = codes(table["member"])
        self.members = [str(name) for name in members.to_pylist()]
        self.kind, kinds = codes(table["kind"])
        self.kinds = [str(name) for name in kinds.to_pylist()]
        self.lseq: Longs = table["lseq"].to_numpy()
        wanted = np.zeros(len(self.events) + 1, bool)  # the last is for -1: no event
        wanted[self._codes([event for violation in chosen for event in violation["witness"]])] = True
        self.told = np.flatnonzero(wanted[self.event])
        """Rows with an event of a picture."""

    def _codes(self, events: list[str]) -> Ints:
        found: Any = pc.index_in(pa.array(events, pa.string()), value_set=self.events)
        codes: Ints = found.drop_null().to_numpy()
        return codes

    def anchors(self, violation: dict[str, Any]) -> Anchors:
        """Its own step, where its events were published, and where the member or their publishers delivered them."""
        mine = self.told[np.isin(self.event[self.told], self._codes(violation["witness"]))]
        published, delivered = (mine[self.kind[mine] == _place(self.kinds, kind)] for kind in ("publish", "deliver"))
        me = _place(self.members, violation["member"])
        close = {me, *self.member[published].tolist()}
        rows = np.append(published, delivered)
        steps = zip(self.member[rows].tolist(), self.lseq[rows].tolist(), strict=True)
        own = {(me, violation["lseq"])} if violation["lseq"] is not None else set()
        return own | {(m, s) for m, s in steps if m in close}

    def near(self, pictures: list[Anchors]) -> list[Longs]:
        """The rows close to these steps, for each picture."""
        has = np.zeros(len(self.members) + 1, bool)
        has[[m for anchors in pictures for m, _ in anchors if m >= 0]] = True
        rows = np.flatnonzero(has[self.member])
        member, lseq = self.member[rows], self.lseq[rows]
        out = []
        for anchors in pictures:
            near = np.zeros(len(rows), bool)
            for m, s in anchors:
                near |= (member == m) & (np.abs(lseq - s) <= RADIUS)
            out.append(rows[near])
        return out


def _log(table: pa.Table, run: str, cluster: str) -> list[Row]:
    """Steps are counted anew: a piece of a trace is a short trace."""
    rows = table.to_pylist()
    rows.sort(key=lambda row: (row["member"], row["lseq"]))
    out: list[Row] = []
    count: dict[str, int] = {}
    for row in rows:
        at = count[row["member"]] = count.get(row["member"], -1) + 1
        said = f"step {row['lseq']}" + (f": {row['reason']}" if row["reason"] else "")
        names = ("member", "t_ns", "kind", "event", "ticket", "peer", "order", "token")
        out.append(Row(run=run, cluster=cluster, lseq=at, reason=said, **{name: row[name] for name in names}))
    return out


def _place(values: list[str], wanted: str) -> int:
    return values.index(wanted) if wanted in values else -2
