"""The pages are true: figures, settings, metrics, pictures, what a contract says. That commands work: test_prose.py."""

from __future__ import annotations

import importlib.util
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import ModuleType

import msgspec

import whence
from tests.house.imports import PAGES, ROOT
from whence.audit.trace import Row
from whence.cli.parser import parser
from whence.cli.show import report_tables
from whence.lab import plan as planner
from whence.lab.sim.run import run
from whence.lab.sim.scenario import load

DOCS = ROOT / "docs"


def read(page: str) -> str:
    return PAGES[DOCS / f"{page}.md"]


def test_the_figures_of_the_planner() -> None:
    found = re.findall(r"^\| `(--members .*?)` \| (\d+) \| (\d+) \| ([\d,]+) \| (\d+), (\d+) \|$", read("tuning"), re.M)
    assert len(found) == 6
    for options, *said in found:
        args = parser().parse_args(["plan", *options.split()])
        given = {name: getattr(args, name) for name in ("members", "publishers", "rate", "loss", "target", "mode")}
        made = planner.plan_cluster(planner.PlanQuestion(**given))
        figures = (made.fanout, made.termination, made.bytes_per_s / 1000, made.latency_p50_ms, made.latency_p99_ms)
        assert [f"{figure:,.0f}" for figure in figures] == said, options


def test_the_sizes_of_a_contract() -> None:
    rows = re.findall(r"^\| (1e-\d) \| (\d+) \| (\d+) \|$", read("probabilistic"), re.MULTILINE)
    assert len(rows) == 4
    for target, R, K in rows:
        assert whence.Contract(target_error=float(target), rate=200, delay=0.1).size == (int(R), int(K))
    fields = {f.name for f in msgspec.structs.fields(whence.Contract)} - {"members"}
    assert fields <= set(re.findall(r"`(\w+)`", read("probabilistic")))


def test_the_numbers_of_the_probabilistic_scenario() -> None:
    report = run(load("probabilistic")).report
    [line] = report.lines
    shown = [str(cell) for table in report_tables(report) for column in table.columns for cell in column.cells]
    assert "alerts, Algorithm 5" in shown and "error rate (inversions per delivery)" in shown
    text = read("probabilistic")
    for number in (line.delivered, line.inversions, line.alerts4, line.alerts5):
        assert re.search(rf"\b{number:,}\b", text), f"{number:,} is not in docs/probabilistic.md"
    assert line.missed == line.lost == 0 and f"{line.error_rate:.1e}".replace("e-0", "e-") in text


def test_the_metrics_are_those_of_the_live_page() -> None:
    """That those exist is seen to by tests/cli/test_live.py."""
    named = set(re.findall(r"`(whence_\w+)`", read("operations")))
    assert len(named) > 8 and named <= set(re.findall(r"`(whence_\w+)", read("live")))


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw", DOCS / "img" / "draw.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pictures_are_there_and_can_be_drawn_again(tmp_path: Path) -> None:
    script().main(tmp_path)
    drawn = sorted(path.name for path in tmp_path.glob("*.svg"))
    assert drawn == sorted(re.findall(r"\(img/(\w+\.svg)\)", read("protocols")))
    for name in drawn:
        ElementTree.parse(tmp_path / name)
        ElementTree.parse(DOCS / "img" / name)


def test_what_is_said_about_the_pictures() -> None:
    draw = script()
    spread = [row for row in draw.rows_of(draw.GOSSIP) if row.kind == "deliver"]
    assert len(spread) == 10 and max(row.t_ns for row in spread) < 5.3e9
    at_n2 = [row for row in draw.rows_of(draw.HOLD) if row.member == "n2#1" and row.kind in ("receive", "deliver")]
    assert [(row.kind, row.origin, row.reason) for row in at_n2] == [
        ("receive", "n1#1", None),
        ("receive", "n0#1", "recovered"),
        ("deliver", "n0#1", None),
        ("deliver", "n1#1", None),
    ]
    ring = steps(draw.rows_of(draw.RING))
    assert [who for _, who, what in ring if what == "owner"].count("n5#1") == 1
    assert any(what == "released" and who == "n2#1" for _, who, what in ring)


def steps(rows: list[Row]) -> list[tuple[float, str, str]]:
    return [(r.t_ns / 1e9, r.member, (r.reason or "").partition(" ")[0]) for r in rows if r.kind == "ticket"]
