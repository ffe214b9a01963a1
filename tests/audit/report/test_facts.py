"""What the page says, against what the rows say."""

from __future__ import annotations

import base64
import re
from array import array
from pathlib import Path

import pytest
from msgspec import structs

from tests.audit.report.traces import TRIANGLE, trace
from tests.lab.sim.runs import Run
from whence.audit.judge import Finding
from whence.audit.report import Facts, RunVerdicts, Suspect, gather, render, write
from whence.audit.report.charts import ticks
from whence.audit.trace import Row
from whence.errors import TraceError
from whence.lab.sim.scenario import load


def page(rows: list[Row], verdict: RunVerdicts | None = None) -> Facts:
    return gather(rows, verdict, title="t", about="a")


def test_counts_and_the_inversion() -> None:
    facts = page(TRIANGLE)
    counts = {name: sum(curve) for name, curve in facts.curves.items()}
    assert counts == {"published": 2, "delivered": 6, "dropped": 0, "recovered": 0}
    assert (len(facts.diagram.lanes), facts.found.lost) == (3, 0)
    assert facts.found.verdicts["inverted"] == 1
    assert facts.found.suspect[("c#1", 2)] == Suspect("inverted", True)
    text = render(facts)
    assert "Order broke: 1 violation<" in text
    assert "published the former with the latter in its past" in text


def test_what_never_came_to_a_live_member_is_lost() -> None:
    rows = [*TRIANGLE, Row("r", "c", "d#1", 0, 0, "join", reason="genesis", order="causal")]
    rows.append(Row("r", "c", "d#1", 1, 9_000_000, "deliver", event="q@a#1", origin="a#1"))
    assert page(rows).found.lost == 1
    gone = Row("r", "c", "d#1", 2, 10_000_000, "leave", reason="left")
    assert page([*rows, gone]).found.lost == 0


def test_an_incomplete_trace_is_not_called_clean() -> None:
    fine = RunVerdicts(by_order={"causal": {"in order": 6}})
    assert "Order held: every promise was kept" in render(page(TRIANGLE, fine))
    text = render(page(TRIANGLE, structs.replace(fine, doubts=2)))
    assert "No violation found; the trace of 2 members is incomplete" in text and "Order held" not in text


def test_an_inversion_that_was_allowed_is_not_called_order() -> None:
    text = render(page([structs.replace(r, order="unordered") if r.kind == "join" else r for r in TRIANGLE]))
    assert "No promise was broken; 1 inversion where no causal order was asked for" in text
    assert "Order held" not in text and "at members that asked for causal order; 1 at others" in text


def test_columns_hold_every_step_in_order() -> None:
    diagram = page(TRIANGLE).diagram
    event = array("I", base64.b64decode(diagram.event))
    held = array("f", base64.b64decode(diagram.held_ms))
    flags = base64.b64decode(diagram.flags)
    said = {
        life.name: [(diagram.events[event[s]], held[s] < 0) for s in range(life.first, life.last)]
        for life in diagram.lives
    }
    assert said["b#1"] == [("q@a#1", False), ("answer@b#1", True), ("answer@b#1", False)]
    assert said["c#1"] == [("answer@b#1", False), ("q@a#1", False)]
    assert [(flag >> 2) & 7 for flag in flags if flag & 32] == [1]  # the inversion, and nothing else, is wrong


def test_a_run_of_the_simulator_adds_up() -> None:
    rows = Run(load("hostile"), 7).rows
    facts = page(rows)
    published, delivered = sum(facts.curves["published"]), sum(facts.curves["delivered"])
    assert published == sum(r.kind == "publish" for r in rows)
    assert delivered == facts.found.verdicts.total() == sum(r.kind == "deliver" for r in rows)
    recovered = sum(r.kind == "receive" and r.reason == "recovered" for r in rows)
    assert sum(facts.curves["recovered"]) == recovered > 0
    assert any(t.how == "lost" for t in facts.tenures)
    assert facts.diagram.steps == delivered + published
    joined = [life for life in facts.diagram.lives if life.base is not None]
    assert joined, "somebody joined with a snapshot: its past is that of whoever took it"


def test_too_many_steps_show_a_window_around_the_first_suspect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whence.audit.report.facts.MAX_STEPS", 4)
    diagram = page(TRIANGLE).diagram
    assert not diagram.whole and diagram.steps == 4
    assert 1 in [flag >> 2 & 7 for flag in base64.b64decode(diagram.flags)]


def test_names_cannot_break_out_of_the_page() -> None:
    evil = "</script><script>alert(1)</script><!--script-->@a#1"
    rows = trace(("a#1", "publish", evil), ("a#1", "deliver", evil))
    text = render(
        page(
            rows, RunVerdicts(violations=1, findings=(Finding(rule="causal", sentence=evil, member="a#1", event=evil),))
        )
    )
    assert "<script>alert" not in text
    assert len(re.findall(r"<script", text)) == 2


def test_the_first_findings_are_seen_the_others_can_be() -> None:
    findings = tuple(Finding(rule="causal", sentence=f"wrong {n}", member="c#1", event="q@a#1") for n in range(12))
    text = render(page(TRIANGLE, RunVerdicts(violations=40, findings=findings)))
    first, rest = text.partition('<section id="findings">')[2].partition("</section>")[0].split("<details>")
    assert first.count("<li>") == 5 and rest.count("<li>") == 7
    assert "<summary>7 more</summary>" in rest and "and 28 that are not listed" in rest


def test_what_is_done_to_members_and_what_they_do() -> None:
    rows = [*TRIANGLE, Row("r", "c", "c#1", 3, 20, "crash"), Row("r", "c", "b#1", 4, 30, "leave", reason="left")]
    assert [(m.member, m.what, m.fault) for m in page(rows).marks] == [("c#1", "crashed", True), ("b#1", "left", False)]


def test_whoever_was_killed_is_marked_where_its_trace_ends() -> None:
    again = [Row("r", "c", "c#10", 0, 9_000_000, "join", reason="checkpoint", order="causal", peer="c#1")]
    marks = [(m.at_s, m.member, m.what, m.fault) for m in page([*TRIANGLE, *again]).marks]
    assert marks == [
        (0.007, "c#1", "ended without a word", True),
        (0.009, "c#10", "came back, from its own disk", False),
    ]


def test_an_empty_trace_is_a_page_too(tmp_path: Path) -> None:
    write(page([]), tmp_path / "new" / "page.html")
    text = (tmp_path / "new" / "page.html").read_text()
    assert "Nothing was delivered" in text and "<!--" not in text


def test_a_page_that_cannot_be_written_says_where(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TraceError, match=r"file/page\.html: the page cannot be written"):
        write(page(TRIANGLE), tmp_path / "file" / "page.html")


@pytest.mark.parametrize("top", [0.0, 0.3, 1, 7, 99, 100, 12345.6])
def test_ticks_are_few_and_round(top: float) -> None:
    found = ticks(top)
    assert found[0] == 0 and found[-1] <= top * 1.000001 and len(found) <= 7
