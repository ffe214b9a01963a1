"""The scorecard: its logs become a trace that the judge of `whence audit` reads; its controls do what they must; Ctrl-C
leaves nothing running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from scorecard.runs import RUNS, SETTINGS
from scorecard.systems import SYSTEMS

from scorecard import logs, switch, verdicts
from tests.house.imports import ROOT
from whence.audit.judge import judge
from whence.audit.trace import open_trace

AT_A = ["pub wA1", "pub q0", "pub q1", "pub q2"]
AT_B = ["dlv wA1", "dlv q0", "pub r0", "dlv r0", "dlv q1", "pub r1", "err x", "dlv q2", "pub r2"]
AT_C = ["dlv r0", "dlv q0", "dlv q1", "dlv r1", "dlv r1", "dlv r2", "note y"]

ROOTED = os.geteuid() == 0 and Path("/dev/net/tun").exists() and Path("/sbin/ip").exists()
needs_root = pytest.mark.skipif(not ROOTED, reason="needs root and /dev/net/tun")


def write(folder: Path, clock: int = 1) -> None:
    for role, said in zip("ABC", (AT_A, AT_B, AT_C), strict=True):
        lines = [json.dumps([clock * n, *line.split()]) for n, line in enumerate(said)]
        (folder / f"{role}.log").write_text("\n".join([*lines, '[17, "dlv", "q']))  # the last one is half written


def test_the_judge_reads_the_logs(tmp_path: Path) -> None:
    write(tmp_path)
    rows = logs.rows(tmp_path, "run")
    found = judge(rows)
    assert (found.total.inverted, found.total.duplicates, found.total.unknown) == (1, 1, 0)  # q0 after r0; r1 twice
    wrong = next(f for f in found.findings if f.rule == "causal")
    assert (wrong.member, wrong.event) == ("C#1", "0:0.0.1:1@A#1")
    assert {f.rule for f in found.findings} == {"causal", "integrity"}  # what is lost is not held against anybody
    assert logs.counted(rows) == {"asked": 3, "lost": 1, "orphans": 1}  # q2, whose answer came


def test_no_clock_decides(tmp_path: Path) -> None:
    write(tmp_path)
    forwards = judge(logs.rows(tmp_path, "run")).total
    write(tmp_path, clock=-1)
    assert judge(logs.rows(tmp_path, "run")).total == forwards


def test_the_table_says_what_the_audit_says(tmp_path: Path) -> None:
    place = tmp_path / "mesh"
    (place / "traces").mkdir(parents=True)
    for n in (1, 2):
        write(tmp_path)
        rows = logs.rows(tmp_path, f"mesh/one-slow-{n}")
        with open_trace(place / "traces" / f"one-slow-{n}.jsonl") as file:
            file.append_many(rows)
        facts = {"layout": "one", "setting": "slow", "run": n, "delay_ms": 1.0, **logs.counted(rows)}
        (place / "traces" / f"one-slow-{n}.json").write_text(json.dumps(facts))
    verdicts.audit(place)
    (cell,) = verdicts.cells(place, SYSTEMS["mesh"]).values()
    assert verdicts.shown(cell) == "2/6(1-1)" and cell.doubled == 2 and cell.sum("lost") == 2
    assert "| 2/6(1-1) |" in verdicts.page(tmp_path, ["mesh"])
    assert (place / "verdicts" / "report.html").exists()


def test_a_broken_promise_is_called_one() -> None:
    cells = {"slow": verdicts.Cell([], inverted=[3])}
    assert verdicts.verdict(SYSTEMS["postgres"], "one", cells) == "broken"
    assert verdicts.verdict(SYSTEMS["postgres"], "one", {"slow": verdicts.Cell([], inverted=[0])}) == "kept"
    assert verdicts.verdict(SYSTEMS["nats-cluster"], "one", cells) == "none"


def test_every_system_says_what_it_is_and_how_to_get_it() -> None:
    assert len(SYSTEMS) >= 15 and set(RUNS) <= set(SETTINGS)
    for system in SYSTEMS.values():
        assert system.promise.says and system.promise.source, system.key
        assert set(system.promise.order) <= set(system.layouts) | {"two"}, system.key
        assert bool(system.get) == bool(system.needs), system.key
    page = (ROOT / "docs" / "scorecard.md").read_text(encoding="utf-8")
    for system in SYSTEMS.values():
        assert f"| {system.label} |" in page, f"{system.label} has no row in docs/scorecard.md"
    assert " ".join(SYSTEMS["nats-cluster"].promise.says.split()) in " ".join(page.split())


@needs_root
def test_the_controls_and_an_end_by_force(tmp_path: Path) -> None:
    """A whole call with both controls, ended by Ctrl-C while the system after them runs."""
    argv = [sys.executable, "-m", "scorecard", "mesh", "--settings", "plain", "--out", str(tmp_path)]
    process = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout is not None
        done = 0
        while done < 5:  # two runs of each control, then one of the system: the controls were as they must be
            line = process.stdout.readline()
            assert line, "it ended too early"
            done += '"asked"' in line
        os.killpg(process.pid, signal.SIGINT)
        process.stdout.read()
        assert process.wait(120) == 130
    finally:
        if process.poll() is None:
            process.kill()
    switch.claim(str(tmp_path.resolve()))
    spaces = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert switch.name("a") not in spaces
    for status in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert str(tmp_path).encode() not in status.read_bytes()
        except OSError:
            continue
    assert (tmp_path / "mesh" / "traces" / "one-plain-1.json").exists()
