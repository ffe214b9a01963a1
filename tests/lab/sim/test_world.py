"""Whole runs of real members in virtual time: the situations that have names."""

from __future__ import annotations

from typing import Any

import pytest

from tests.lab.sim.runs import MS, ROUND, Run, simulate
from whence.core.clock import AnyFrame, MemberId
from whence.core.order import Ordering
from whence.core.ring.base import Applicant
from whence.errors import BadFrame
from whence.lab.sim.actions import CoordinateAction, Crash, Partition
from whence.lab.sim.scenario import load

TRIANGLE = """
members = 3
duration = "8s"
settle = "6s"
[cluster]
tickets = 3
coordinators = 2
order = "{order}"
recovery = "Rk"
mode = "rounds"
fanout = 2
termination = 1
"""


FAULT_FREE = """
members = 9
duration = "10s"
settle = "5s"
[cluster]
tickets = 4
coordinators = 4
order = "{order}"
recovery = "{recovery}"
mode = "{mode}"
[cluster.workload]
rate = 0.4
batch = 2
"""


@pytest.mark.parametrize("mode", ["rounds", "eager", "tree"])
@pytest.mark.parametrize("order", ["fifo", "causal", "reliable"])
def test_without_faults_nothing_is_lost_and_all_is_in_causal_order(order: str, mode: str) -> None:
    """CCC11 Lemma 5.1. The world's own checks compare every application's state with what was published."""
    run = simulate(FAULT_FREE.format(order=order, mode=mode, recovery="R1")).clean()
    total = len(run.published())
    assert total > 100 and run.world.checks.harmless()
    assert {run.count(n) for n in run.world.hosts} == {total}
    assert all(run.state(n) == run.state("n0") for n in run.world.hosts)
    if order != "fifo":
        assert run.inversions() == 0


def test_late_join_in_mid_stream() -> None:
    """State by snapshot, then exactly the events after it: nothing twice, nothing skipped."""
    run = Run(load("latejoin"), 1).clean()
    total = len(run.published())
    for late in ("n6", "n7"):
        join = run.of(late, "join")[0]
        assert join.reason == "snapshot" and join.token
        heard = [r.event for r in run.of(late, "deliver") if r.member == f"{late}#1"]
        assert 0 < len(heard) < total  # some came with the snapshot, some after it
        assert len(set(heard)) == len(heard)
        assert run.count(late) == total and run.state(late) == run.state("n0")


PARTITION = """
members = 7
duration = "14s"
settle = "8s"
[cluster]
tickets = 4
coordinators = 4
order = "reliable"
recovery = "Rk"
[cluster.workload]
rate = 0.5
stop = "12s"
"""


def test_a_partition_heals() -> None:
    """Both sides go on as far as they may; afterwards everybody has everything of both."""
    cut = Partition(at=7000 * MS, who=("n1", "n2", "n6"), lasts=3000 * MS)
    run = simulate(PARTITION, extra=[cut]).clean()
    during = [r for r in run.published() if 7000 * MS < r.t_ns < 10_000 * MS]
    assert during
    assert {run.count(n) for n in run.world.hosts} == {len(run.published())}
    times = [r.t_ns for r in run.of("n1", "deliver") if r.event in {d.event for d in during if d.member[:2] == "n0"}]
    assert all(t > 10_000 * MS for t in times)  # the wall was one


def test_crash_and_restart_in_mid_recovery() -> None:
    """It has asked, and dies before the answer is there; the next life, from its disk, asks again."""
    text = PARTITION.replace("rate = 0.5", "rate = 0.3")
    cut = Partition(at=7000 * MS, who=("n5",), lasts=2500 * MS)
    first = simulate(text, extra=[cut]).clean()
    asked = next(r for r in first.of("n5", "recover") if r.t_ns > 9000 * MS)
    crash = Crash(at=asked.t_ns + MS, who="n5", lasts=1000 * MS, disk=True)
    run = simulate(text, extra=[cut, crash]).clean()
    assert [r.reason for r in run.of("n5", "join")] == ["genesis", "checkpoint"]
    before, after = ([r.event for r in run.rows if r.kind == "deliver" and r.member == f"n5#{b}"] for b in (1, 2))
    assert before and after and not set(before) & set(after)
    assert run.count("n5") == len(run.published()) == run.count("n0")
    assert any(r.reason == "recovered" for r in run.of("n5", "receive") if r.member == "n5#2")


TWO = """
members = 6
duration = "12s"
settle = "6s"
[[cluster]]
name = "a"
processes = ["n0", "n1", "n2", "n3"]
tickets = 3
coordinators = 2
order = "reliable"
recovery = "Rk"
workload = { rate = 0.5 }
[[cluster]]
name = "b"
processes = ["n2", "n3", "n4", "n5"]
tickets = 2
coordinators = 2
order = "causal"
workload = { rate = 0.5 }
"""


def test_two_clusters_in_one_process() -> None:
    run = simulate(TWO).clean()
    by = {c: [r for r in run.published() if r.cluster == c] for c in ("a", "b")}
    assert by["a"] and by["b"]
    assert {r.member for r in by["b"]} == {"n2#1", "n3#1"} and {r.member for r in by["a"]} == {"n0#1", "n1#1"}
    for name in ("n2", "n3"):
        assert run.count(name, 0) == len(by["a"]) and run.count(name, 1) == len(by["b"])
        for cluster in ("a", "b"):
            steps = [r.lseq for r in run.rows if r.cluster == cluster and r.member == f"{name}#1"]
            assert steps == list(range(len(steps)))
    assert 1 not in run.world.hosts["n0"].instances and 0 not in run.world.hosts["n5"].instances


