"""Same seed, same trace, byte for byte, whatever PYTHONHASHSEED is; and the trace says what the run saw."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import msgspec
import pytest

from tests.lab.sim.runs import Run
from tests.long import few
from whence.audit.judge import judge
from whence.audit.judge.report import report
from whence.audit.trace import by_member
from whence.lab.sim.run import run
from whence.lab.sim.scenario import load


def traced(scenario: str, settings: str, seed: int, hashseed: str, out: Path) -> bytes:
    """The trace of a run in a process of its own."""
    command = [sys.executable, "-m", "whence", "sim", scenario, "--json"]
    command += ["--seed", str(seed), "--trace", str(out / "trace.jsonl")]
    command += [word for setting in settings.split() for word in ("--set", setting)]
    env = {**os.environ, "PYTHONHASHSEED": hashseed}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    (file,) = out.iterdir()
    return done.stdout.encode() + file.read_bytes()


@pytest.mark.parametrize(
    ("scenario", "settings"),
    [
        ("hostile", ""),
        ("two-clusters", ""),
        ("latejoin", ""),
        ("hostile-trees", "duration=50r settle=30r"),
        ("hostile-free", "duration=50r settle=30r"),
        ("hostile-survey", "cluster.mechanism=first-unstable duration=50r settle=30r"),
        ("hostile-survey", "cluster.mechanism=interval duration=50r settle=30r"),
    ],
)
def test_the_same_seed_gives_the_same_trace(scenario: str, settings: str, tmp_path: Path) -> None:
    one = traced(scenario, settings, 3, "1", tmp_path / "a")
    assert len(one) > 100_000
    assert one == traced(scenario, settings, 3, "2", tmp_path / "b")


@cache
def hostile(seed: int) -> Run:
    return Run(load("hostile"), seed)


def test_another_seed_gives_another_trace() -> None:
    assert Run(load("latejoin"), 3).rows != Run(load("latejoin"), 4).rows


@pytest.mark.parametrize("seed", few([1, 2, 3], 1))
def test_the_trace_alone_leads_to_the_same_verdicts(seed: int) -> None:
    """The judge of the run and one that only reads the trace agree in every count."""
    live = report(hostile(seed).world.checks.judges[0])
    read = judge(hostile(seed).rows)
    assert (read.total, read.members, read.published) == (live.total, live.members, live.published)
    assert read.total.deliveries > 500


def test_rows_are_numbered_without_gaps_and_causes_come_first() -> None:
    rows = hostile(1).rows
    assert sum(map(len, by_member(rows).values())) == len(rows)
    assert {r.kind for r in rows} >= {"join", "publish", "receive", "deliver", "recover", "ticket", "crash"}
    times = [r.t_ns for r in rows]
    assert times == sorted(times)
    seen: set[str | None] = set()
    for row in rows:
        if row.kind == "publish":
            seen.add(row.event)
        if row.kind in ("receive", "deliver"):
            assert row.event in seen


def test_a_recorder_costs_nothing_when_there_is_none() -> None:
    """The run is the same with and without a trace."""
    loaded = load("demo")
    with_trace = Run(loaded, 1)
    assert with_trace.rows
    without = run(loaded, 1).report
    assert msgspec.json.encode(with_trace.world.tally.report("demo", None)) == msgspec.json.encode(without)
