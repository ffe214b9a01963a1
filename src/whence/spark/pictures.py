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

from whence.spark.coding import codes
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
    place = Path(stage) / "shiviz"
    if chosen:
        place.mkdir(exist_ok=True)
    for violation in chosen:
        name = re.sub(r"[^\w.-]+", "-", f"{run}-{cluster}-{violation['rule']}")
        hidden = place / f".{uuid4().hex}"
        shiviz.write_log(_around(table, violation, run, cluster), hidden)
        hidden.rename(place / f"{name}.log")
    return len(chosen)


def _around(table: pa.Table, violation: dict[str, Any], run: str, cluster: str) -> list[Row]:
    """Its own step, where its events were published, and where the member or their publishers delivered them; and what
    is near. Steps are counted anew: a piece of a trace is a short trace."""
    event, events = codes(table["event"])
    member, members = codes(table["member"])
    kind, kinds = codes(table["kind"])
    lseq = table["lseq"].to_numpy()
    is_wanted = np.array([*(e in violation["witness"] for e in events.to_pylist()), False])
    publish, deliver = _place(kinds, "publish"), _place(kinds, "deliver")
    wanted = np.flatnonzero(is_wanted[event] & ((kind == publish) | (kind == deliver)))
    me = _place(members, violation["member"])
    close = {me, *member[wanted[kind[wanted] == publish]].tolist()}
    anchors = {(m, s) for m, s in zip(member[wanted].tolist(), lseq[wanted].tolist(), strict=True) if m in close}
    if violation["lseq"] is not None:
        anchors.add((me, violation["lseq"]))
    near = np.zeros(table.num_rows, bool)
    for m, s in anchors:
        near |= (member == m) & (np.abs(lseq - s) <= RADIUS)
    mask: Any = near
    rows = table.filter(pa.array(mask)).to_pylist()
    rows.sort(key=lambda row: (row["member"], row["lseq"]))
    out: list[Row] = []
    count: dict[str, int] = {}
    for row in rows:
        at = count[row["member"]] = count.get(row["member"], -1) + 1
        said = f"step {row['lseq']}" + (f": {row['reason']}" if row["reason"] else "")
        names = ("member", "t_ns", "kind", "event", "ticket", "peer", "order", "token")
        out.append(Row(run=run, cluster=cluster, lseq=at, reason=said, **{name: row[name] for name in names}))
    return out


def _place(values: pa.Array[Any], wanted: str) -> int:
    all_ = values.to_pylist()
    return all_.index(wanted) if wanted in all_ else -2
