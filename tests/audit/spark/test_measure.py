"""The table `metrics` of an audit, over rows whose figures can be counted by hand."""

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from whence.audit import audit_files
from whence.audit.trace import Row, open_trace

SECOND = 10**9


def awkward() -> list[Row]:
    """Drops, gaps, restarts and a snapshot; an id used twice, an event that nobody published."""
    rows: list[Row] = []
    steps: Counter[str] = Counter()

    def add(member: str, t: float, kind: str, event: str | None = None, **more: object) -> None:
        origin = event.partition("@")[2] if event else None
        rows.append(
            Row("r", "c", member, steps[member], int(t * SECOND), kind, event=event, origin=origin, **more)  # type: ignore[arg-type]
        )
        steps[member] += 1

    for m in ("a#1", "b#1", "c#1", "d#1"):
        add(m, 0, "join", reason="genesis", order="causal")
    ids = [f"0:0.0.1:{s}@a#1" for s in range(1, 9)]
    for i, e in enumerate(ids):
        add("a#1", 1 + i, "publish", e, bytes=10 * (i + 1), control=27, clock=f"0.0.1:{i + 1} - -")
        add("a#1", 1 + i, "deliver", e)
        add("a#1", 1 + i, "send", peer="b#1", bytes=100)
    for e in ids[:3]:
        add("b#1", 4.5, "receive", e, peer="a#1", held=1)
        add("b#1", 4.5, "deliver", e)
    add("b#1", 4.6, "deliver", ids[0])  # twice
    add("b#1", 4.7, "deliver", "9:9.9.9:9@nobody#1")
    add("b#1", 5, "recover", ticket=0, reason="ask 0.0.1:4-6", peer="a#1 c#1")
    add("b#1", 5.5, "receive", ids[5], reason="recovered", peer="c#1")
    add("b#1", 6, "recover", ticket=0, reason="give up 0.0.1:4-5: nobody has it")
    add("b#1", 6, "recover", ticket=0, reason="give up 0.0.1:7: nobody has it")
    add("b#1", 6, "deliver", ids[5], reason="gap")
    add("b#1", 6.1, "drop", ids[3], reason="late")
    add("b#1", 6.2, "receive", ids[6], peer="a#1", held=2)  # held for ever
    add("b#1", 6.3, "drop", ids[7], reason="overflow")
    add("c#1", 2.5, "deliver", ids[0])
    add("c#1", 2.6, "crash")
    add("c#2", 4, "join", reason="checkpoint", peer="c#1", order="causal")
    add("c#2", 4.2, "deliver", ids[1])
    add("d#1", 2.5, "leave")
    add("d#2", 5.5, "join", reason="snapshot", token="b#1/1", order="causal")
    add("d#2", 60, "deliver", ids[6])
    add("a#1", 61, "publish", ids[0], bytes=1)  # the id was used before
    return rows


COUNTED: dict[str | None, str] = {
    # d#2 had the seventh event after 53 s; an event's latency counts from when its id was first published
    None: """
published 9, received 5, delivered 17, publishes_per_s 9/61, deliveries_per_s 17/61
dropped_late 1, dropped_overflow 1, dropped_invalid 0, dropped_two_owners 0
message_bytes_mean 361/9, message_bytes_max 80, control_bytes_mean 27, control_bytes_max 27
control_entries_mean 1, control_chars_mean 11, buffer_fill_mean 5/4, buffer_fill_max 2
recovery_attempts 1, recovery_asked 3, recovery_recovered 1, recovery_given_up 3, recovery_success 1/4
latency_p50_ms 2200, latency_p90_ms 53000, latency_p99_ms 53000, latency_max_ms 53000""",
    "b#1": """
published 0, received 5, delivered 6, publishes_per_s 0, deliveries_per_s 60/63
dropped_late 1, dropped_overflow 1, dropped_invalid 0, dropped_two_owners 0, buffer_fill_mean 5/4, buffer_fill_max 2
recovery_attempts 1, recovery_asked 3, recovery_recovered 1, recovery_given_up 3, recovery_success 1/4
latency_p50_ms 2500, latency_p90_ms 3600, latency_p99_ms 3600, latency_max_ms 3600""",
}
"""Of all members (None), and of one."""


def test_the_table_of_an_audit(spark: SparkSession, tmp_path: Path) -> None:
    with open_trace(tmp_path / "trace" / "rows.jsonl") as trace:
        trace.append_many(awkward())
    audit_files([tmp_path / "trace"], tmp_path / "out", metrics=True, spark=spark)
    table = pq.read_table(tmp_path / "out" / "metrics").to_pylist()
    assert {row["member"] for row in table} == {None, "a#1", "b#1", "c#1", "c#2", "d#1", "d#2"}
    for member, text in COUNTED.items():
        counted = {name: float(Fraction(value)) for name, value in re.findall(r"(\w+) ([\d/]+)", text)}
        found = [(row["name"], row["value"]) for row in table if row["member"] == member]
        assert len(found) == len(dict(found)), "a value is there twice"
        assert dict(found) == pytest.approx(counted, rel=1e-9)
