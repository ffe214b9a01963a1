"""The command line: what it prints, what it returns, what it leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest

import whence
from whence.audit.trace import read
from whence.cli import main, simulate

SCENARIOS = Path(__file__).parents[2] / "src" / "whence" / "lab" / "scenarios"

SMALL = """
about = "small"
members = 4
round = "100ms"
duration = "4s"
settle = "2s"
[cluster]
tickets = 2
coordinators = 2
workload = { rate = 0.5 }
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SMALL, encoding="utf-8")
    return path


def test_sim_prints_a_report(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", str(small), "--seed", "3"]) == 0
    out, err = capsys.readouterr()
    assert "small, seed 3" in out and "published" in out and "latency p99" in out
    assert err == ""


def test_sim_json_is_one_object(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", str(small), "--json"]) == 0
    report = msgspec.json.decode(capsys.readouterr().out)
    (line,) = report["lines"]
    assert line["order"] == "causal" and line["delivered"] == 4 * line["published"] > 0
    assert report["violation"] is None and report["seed"] == 0


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_sim_writes_a_trace(small: Path, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
    out = tmp_path / "out"
    for _ in range(2):  # the second run replaces the file of the first
        assert main(["sim", str(small), "--json", "--trace", str(out / f"small-0.{kind}")]) == 0
        report = msgspec.json.decode(capsys.readouterr().out.splitlines()[-1])
        assert [p.name for p in out.iterdir()] == [f"small-0.{kind}"]
        rows = list(read(out / f"small-0.{kind}"))
        assert sum(r.kind == "deliver" for r in rows) == report["lines"][0]["delivered"]


def test_the_schedule_can_be_printed(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", str(small), "--schedule"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines and all("publishes 1 event" in line for line in lines)


def test_recorded_latencies_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cities = [f"c{i}" for i in range(4)]
    rows = [",".join(["", *cities]), *(",".join([c, *("0" if c == d else "30" for d in cities)]) for c in cities)]
    (tmp_path / "rtt.csv").write_text("\n".join(rows), encoding="utf-8")
    (tmp_path / "w.toml").write_text(SMALL + "[network]\nlatency = 'recorded'\nfile = 'no.csv'\n", encoding="utf-8")
    assert main(["sim", str(tmp_path / "w.toml"), "--latencies", str(tmp_path / "rtt.csv"), "--json"]) == 0
    report = msgspec.json.decode(capsys.readouterr().out)
    assert report["lines"][0]["latency_ms"]["max"] >= 15


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A world in which the third event is one too many."""
    from whence.lab.sim.checks import Checks

    honest = Checks.published

    def published(self: Checks, instance: object, frame: object) -> None:
        honest(self, instance, frame)  # type: ignore[arg-type]
        if sum(last for t in self._tenures for _, last in t.values()) >= 3:
            raise self.violation("id", "that was the third")

    monkeypatch.setattr(Checks, "published", published)


@pytest.mark.usefixtures("broken")
def test_a_violation_is_exit_1(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", str(small)]) == 1
    out = capsys.readouterr().out
    assert "VIOLATION id" in out and "that was the third" in out and "--shrink" in out
    assert main(["sim", str(small), "--json"]) == 1
    assert "that was the third" in msgspec.json.decode(capsys.readouterr().out)["violation"]


@pytest.mark.usefixtures("broken")
def test_shrink_writes_a_scenario_that_fails_again(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "short.toml"
    assert main(["sim", str(small), "--seed", "5", "--shrink", str(out)]) == 1
    text = capsys.readouterr().out
    assert text.count("publishes") == 3 and "VIOLATION id" in text
    assert main(["sim", str(out)]) == 1
    assert "that was the third" in capsys.readouterr().out
    assert main(["sim", str(out), "--schedule"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


TRIANGLE = """
members = 3
round = "100ms"
duration = "8s"
cluster = { tickets = 3, coordinators = 2, order = "unordered", mode = "rounds", fanout = 2, termination = 1 }
fault = [
  { at = "5s", kind = "slow", src = "n0", dst = "n2", by = "1500ms", for = "1500ms" },
  { at = "5500ms", kind = "publish", who = "n0" },
  { at = "5605ms", kind = "publish", who = "n1" },
  { at = "6605ms", kind = "publish", who = "n1", events = 3 },
]
"""


def test_shrink_of_an_inversion_that_nothing_forbids(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenario, short = tmp_path / "triangle.toml", tmp_path / "short.toml"
    scenario.write_text(TRIANGLE)
    assert main(["sim", str(scenario), "--shrink", str(short)]) == 0
    said = capsys.readouterr().out
    assert "VIOLATION" not in said and "as unordered order allows" in said and "# 3 actions" in said
    assert main(["sim", str(short), "--json"]) == 0
    (line,) = msgspec.json.decode(capsys.readouterr().out)["lines"]
    assert (line["inversions"], line["published"]) == (1, 2)


def test_shrink_of_a_clean_seed_says_so(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", str(small), "--shrink", "none.toml"]) == 0
    assert "clean" in capsys.readouterr().err


def test_soak_sums_up(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", str(small), "--seeds", "3", "--seed", "7", "--jobs", "2", "--json"]) == 0
    summary = msgspec.json.decode(capsys.readouterr().out)
    assert summary["seeds"] == 3 and summary["failed"] == [] and summary["delivered"] == 4 * summary["published"] > 0
    (sums,) = summary["orders"].values()
    assert sums["delivered"] == summary["delivered"] and sums["inversions"] == sums["lost"] == 0


def test_an_interrupted_soak_sums_up_what_is_done(
    small: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds = simulate.seeds

    def interrupted(*args: Any) -> Iterator[Any]:
        yield from islice(seeds(*args), 2)
        raise KeyboardInterrupt

    monkeypatch.setattr(simulate, "seeds", interrupted)
    assert main(["sim", str(small), "--seeds", "9", "--jobs", "1", "--json"]) == 130
    assert msgspec.json.decode(capsys.readouterr().out)["seeds"] == 2


@pytest.mark.usefixtures("broken")
def test_soak_names_and_shrinks_a_failing_seed(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", str(small), "--seeds", "2", "--jobs", "1", "--shrink", str(tmp_path / "short.toml")]) == 1
    out = capsys.readouterr().out
    assert "seed 0: id" in out and "failed: [0, 1]" in out
    assert main(["sim", str(tmp_path / "short.toml")]) == 1


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main(["--version"])
    assert done.value.code == 0 and f"whence {whence.__version__}" in capsys.readouterr().out


def test_an_interrupt_is_exit_130_and_leaves_no_trace(tmp_path: Path) -> None:
    """As a person would: Ctrl-C in the middle of a run that takes minutes."""
    path, out = tmp_path / "long.toml", tmp_path / "out"
    path.write_text(SMALL.replace('"4s"', '"100h"'), encoding="utf-8")
    command = [sys.executable, "-m", "whence", "sim", str(path), "--trace", str(out / "run.jsonl")]
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        # a person's shell does not ignore interrupts, whatever started these tests does
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    while not (out.is_dir() and any(out.iterdir())):  # it has begun to write
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130 and err == "whence: interrupted\n"
    assert list(out.iterdir()) == []
