"""Pictures of violations: the steps around one, as a log for the ShiViz viewer.

They are drawn where a run is judged, from the rows that are there anyway. What is wrong is said by `violations.detail`,
in a sentence that names the events.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from hashlib import blake2b
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from whence.audit.judge.batch.coding import codes, picked
from whence.audit.judge.batch.compiled import Longs
from whence.audit.report.view import only
from whence.audit.trace import Row, shiviz

RADIUS: Final = 3
"""Steps of the same member before and after."""
PER_RUN: Final = 3
"""Pictures of a run, of the first violation of each rule."""


def draw(table: pa.Table, wrong: pa.Table, most: int = 1 << 30) -> dict[str, bytes]:
    """ShiViz logs of the first violation of each rule in a run, `most` in all, by name. `table`: the rows of the runs;
    `wrong`: their violations."""
    chosen: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for violation in wrong.slice(0, 10_000).to_pylist():
        if violation["witness"] or violation["lseq"] is not None:  # else there is no step to show
            run = violation["run"], violation["cluster"]
            chosen.setdefault(run, {}).setdefault(violation["rule"], violation)
    logs: dict[str, bytes] = {}
    for run, by_rule in chosen.items():
        rows = only(table, run) if len(logs) < most else table
        for rule, violation in list(by_rule.items())[: min(PER_RUN, most - len(logs))]:
            near = [_row(run, row) for row in picked(rows, _near(rows, violation))]
            logs[file_name(*run, rule)] = "".join(shiviz.to_log(_short_trace(near))).encode()
    return logs


def file_name(run: str, cluster: str, rule: str) -> str:
    """Readable, and another one for anything else: texts that look alike in a file's name differ in their hash."""
    text = re.sub(r"[^\w.-]+", "-", f"{run}-{cluster}-{rule}")[:120]
    mark = blake2b(json.dumps([run, cluster, rule]).encode(), digest_size=4).hexdigest()
    return f"{text}-{mark}.log"


def _near(rows: pa.Table, violation: dict[str, Any]) -> Longs:
    """Its own step, where its events were published, where the member or their publishers delivered them; and the
    steps around each."""
    (member, members), (event, events) = codes(rows["member"]), codes(rows["event"])
    lseq = rows["lseq"].to_numpy()
    shown: Any = pc.index_in(pa.array(violation["witness"], pa.string()), value_set=events)
    told = picked(rows.select(["member", "lseq", "kind"]), np.flatnonzero(np.isin(event, shown.drop_null().to_numpy())))
    told = [step for step in told if step["kind"] in ("publish", "deliver")]
    close = {violation["member"], *(step["member"] for step in told if step["kind"] == "publish")}
    anchors = [(step["member"], step["lseq"]) for step in told if step["member"] in close]
    if violation["lseq"] is not None:
        anchors.append((violation["member"], violation["lseq"]))
    near = np.zeros(rows.num_rows, bool)
    for name, at in anchors:
        near |= (member == pc.index(members, name).as_py()) & (abs(lseq - at) <= RADIUS)
    return np.flatnonzero(near)


def _row(run: tuple[str, str], fields: dict[str, Any]) -> Row:
    return Row(*run, **{name: fields[name] for name in Row.__struct_fields__[2:] if name in fields})


def _short_trace(rows: list[Row]) -> list[Row]:
    """A piece of a trace as a trace of its own, whose steps are counted anew: a record says which step it was."""
    out: list[Row] = []
    count: Counter[str] = Counter()
    for row in {(row.member, row.lseq): row for row in sorted(rows, key=lambda row: (row.member, row.lseq))}.values():
        said = f"step {row.lseq}" + (f": {row.reason}" if row.reason else "")
        out.append(msgspec.structs.replace(row, lseq=count[row.member], reason=said))
        count[row.member] += 1
    return out
