"""Many rows of a growing trace at a time: what `follow` does with each row, on arrays where nothing is to be said.

Most rows of most traces are deliveries in order by a member that has skipped nothing. A compiled loop goes through
those; whatever else comes (a publish, a join, a delivery that waits or is not in order) is a step of the `Follower`,
which holds all of the state. So there is one judge, and a test compares both ways on hostile traces.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from whence.audit.judge.batch import kernel
from whence.audit.judge.batch.coding import KINDS, codes
from whence.audit.judge.batch.compiled import Bytes, Ints, Longs, Small, compiled
from whence.audit.judge.batch.schemas import SCHEMAS
from whence.audit.judge.batch.tables import coded_texts
from whence.audit.judge.causality import Unit
from whence.audit.judge.findings import Finding
from whence.audit.judge.follow import KINDS as TAKEN
from whence.audit.judge.follow import Follower, Judged, Queue, Step
from whence.audit.judge.promises import NAMES, Verdict

FEW: Final = 5_000
"""Rows below which the loop does not pay: loading machine code takes tenths of a second."""

_TEXTS: Final = ("event", "origin", "reason", "peer", "order", "token")


class _Units(NamedTuple):
    """The events that the rows name, by their codes."""

    origin: Ints
    """-1: not published yet."""
    seq: Longs
    at: Longs
    """Where the news of each event begin."""
    size: Ints
    entry: Ints
    value: Ints


def fed(
    follower: Follower, table: pa.Table, run: str, cluster: str, few: int = FEW, exceptions: bool = False
) -> tuple[pa.Table, list[Finding]]:
    """Rows of one run and cluster, in any order -> the table `verdicts` on what does not have to wait, and what was
    found. `table`: the columns of a trace; `origin` may be missing. `exceptions`: no verdicts that are in order."""
    bulk = None if table.num_rows < few else _Bulk(follower, table)
    judged = follower.feed(_steps(table)) if bulk is None else bulk.run()
    found = follower.findings()
    if exceptions:
        wrong = {(finding.member, finding.step) for finding in found}
        judged = [one for one in judged if one.verdict is not Verdict.IN_ORDER or (one.member, one.step) in wrong]
    return verdict_table(run, cluster, judged, found, None if exceptions else bulk), found


def verdict_table(
    run: str, cluster: str, judged: list[Judged], found: list[Finding], bulk: _Bulk | None = None
) -> pa.Table:
    """Rows of `verdicts`, text as text."""
    wrong = {(finding.member, finding.step) for finding in found if finding.doubt is None}
    rows: list[tuple[Any, ...]] = []
    for one in judged:
        cause = (None, None, None) if one.cause is None else (one.cause.origin, one.cause.seq, one.cause.id)
        at = (one.member, one.step)
        rows.append(
            (run, cluster, *at, one.event, one.origin, one.seq, one.verdict.text, one.order, *cause, at in wrong)
        )
    schema = SCHEMAS["verdicts"]
    columns = zip(*rows, strict=True) if rows else ([] for _ in schema)
    table = pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)
    return table if bulk is None else pa.concat_tables([table, bulk.in_order(run, cluster)])


def _steps(table: pa.Table) -> Iterator[tuple[str, int, Step | None]]:
    """As the follower wants them."""
    texts = [_texts(table, name) for name in _TEXTS]
    named = [table[name].to_pylist() for name in ("member", "lseq", "kind")]
    for member, lseq, kind, *rest in zip(*named, *texts, *_numbers(table), strict=True):
        yield member, lseq, Step(kind, *rest) if kind in TAKEN else None


def _texts(table: pa.Table, name: str) -> list[Any]:
    return table[name].to_pylist() if name in table.column_names else [None] * table.num_rows


def _numbers(table: pa.Table) -> list[list[Any]]:
    return [table["ticket"].to_pylist(), table["t_ns"].to_pylist()]


@compiled
def _through(
    first: int, end: int, number: int, lseq: Longs, kind: Small, event: Ints, units: _Units, X: Ints, judged: Bytes
) -> int:
    """From row `first` on, the rows of one member with the steps `number`, ... that are deliveries in order, or nothing
    to the judge: how many. `X`: what the member has delivered; it has skipped nothing."""
    for r in range(first, end):
        if lseq[r] != number:
            return r - first
        number += 1
        if kind[r] == kernel.OTHER:
            continue
        e = event[r]
        if kind[r] != kernel.DELIVER or e < 0:
            return r - first
        o = units.origin[e]
        if o < 0 or X[o] != units.seq[e] - 1:
            return r - first
        for k in range(units.at[e], units.at[e] + units.size[e]):
            if X[units.entry[k]] < units.value[k]:
                return r - first
        X[o] = units.seq[e]
        judged[r] = 1
    return end - first


class _Bulk:
    """The rows of one call, by member and step, on their way through the follower."""

    def __init__(self, follower: Follower, table: pa.Table) -> None:
        self.follower = follower
        self.table = table
        member, names = codes(table["member"])
        kind, kinds = codes(table["kind"])
        event, self.events = codes(table["event"])
        named = table["origin"] if "origin" in table.column_names else pa.nulls(table.num_rows, pa.string())
        self.origin, origins = codes(named)
        self.origins = [str(name) for name in origins.to_pylist()]
        lseq = table["lseq"].to_numpy().astype(np.int64, copy=False)
        self.members = [str(name) for name in names.to_pylist()]
        self.row = np.lexsort((lseq, member))
        self.member, self.lseq, self.event = member[self.row], lseq[self.row], event[self.row]
        kind_of = np.array([KINDS.get(str(k), kernel.OTHER) for k in kinds.to_pylist()], np.int8)
        self.kind = kind_of[kind[self.row]]
        self.at = np.searchsorted(self.member, np.arange(len(self.members))).tolist()
        self.end = [*self.at[1:], len(self.row)]
        self.judged = np.zeros(len(self.row), np.uint8)
        self.order = np.zeros(len(self.row), np.int32)
        self.orders: dict[str, int] = {}
        self.used, self.heard = 0, len(follower.published)
        self.todo: list[int] = []
        self.waiting: dict[int, list[int]] = {}
        """Event -> members whose next row is a delivery of it, before its publish."""
        self.units = self._known()
        self.special = self._special()

    def _known(self) -> _Units:
        """The events of these rows that were published before."""
        n = len(self.events)
        origin, seq = np.full(n, -1, np.int32), np.zeros(n, np.int64)
        at, size = np.zeros(n, np.int64), np.zeros(n, np.int32)
        room = np.empty(4 * n + 64, np.int32), np.empty(4 * n + 64, np.int32)
        self.units = _Units(origin, seq, at, size, *room)
        self.names = [str(name) for name in self.events.to_pylist()]
        self.code = {name: k for k, name in enumerate(self.names)}
        for k, unit in enumerate(map(self.follower.causality.units.get, self.names)):
            if unit is not None:
                self._learn(k, unit)
        return self.units

    def _learn(self, code: int, unit: Unit) -> None:
        units, n = self.units, len(unit.news)
        while self.used + n > len(units.entry):
            units = self.units = units._replace(entry=kernel.grown(units.entry), value=kernel.grown(units.value))
        units.origin[code], units.seq[code] = unit.origin, unit.seq
        units.at[code], units.size[code] = self.used, n
        for k, (entry, value) in enumerate(unit.news, self.used):
            units.entry[k], units.value[k] = entry, value
        self.used += n

    def _special(self) -> dict[int, Step]:
        """The steps that are no deliveries, by row."""
        rows = np.flatnonzero((self.kind != kernel.DELIVER) & (self.kind != kernel.OTHER))
        return dict(zip(rows.tolist(), self._made(rows), strict=True))

    def _made(self, rows: Longs) -> list[Step]:
        some: Any = self.row[rows]
        part = self.table.take(pa.array(some))
        texts = [_texts(part, name) for name in _TEXTS]
        return [Step(*values) for values in zip(part["kind"].to_pylist(), *texts, *_numbers(part), strict=True)]

    # -- through the follower

    def run(self) -> list[Judged]:
        """Verdicts on what is more than a delivery in order and does not have to wait."""
        follower = self.follower
        place = {name: m for m, name in enumerate(self.members)}
        acting = set(self.member[list(self.special)].tolist()) if self.special else set()
        self.todo = [m for m in range(len(self.members)) if self.at[m] < self.end[m]]
        self.todo.sort(key=lambda m: m in acting)  # taken from the end: those first whom others may wait for
        for m in self.todo:
            follower.queue(self.members[m])
        while self.todo or follower.ready:
            if follower.ready:
                name = follower.ready.pop()
                if name not in place:
                    self._slowly(follower.queues[name])
                    continue
                m = place[name]
            else:
                m = self.todo.pop()
            self._member(m, follower.queues[self.members[m]])
        for m, name in enumerate(self.members):
            self._keep(m, follower.queue(name))
        for m in (m for some in self.waiting.values() for m in some):  # for rows that come later
            follower.go_on(follower.queues[self.members[m]])
        return follower.taken()

    def _member(self, m: int, queue: Queue) -> None:
        """All steps of the member that do not have to wait."""
        at, end = self.at[m], self.end[m]
        while queue.blocked is None:
            if queue.next in queue.ahead:
                self._slowly(queue)
                continue
            number = int(self.lseq[at]) if at < end else -1
            if number > queue.next or at == end:
                break
            if number < queue.next:
                self.follower.repeated += 1
                at += 1
                continue
            event = int(self.event[at])
            if self.kind[at] == kernel.DELIVER and event >= 0 and self.units.origin[event] < 0:
                self.waiting.setdefault(event, []).append(m)
                break
            n = self._go(queue, at, end)
            if not n:
                queue.ahead[number] = self._step(at)
                self._slowly(queue)
            at += n or 1
        self.at[m] = at

    def _slowly(self, queue: Queue) -> None:
        """Steps that wait at the follower, by the follower."""
        self.follower.go_on(queue)
        for published in self.follower.published[self.heard :]:
            code = self.code.get(published.event)
            if code is not None:
                self._learn(code, self.follower.causality.units[published.event])
                self.todo += self.waiting.pop(code, ())
        self.heard = len(self.follower.published)

    def _go(self, queue: Queue, at: int, end: int) -> int:
        """Through the deliveries that are in order: how many rows."""
        life = self.follower.causality.lives.get(queue.name)
        if life is None or life.holes or life.sure is not None or life.dropped:
            return 0
        if self.kind[at] not in (kernel.DELIVER, kernel.OTHER):
            return 0
        X = np.array(life.X, np.int32)
        if queue.ahead:  # up to the first step that is here already
            end = at + int(np.searchsorted(self.lseq[at:end], min(queue.ahead)))
        n = _through(at, end, queue.next, self.lseq, self.kind, self.event, self.units, X, self.judged)
        if n:
            life.X[:] = X.tolist()
            life.delivered += int(np.count_nonzero(self.judged[at : at + n]))
            self.order[at : at + n] = self.orders.setdefault(life.order, len(self.orders))
            queue.next += n
        return n

    def _step(self, at: int) -> Step | None:
        if self.kind[at] == kernel.OTHER:
            return None
        if self.kind[at] == kernel.DELIVER:
            e, o = int(self.event[at]), int(self.origin[self.row[at]])
            return Step("deliver", None if e < 0 else self.names[e], None if o < 0 else self.origins[o])
        return self.special[at]

    def _keep(self, m: int, queue: Queue) -> None:
        """What has to wait goes to the follower."""
        for at in range(self.at[m], self.end[m]):
            number = int(self.lseq[at])
            if number < queue.next or number in queue.ahead:
                self.follower.repeated += 1
            else:
                queue.ahead[number] = self._step(at)

    # -- what was in order

    def in_order(self, run: str, cluster: str) -> pa.Table:
        """Rows of `verdicts` for the deliveries that the loop went through."""
        rows = np.flatnonzero(self.judged)
        n, event = len(rows), self.event[rows]
        origins = pa.array([origin.name for origin in self.follower.causality.origins], pa.string())
        zeros = np.zeros(n, np.int32)
        texts: dict[str, Any] = {
            "run": coded_texts(zeros, pa.array([run])),
            "cluster": coded_texts(zeros, pa.array([cluster])),
            "member": coded_texts(self.member[rows], pa.array(self.members, pa.string())),
            "event": coded_texts(event, self.events),
            "origin": coded_texts(self.units.origin[event], origins),
            "verdict": coded_texts(zeros, pa.array(NAMES[:1])),
            "order": coded_texts(self.order[rows], pa.array(list(self.orders), pa.string())),
        }
        numbers: dict[str, Any] = {
            "lseq": self.lseq[rows],
            "seq": self.units.seq[event],
            "violation": np.zeros(n, bool),
        }
        columns: dict[str, Any] = {name: column.cast(pa.string()) for name, column in texts.items()}
        columns |= {name: pa.array(values) for name, values in numbers.items()}
        schema = SCHEMAS["verdicts"]
        made = [columns[f.name] if f.name in columns else pa.nulls(n, f.type) for f in schema]
        return pa.Table.from_arrays(made, schema=schema)
