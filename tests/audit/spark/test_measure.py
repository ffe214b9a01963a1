"""Metrics against the same quantities computed in plain Python over the same rows."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from whence.audit import audit_files
from whence.audit.trace import Row, open_trace
from whence.lab.sim.run import run
from whence.lab.sim.scenario import load

SCENARIOS = Path(__file__).parents[3] / "src" / "whence" / "lab" / "scenarios"
SECOND = 10**9
Scope = tuple[str, str, str | None]


def hostile(seed: int) -> list[Row]:
    rows: list[Row] = []
    run(load(SCENARIOS / "hostile.toml"), seed, sink=rows.append)
    return rows


def nearest_rank(values: list[float], q: float) -> float:
    ordered = sorted(values)
    return ordered[max(0, -int(-q * len(ordered) // 1) - 1)]


class Plain:
    """The independent account."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        self.values: dict[tuple[Scope, str], float] = {}
        self.born: dict[tuple[str, str, str | None], int] = {}
        for r in rows:
            if r.kind == "publish":
                key = (r.run, r.cluster, r.event)
                self.born[key] = min(r.t_ns, self.born.get(key, r.t_ns))

    def scopes(self, r: Row, member: str) -> set[Scope]:
        return {(r.run, r.cluster, None), (r.run, r.cluster, member)}

    def count(self) -> None:
        groups: dict[Scope, list[Row]] = defaultdict(list)
        for r in self.rows:
            for scope in self.scopes(r, r.member):
                groups[scope].append(r)
        for scope, mine in groups.items():
            n = Counter(r.kind for r in mine)
            put = {"published": n["publish"], "received": n["receive"], "delivered": n["deliver"]}
            seconds = (max(r.t_ns for r in mine) - min(r.t_ns for r in mine)) / 1e9
            if seconds:
                put["publishes_per_s"] = n["publish"] / seconds
                put["deliveries_per_s"] = n["deliver"] / seconds
            drops = Counter(r.reason for r in mine if r.kind == "drop")
            put |= {f"dropped_{x.replace('-', '_')}": drops[x] for x in ("late", "overflow", "invalid", "two-owners")}
            sizes = [r.bytes for r in mine if r.kind == "publish" and r.bytes is not None]
            clocks = [r.clock for r in mine if r.kind == "publish" and r.clock is not None]
            if sizes:
                put |= {"message_bytes_mean": sum(sizes) / len(sizes), "message_bytes_max": max(sizes)}
            for kind, column, metric in (("publish", "control", "control_bytes"), ("receive", "held", "buffer_fill")):
                found = [getattr(r, column) for r in mine if r.kind == kind and getattr(r, column) is not None]
                if found:
                    put |= {f"{metric}_mean": sum(found) / len(found), f"{metric}_max": max(found)}
            if clocks:
                put["control_entries_mean"] = sum(len([e for e in c.split() if e != "-"]) for c in clocks) / len(clocks)
                put["control_chars_mean"] = sum(map(len, clocks)) / len(clocks)
            asks = [r.reason or "" for r in mine if r.kind == "recover" and (r.reason or "").startswith("ask")]
            gone = [r.reason or "" for r in mine if r.kind == "recover" and (r.reason or "").startswith("give")]
            came = sum(r.kind == "receive" and r.reason == "recovered" for r in mine)
            given_up = sum(map(self.size, gone))
            put |= {"recovery_attempts": len(asks), "recovery_asked": sum(map(self.size, asks))}
            put |= {"recovery_recovered": came, "recovery_given_up": given_up}
            if came + given_up:
                put["recovery_success"] = came / (came + given_up)
            self.values |= {(scope, name): float(value) for name, value in put.items()}

    @staticmethod
    def size(reason: str) -> int:
        found = re.search(r"[\d.]+:(\d+)-?(\d*)", reason)
        assert found, reason
        return int(found[2] or found[1]) - int(found[1]) + 1

    def wait(self) -> None:
        groups: dict[Scope, list[float]] = defaultdict(list)
        for r in self.rows:
            born = self.born.get((r.run, r.cluster, r.event))
            if r.kind == "deliver" and r.member != r.origin and born is not None:
                for scope in self.scopes(r, r.member):
                    groups[scope].append((r.t_ns - born) / 1e6)
        for scope, ms in groups.items():
            assert len(ms) < 10_000  # so that the approximation has to be exact
            self.values |= {(scope, f"latency_p{p}_ms"): nearest_rank(ms, p / 100) for p in (50, 90, 99)}
            self.values[scope, "latency_max_ms"] = max(ms)


def awkward() -> list[Row]:
    """What those runs do not have: drops of every kind, an id used twice, an event that nobody published."""
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


def test_the_table_of_an_audit(spark: SparkSession, tmp_path: Path) -> None:
    """`audit_files(..., metrics=True)`, on a run of the simulator and on what that does not have: every value of both
    accounts, and no value in one alone."""
    rows = [*hostile(3), *awkward()]
    plain = Plain(rows)
    plain.count()
    plain.wait()
    with open_trace(tmp_path / "trace" / "rows.jsonl") as trace:
        trace.append_many(rows)
    audit_files([tmp_path / "trace"], tmp_path / "out", metrics=True, spark=spark)
    table = pq.read_table(tmp_path / "out" / "metrics").to_pylist()
    ours = {((r["run"], r["cluster"], r["member"]), r["name"]): r["value"] for r in table}
    assert len(ours) == len(table), "a value is there twice"
    assert ours.keys() == plain.values.keys()
    assert not {k: (ours[k], v) for k, v in plain.values.items() if ours[k] != pytest.approx(v, rel=1e-9, abs=1e-12)}
    whole = ("hostile-3", "main", None)
    assert ours[whole, "recovery_recovered"] > 0 and ours[whole, "control_bytes_mean"] > 0
    assert ours[whole, "buffer_fill_max"] > ours[whole, "buffer_fill_mean"] >= 1
    assert ours[("r", "c", "b#1"), "recovery_success"] == 0.25
    assert ours[("r", "c", "b#1"), "buffer_fill_max"] == 2
