"""`whence paper ccc11/ring`: the published cluster management, its counterexamples, and the same under our rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from whence.cli import main
from whence.lab.paper.ccc11 import ring
from whence.lab.paper.ccc11.published import Tolerant, basic_counterexample, succeeding
from whence.lab.paper.ccc11.ring import RingDriver
from whence.lab.paper.frame import RunOptions


def test_coordinated_sets() -> None:
    assert succeeding(8, 4, 1) == [4, 3, 2] and succeeding(8, 1, 6) == [1, 0, 7]
    assert len(succeeding(8, 3, 3)) == 8


def test_algorithm_1_as_printed_gives_a_ticket_two_owners() -> None:
    published, _ = basic_counterexample()
    assert published.ticket["x"] == published.ticket["y"] == 4
    assert set(published.conflicts()[4]) >= {"x", "y"}


def test_without_a_fault_the_published_ring_stands() -> None:
    """So the model itself does not break it: nobody is excluded, nobody gives up."""
    found = Tolerant(ring.TICKETS, k=1, grace=2)
    found.settled(ring.OWNERS)
    found.run(1.0)
    for name, (parent, ticket, _) in list(ring.WANTED.items())[:2]:
        found.cjoin(name, parent, ticket)
        found.run(found.now + 3)
    found.run(20)
    assert {step.kind for step in found.steps} == {"send", "own"}
    tickets = {p.ticket for p in found.processes.values()}
    assert len(tickets) == len(found.processes) == 7 and None not in tickets


def test_one_cut_link_gives_a_ticket_two_owners_and_ours_does_not() -> None:
    rows = ring.measure(RunOptions(quick=True))
    assert ring.most_owners(rows, "published")[0] == 2 and ring.most_owners(rows, "ours")[0] == 1
    spans = ring.tenures(rows, "published")
    assert spans["z"][0][2] == spans["s"][0][2] and spans["s"][0][0] < spans["z"][0][1]
    ours = ring.tenures(rows, "ours")
    assert ours["s"][0][2] == ours["z"][0][2] and ours["s"][0][0] >= ours["z"][0][1]


def test_without_the_cut_link_nobody_is_excluded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring, "CUT", ("nobody", "p"))
    assert not [step for step in ring.as_published().steps if step.kind in ("exclude", "out")]


def test_the_driver_sees_a_violation() -> None:
    rings = RingDriver(4, 1)
    rings.settle({"a": 0, "b": 2})
    b = list(rings.rings.values())[1]
    b.ctx.holder = b.ctx.holder._replace(ticket=0)
    rings.run(rings.now + 2)
    assert any("I1" in text for text in rings.violations)


def test_the_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert main(["paper", "ccc11/ring", "--quick", "--out", str(tmp_path)]) == 0
    drawn = (tmp_path / "ring.svg").read_text(encoding="utf-8")
    assert "two owners of ticket 6" in drawn and "p excludes z" in drawn
