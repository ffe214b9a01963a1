"""Rows of small traces, and rows as the batch form of the judge takes them."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import msgspec
import pyarrow as pa

from whence.audit.judge.batch import audited, tables
from whence.audit.judge.batch.audited import Audited
from whence.audit.judge.batch.coding import READ, code
from whence.audit.trace import Row
from whence.audit.trace.schema import COLUMNS

HOSTILE = """
members = 6
round = "250ms"
duration = "40r"
settle = "30r"
operator = "12r"
snapshot_delay = "20ms"
[network]
latency = "normal"
mean = "5ms"
sd = "1ms"
loss = 0.15
dup = 0.02
reorder = 0.2
reorder_by = "400ms"
[clocks]
offset = "1h"
[cluster]
tickets = 3
coordinators = 3
order = { reliable = 2, causal = 2, fifo = 1, unordered = 1 }
recovery = "Rk"
abandon = "25r"
[cluster.workload]
rate = 3.0
[chaos]
start = "10r"
crash = "12r"
down = "4r"
disk = 0.5
leave = "25r"
away = "4r"
cut = "12r"
cut_for = "4r"
churn = "10r"
"""

TYPES = {"text": pa.string(), "int32": pa.int32(), "int64": pa.int64()}
KINDS = {column.name: TYPES[column.type] for column in COLUMNS}


def table_of(rows: Iterable[Row], columns: Iterable[str] = READ) -> pa.Table:
    rows = list(rows)
    return pa.table({c: pa.array([getattr(row, c) for row in rows], KINDS[c]) for c in columns})


def judge(rows: Iterable[Row], complete: bool = False) -> Audited:
    return audited.audited(code(table_of(rows), complete=complete))


def violations(rows: Iterable[Row], complete: bool = False) -> list[dict[str, Any]]:
    return tables.violations(judge(rows, complete)).to_pylist()


def verdicts(rows: Iterable[Row], member: str) -> list[dict[str, Any]]:
    """The verdicts on one member's deliveries."""
    return [row for row in tables.verdicts(judge(rows)).to_pylist() if row["member"] == member]


def step(member: str, lseq: int, kind: str, event: str | None = None, **more: Any) -> Row:
    return Row(run="r", cluster="c", member=member, lseq=lseq, t_ns=lseq, kind=kind, event=event, **more)


A, B, C = "0:1.0.1:1@a#1", "1:1.0.1:1@b#1", "0:1.0.1:2@a#1"


def triangle(*at_q: Row) -> list[Row]:
    """a publishes A; b, having delivered it, publishes B; q does as it is told."""
    return [
        step("a#1", 0, "join", order="causal", reason="genesis"),
        step("a#1", 1, "publish", A),
        step("a#1", 2, "deliver", A),
        step("b#1", 0, "join", order="causal", reason="genesis"),
        step("b#1", 1, "deliver", A),
        step("b#1", 2, "publish", B),
        step("b#1", 3, "deliver", B),
        *at_q,
    ]


def spoiled(rows: list[Row], rng: random.Random) -> list[Row]:
    """The same run with deliveries lost, doubled, delayed and invented. Never earlier: no delivery comes before its own
    publish."""
    steps: dict[str, list[Row]] = {}
    for row in rows:
        steps.setdefault(row.member, []).append(row)
    out: list[Row] = []
    for member in sorted(steps):
        new: list[Row] = []
        held: list[tuple[int, Row]] = []
        for row in sorted(steps[member], key=lambda r: r.lseq):
            held = [(n - 1, h) for n, h in held]
            new += [h for n, h in held if n <= 0]
            held = [(n, h) for n, h in held if n > 0]
            fate = rng.random() if row.kind == "deliver" else 1.0
            if fate < 0.03:
                continue
            if fate < 0.06:
                held.append((rng.randrange(1, 40), row))
                continue
            new.append(row)
            if fate < 0.08:
                new.append(row)
            elif fate < 0.085:
                new.append(msgspec.structs.replace(row, event="9:9.9.9:1@nobody#1"))
        out += [msgspec.structs.replace(row, lseq=at) for at, row in enumerate(new)]
    rng.shuffle(out)
    return out
