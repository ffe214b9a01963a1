"""Our own orders: registers replicated over each of them, and what their clients saw."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

import whence
from tests.audit.history import cases
from tests.lab.sim.runs import simulate
from tests.live.net.live import collect, fast, run
from whence.audit.history import History, check
from whence.audit.history.levels import TRANSACTIONAL
from whence.audit.history.replicas import Happened, client_history
from whence.audit.history.story import story
from whence.audit.trace import MemoryTrace, Row
from whence.testing import MemoryNetwork

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
[cluster]
tickets = 4
coordinators = 4
order = "{order}"
recovery = "Rk"
[cluster.workload]
rate = 0.6
"""


def clients(order: str, seed: int) -> History:
    rows = simulate(SCENARIO.format(order=order), seed).rows
    return client_history(steps_of(rows), f"{order}-{seed}")


def steps_of(rows: Iterable[Row]) -> list[Happened]:
    return [
        Happened(row.member, row.kind, row.event or "", row.origin or "")  # type: ignore[arg-type]
        for row in rows
        if row.kind in ("publish", "deliver")
    ]


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


def test_live_members() -> None:
    """Three live members that publish at the same time: TCC holds for their clients."""

    async def main() -> History:
        net, trace = MemoryNetwork(), MemoryTrace()
        common = {"transport": net, "settings": fast(), "trace": trace, "order": "reliable"}
        async with (
            whence.create("registers", **common) as a,
            whence.join("registers", [a.address], **common) as b,
            whence.join("registers", [a.address], **common) as c,
            a.publisher() as first,
            b.publisher() as second,
            c.publisher() as third,
        ):
            for publisher in (first, second, third):
                await publisher.ready()
            for n in range(10):
                await asyncio.gather(*(p.publish(b"%d" % n) for p in (first, second, third)))
            for cluster in (a, b, c):
                await collect(cluster, 30)
        return client_history(steps_of(trace.rows), "live")

    history = run(main())
    report = check(history, TRANSACTIONAL)
    assert report.holds, story(report)
    assert report.transactions >= 60
    cases.judged(history, report)
