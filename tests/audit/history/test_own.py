"""Our own orders: registers replicated over each of them, and what their clients saw.

Every process owns one register, which only it writes: publishing an event writes it, delivering one applies it. A
client at each process reads, after every delivery, the register that changed and then all it has seen so far. With one
writer a register there are no concurrent writes of a key, so causal delivery without gaps makes the history causally
consistent (TCC); with less, an effect is read without its cause.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.audit.history import cases
from tests.lab.sim.runs import simulate
from whence.audit.history import History, Op, Transaction, check
from whence.audit.history.levels import TRANSACTIONAL
from whence.audit.history.model import settle
from whence.audit.history.story import story
from whence.audit.trace import Row


def client_history(rows: Iterable[Row], file: str) -> History:
    """What clients saw: a session for each member, a transaction for each step."""
    registers: dict[str, dict[str, str]] = {}
    txns: list[Transaction] = []
    for row in rows:
        if row.kind not in ("publish", "deliver"):
            continue
        assert row.origin is not None and row.event is not None
        mine = registers.setdefault(row.member, {})
        txn = Transaction(row.member, str(len(txns)), recorded=len(txns))
        if row.kind == "publish":
            txn.ops.append(Op(True, row.origin, row.event))
        mine[row.origin] = row.event
        if row.kind == "deliver" and row.origin != row.member:
            names = dict.fromkeys([row.origin, *mine])
            txn.ops += [Op(False, name, mine[name]) for name in names]
        if txn.ops:
            txns.append(txn)
    return settle(file, txns)


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
    return client_history(simulate(SCENARIO.format(order=order), seed).rows, f"{order}-{seed}")


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