def test_a_crash_takes_a_process_out_of_all_its_clusters() -> None:
    run = simulate(TWO, extra=[Crash(at=8000 * MS, who="n3", lasts=1000 * MS, disk=True)]).clean()
    assert len(run.of("n3", "join")) == 4
    assert run.count("n3", 0) == len([r for r in run.published() if r.cluster == "a"])


NOISY = """
members = 8
duration = "20s"
settle = "10s"
wire = true
[network]
latency = "normal"
mean = "2ms"
sd = "1ms"
loss = 0.05
dup = 0.05
reorder = 0.1
[clocks]
offset = "1h"
drift = 200
[cluster]
tickets = 4
coordinators = 4
order = { reliable = 5, causal = 3 }
recovery = "Rk"
[cluster.workload]
rate = 0.3
"""


def test_bad_bytes_cut_off_their_sender_and_disturb_nobody() -> None:
    hostile = '[[fault]]\nkind = "hostile"\nwho = "n{}"\nat = "{}s"\nmessages = 30\n'
    run = simulate(NOISY + "".join(hostile.format(i, 8 + i) for i in range(8))).clean()
    tally = run.world.tally
    assert tally.bad_bytes > 20 and tally.hostile >= tally.bad_bytes
    cut = [r for r in run.rows if r.kind == "cutoff"]
    assert {r.peer for r in cut} == {"outsider#1"} and len({r.member for r in cut}) == 8
    reliable = [n for n, o in run.world.orders[0].items() if o == "reliable"]
    assert {run.count(n) for n in reliable} == {len(run.published())}


def test_a_member_gone_mad_is_cut_off() -> None:
    mad = '[[fault]]\nkind = "hostile"\nwho = "n{}"\nsender = "n7"\nat = "9s"\nmessages = 30\n'
    run = simulate(NOISY + "".join(mad.format(i) for i in range(7)))
    cut = {(r.member, r.peer) for r in run.rows if r.kind == "cutoff"}
    assert {p for _, p in cut} == {"n7#1"} and len(cut) == 7


def test_the_operator_founds_an_empty_core_again() -> None:
    text = PARTITION.replace('duration = "14s"', 'duration = "40s"').replace('stop = "12s"', 'stop = "38s"')
    crashes = [Crash(at=8000 * MS + i * 10 * MS, who=f"n{i}", lasts=4000 * MS, disk=True) for i in range(4)]
    for ring, decisions in (("neighbours", 1), ("council", 0)):  # with their disks, voters need no operator
        run = simulate(text.replace("[cluster]", f'[cluster]\nring = "{ring}"', 1), extra=crashes).clean()
        assert run.world.tally.refounded == decisions
        assert any(r.t_ns > 30_000 * MS for r in run.published())
        epochs = {int((r.event or "").split(":")[1].split(".")[0]) for r in run.published()}
        assert len(epochs) == 2


def test_an_honest_member_that_is_blamed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it would be if members refused different frames, and blamed whoever forwards one."""

    def vet(self: Ordering[Any], frame: AnyFrame, sender: MemberId) -> bool:
        if sender != frame.owner:
            raise BadFrame("others took it")
        return True

    text = FAULT_FREE.format(order="causal", recovery="Rk", mode="rounds")
    monkeypatch.setattr(Ordering, "vet", vet)
    violation = simulate(text).violation
    assert violation is not None and violation.kind == "blame"


IN_VAIN = """
duration = "20r"
settle = "60r"
members = 3
[network]
latency = "normal"
mean = "2ms"
sd = "200us"
loss = {loss}
[cluster]
tickets = 3
coordinators = {coordinators}
ring = "{ring}"
"""


@pytest.mark.parametrize("loss", [0.0, 0.05])
@pytest.mark.parametrize("ring", ["neighbours", "council"])
def test_a_member_that_asks_for_a_ticket_in_vain_is_found(
    ring: str, loss: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = IN_VAIN.format(ring=ring, loss=loss, coordinators=3)
    simulate(text).clean()
    apply = Applicant.apply
    monkeypatch.setattr(Applicant, "apply", lambda self: None if self.ctx.me == "n2#1" else apply(self))
    violation = simulate(text).violation
    assert violation is not None and violation.kind == "ticket"
    assert "n2#1 still asked for a ticket at the end; 2 of 3 are taken" in str(violation)


@pytest.mark.parametrize("ring", ["neighbours", "council"])
def test_while_messages_are_lost_a_ticket_may_be_missing_for_a_while(ring: str) -> None:
    """A lost message is a fault (CCC11 section 4.2): it can cost an owner its ticket also just before the end. Without
    losses nobody loses one that late."""
    late = [CoordinateAction(at=80 * ROUND - 1, who="n2")]
    simulate(IN_VAIN.format(ring=ring, loss=0.05, coordinators=2), extra=late).clean()
    violation = simulate(IN_VAIN.format(ring=ring, loss=0.0, coordinators=2), extra=late).violation
    assert violation is not None and "n2#1 still asked for a ticket at the end" in str(violation)
