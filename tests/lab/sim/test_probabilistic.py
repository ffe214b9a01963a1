"""Clusters without tickets in the simulator: the very same members, judged by the causal oracle, under faults."""

from __future__ import annotations

import pytest

from tests.lab.sim.free import CHAOS, MOVES, WORLD, world
from tests.lab.sim.runs import Run
from whence.audit.judge import judge
from whence.core.order.probabilistic import ProbabilisticOrdering
from whence.lab.sim.run import run
from whence.lab.sim.scenario import parse


@pytest.mark.parametrize("mode", ["rounds", "eager", "tree"])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_large_clock_inverts_nothing_whatever_happens_and_moves(mode: str, seed: int) -> None:
    done = Run(world(mode=mode, more=CHAOS), seed, MOVES).clean()
    report = judge(done.rows)
    assert report.ok and report.total.inverted == 0 and report.published > 100
    assert report.total.lost < 0.02 * report.total.deliveries
    moved = [r for r in done.rows if r.kind == "clock" and "generation" in (r.reason or "")]
    assert len(moved) >= 20
    assert {r.reason for r in done.rows if r.kind == "join"} == {"genesis", "snapshot", "checkpoint"}
    sizes = {
        (instance.member.ordering.queue.current.R, instance.member.ordering.queue.current.K)  # type: ignore[union-attr]
        for host in done.world.hosts.values()
        for instance in host.instances.values()
    }
    assert len(sizes) == 1  # in the end all publish under one clock


def test_a_small_clock_errs_and_every_error_comes_with_an_alert() -> None:
    found = 0
    for seed in (1, 2):
        outcome = run(world(mode="eager", contract="entries = 8\nkeys = 2", more=CHAOS), seed)
        assert outcome.violation is None, outcome.violation  # the check `alert` among others
        [line] = outcome.report.lines
        found += line.inversions
        assert line.alerts4 >= line.alerts5 >= line.inversions - line.missed
        assert line.missed <= line.inversions
        assert line.error_rate == line.inversions / (line.delivered - line.published) or line.error_rate > 0
    assert found > 0


def test_orders_share_a_cluster_without_tickets() -> None:
    outcome = run(world("{ probabilistic = 6, fifo = 2, unordered = 2 }", more=CHAOS), 4)
    assert outcome.violation is None, outcome.violation
    lines = {line.order: line for line in outcome.report.lines}
    assert set(lines) == {"probabilistic", "fifo", "unordered"}
    assert lines["probabilistic"].inversions == 0 and lines["unordered"].inversions > 0
    assert all(line.delivered > 200 for line in lines.values())


def test_members_come_and_go_and_nobody_agrees_on_anything() -> None:
    text = WORLD.format(
        order='"probabilistic"',
        mode="eager",
        contract="entries = 512\nkeys = 4",
        more='[chaos]\nleave = "4r"\naway = "6r"',
    )
    outcome = run(parse('bootstrap = "join"\n' + text), 5)
    assert outcome.violation is None, outcome.violation
    [line] = outcome.report.lines
    assert outcome.report.joined["snapshot"] >= 12 and line.inversions == 0 and line.published > 100
    assert outcome.report.tickets == {} and outcome.report.counters["refounded"] == 0


def test_an_overload_breaks_the_contract_and_the_cluster_moves() -> None:
    text = """
members = 8
round = "100ms"
duration = "6s"
settle = "5s"
[network]
latency = "normal"
mean = "30ms"
sd = "15ms"
loss = 0.01
[cluster]
order = "probabilistic"
mode = "eager"
recovery = "Rk"
[cluster.contract]
target_error = 0.005
rate = 10.0
delay = 0.03
jitter = 0.015
[cluster.workload]
per_second = 250
"""
    done = Run(parse(text), 1).clean()
    steps = [(r.t_ns, r.reason or "") for r in done.rows if r.kind == "clock"]
    broken = [t for t, reason in steps if reason.startswith("contract broken")]
    moved = [t for t, reason in steps if "generation" in reason]
    kept = [t for t, reason in steps if reason.startswith("contract kept again")]
    assert broken and len(moved) >= 8 and kept and min(broken) <= min(moved) < min(kept)
    late = {r.event for r in done.rows if r.kind == "publish" and r.t_ns > max(moved)}
    alerts = [r for r in done.rows if r.kind == "deliver" and r.event in late and "alert 5" in (r.reason or "")]
    early = [r for r in done.rows if r.kind == "deliver" and r.event not in late and "alert 5" in (r.reason or "")]
    assert len(late) > 300 and len(alerts) < 0.02 * 8 * len(late) and len(early) > 10 * len(alerts)
    ordering = done.world.hosts["n0"].instances[0].member.ordering
    assert isinstance(ordering, ProbabilisticOrdering)
    assert 5 < ordering.overseer.gauge.in_flight < 10  # 250 a second, 30 ms
