"""Our own orders: registers replicated over each of them, and what their clients saw."""

from __future__ import annotations

import pytest

from tests.history import cases
from tests.sim.runs import simulate
from whence.history import History, check
from whence.history.levels import TRANSACTIONAL
from whence.history.replicas import Happened, client_history
from whence.history.story import story

SCENARIO = """
members = 6
duration = "12s"
settle = "8s"
[network]
latency = "normal"
mean = "20ms"
sd = "15ms"
loss = 0.0
reorder = 0.3
reorder_by = "400ms"
[[cluster]]
tickets = 4
coordinators = 4
order = "{order}"
recovery = "Rk"
[cluster.workload]
rate = 0.6
"""


def clients(order: str, seed: int) -> History:
    rows = simulate(SCENARIO.replace("[[cluster]]", "[cluster]").format(order=order), seed).rows
    steps = [
        Happened(row.member, row.kind, row.event or "", row.origin or "")  # type: ignore[arg-type]
        for row in rows
        if row.kind in ("publish", "deliver")
    ]
    return client_history(steps, f"{order}-{seed}")


@pytest.mark.parametrize("order", ["causal", "reliable"])
def test_causal_orders_are_causally_consistent(order: str) -> None:
    for seed in range(3):
        history = clients(order, seed)
        report = check(history, TRANSACTIONAL)
        assert report.holds, story(report)
        assert report.transactions > 100
        cases.judged(history, report)


@pytest.mark.parametrize("order", ["fifo", "unordered"])
def test_weaker_orders_are_caught(order: str) -> None:
    """With a cycle that a person can read: at most six edges."""
    caught = 0
    for seed in range(4):
        history = clients(order, seed)
        report = check(history, TRANSACTIONAL)
        cases.judged(history, report)
        found = report.counterexample()
        if not report.levels["TCC"] and found is not None and found.edges:
            assert len(found.edges) <= 6
            assert any(end in story(report) for end in ("would commit before itself", "before the initial state"))
            caught += 1
    assert caught
