"""The part of a run that a page shows, taken where the run is judged: its rows and verdicts are at hand there.

A view has at most `MOST` steps, those nearest in time to the first thing that went wrong, with what was found in the
whole run beside them. Whatever the size of the trace, the page is made from one of these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from whence.audit.judge import Finding
from whence.audit.judge.promises import NAMES
from whence.audit.report.diagram import Suspect
from whence.audit.report.facts import Facts, Overview, RunLine, RunVerdicts, gather
from whence.audit.trace import Row

MOST: Final = 30_000
"""Steps of a view."""
FINDINGS: Final = 20
OTHERS: Final = 2_000
"""Steps on the pages of other runs than the worst."""
View = tuple[tuple[str, str], bytes, int, RunVerdicts]
"""The run and its cluster, the steps that can be shown (Arrow), the time around which they are, and what was found;
between tasks and driver as msgpack."""
_SHOWN: Final = ("member", "lseq", "t_ns", "kind", "event", "ticket", "reason", "peer", "order", "token")
_SUSPECT: Final = ("member", "lseq", "verdict", "violation")


def runs_in(tables: Mapping[str, pa.Table]) -> list[RunLine]:
    """The runs in these tables. A piece of a giant run has no members; they come at the end, without verdicts."""
    by, none = ("run", "cluster"), Counter[tuple[str, str]]()
    wrong = _grouped(tables["violations"], by)
    doubts = _grouped(tables["doubts"], by, add="deliveries") if "doubts" in tables else none
    here = none
    if "verdicts" in tables:
        here = (
            _grouped(tables["members"], by, "deliveries") if "members" in tables else _grouped(tables["verdicts"], by)
        )
    return [RunLine(wrong[run], doubts[run], here[run], *run) for run in {**here, **wrong, **doubts}]


def _grouped(table: pa.Table, by: tuple[str, str], add: str = "") -> Counter[tuple[str, str]]:
    """For each pair of texts in these two columns: how many rows it has, or the sum of the column `add`."""
    texts = {name: table[name].cast(pa.string()) for name in by}
    number = table[add] if add else np.ones(table.num_rows, np.int64)
    groups = pa.table({**texts, "n": number}).group_by(list(by), use_threads=False).aggregate([("n", "sum")])
    return Counter({(row[by[0]], row[by[1]]): row["n_sum"] for row in groups.to_pylist()})


def _only(table: pa.Table, run: tuple[str, str]) -> pa.Table:
    """The rows of this run."""
    if "run" not in table.column_names:
        return table
    mine: pa.Table = table.filter((pc.field("run") == run[0]) & (pc.field("cluster") == run[1]))
    return mine


def view(rows: pa.Table, tables: Mapping[str, pa.Table], run: tuple[str, str]) -> bytes:
    """A view of a run: of its rows (`judge.batch.coding.READ`), and of the tables made of them. Others may be among
    them."""
    rows = _only(rows, run)
    tables = {name: _only(table, run) for name, table in tables.items() if name != "quarantine"}
    found = _found(tables, rows.num_rows)
    suspects = tables["verdicts"].select(list(_SUSPECT)).filter(pc.field("verdict") != NAMES[0])
    centre = _centre(rows, found, suspects)
    steps = _nearest(rows.select(list(_SHOWN)), centre, MOST)
    steps = steps.unify_dictionaries().combine_chunks()
    steps = steps.set_column(0, "member", steps["member"].cast(pa.string()))
    suspects = suspects.set_column(0, "member", suspects["member"].cast(pa.string()))
    steps = steps.join(suspects, keys=["member", "lseq"], right_keys=["member", "lseq"], use_threads=False)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, steps.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(steps)
    return msgspec.msgpack.encode((run, sink.getvalue().to_pybytes(), centre, found))


def _nearest(steps: pa.Table, centre: int, most: int) -> pa.Table:
    """So many of these steps, those nearest to a time."""
    if steps.num_rows <= most:
        return steps
    away = np.abs(steps["t_ns"].to_numpy() - centre)
    return steps.take(pa.array(np.sort(np.argpartition(away, most)[:most])))  # type: ignore[arg-type]


def _found(tables: Mapping[str, pa.Table], steps: int) -> RunVerdicts:
    """What was found in the whole run, without the verdicts of steps."""
    by_order: dict[str, dict[str, int]] = {}
    for (order, verdict), n in _grouped(tables["verdicts"], ("order", "verdict")).items():
        by_order.setdefault(order, {})[verdict] = n
    wrong, partial = tables["violations"], "members" not in tables
    return RunVerdicts(
        by_order=by_order,
        violations=wrong.num_rows,
        doubts=tables["doubts"].num_rows if "doubts" in tables else 0,
        partial=partial,
        steps=steps,
        lost=0 if partial else pc.sum(tables["members"]["lost"]).as_py() or 0,
        findings=tuple(
            Finding(
                rule=v["rule"],
                member=v["member"] or "",
                step=v["lseq"],
                event=v["event"],
                witnesses=tuple(v["witness"] or ()),
                sentence=v["detail"],
            )
            for v in wrong.slice(0, FINDINGS).to_pylist()
        ),
    )


def _centre(rows: pa.Table, found: RunVerdicts, suspects: pa.Table) -> int:
    """When the first finding was; or the first delivery that is not in order; or the first step."""
    at = [(finding.member, finding.step) for finding in found.findings[:1]]
    if not at or at[0][1] is None:
        first = suspects.take(pc.sort_indices(suspects["lseq"]).slice(0, 1)).to_pylist()
        at = [(row["member"], row["lseq"]) for row in first]
    for member, lseq in at:
        mine = rows.filter(pc.field("lseq") == lseq).filter(pc.field("member") == member)
        if mine.num_rows:
            return int(mine["t_ns"][0].as_py() or 0)
    return int(pc.min(rows["t_ns"]).as_py() or 0)


def facts(data: bytes, overview: Overview, command: str, most: int = MOST) -> Facts:
    """The facts of a view, for the page. `most`: steps."""
    (run, cluster), steps, centre, found = msgspec.msgpack.decode(data, type=View)
    rows, suspect = list[Row](), {}
    for step in _nearest(pa.ipc.open_stream(steps).read_all(), centre, most).to_pylist():
        verdict, wrong = step.pop("verdict"), step.pop("violation")
        rows.append(Row(run, cluster, **step))
        if verdict is not None:
            suspect[step["member"], step["lseq"]] = Suspect(verdict, wrong)
    found = msgspec.structs.replace(found, suspect=suspect)
    said = f"audited: run {run}, cluster {cluster}"
    said += f" (one of {overview.runs:,})" if overview.runs > 1 else ""
    said += "; some of its members" if found.partial else ""
    said += f"; {len(rows):,} of its {found.steps:,} steps" if found.steps > len(rows) else ""
    return gather(rows, found, title="whence audit", about=said, command=command, overview=overview)
