"""Objects on real members, over generated schedules: loss, reordering, newcomers in mid-stream, restarts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.core.member.net import MS
from tests.live.objects.net import Holder, ObjectsNet
from whence.core.clock import precedes
from whence.live.objects import Objects, events_of
from whence.live.objects.kernel import Set, decode

pytest.importorskip("pycrdt")

Step = tuple[str, int, int]

steps: st.SearchStrategy[Step] = st.one_of(
    st.tuples(st.sampled_from(("set", "set", "delete", "add", "edit", "edit")), st.integers(0, 2), st.integers(0, 9)),
    st.tuples(st.just("run"), st.just(0), st.integers(1, 60)),
)
schedule = settings(
    max_examples=8,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # shrinking whole clusters takes minutes
)


def payload(objects: Objects, what: str, n: int) -> bytes:
    """An operation that depends on what this replica shows."""
    match what:
        case "set":
            return objects.registers("world").set(f"k{n % 3}", [objects.me, n])
        case "delete":
            return objects.registers("world").delete(f"k{n % 3}")
        case "add":
            return objects.counter("hits").add(n - 3)
        case _:
            d = objects.document("text")
            long = len(d.draft)
            at = long * n // 10
            return d.splice(at, min(2, long - at) if n % 3 == 0 else 0, f"{objects.me[1]}é{n}")


def play(net: ObjectsNet, script: list[Step]) -> int:
    """Do what the script says; the sum of all that was added."""
    total = 0
    for what, i, n in script:
        if what == "run":
            net.run(n * MS)
        elif what == "join":
            net.join(i, net[0].member.order)
        elif what == "restart":
            net.restart(i)
        elif net[i].member.may_publish:
            assert net.post(i, payload(net[i].objects, what, n))
            total += n - 3 if what == "add" else 0
    return total


def agreed(net: ObjectsNet) -> Objects:
    """The objects, which are the same everywhere."""
    holders = net.holders()
    first = holders[0].objects
    for holder in holders:
        o = holder.objects
        assert o.registers("world").items() == first.registers("world").items()
        assert o.registers("world").state() == first.registers("world").state()
        assert o.counter("hits").value == first.counter("hits").value
        d = o.document("text")
        assert (d.text, d.draft, d.dropped) == (first.document("text").text, d.text, 0)
        assert not (o.stats.malformed or o.stats.refused)
    return first


def skipped(net: ObjectsNet) -> int:
    return sum(h.member.stats()["order.skipped"] + h.member.stats()["order.late"] for h in net.holders())


@given(st.lists(steps, min_size=5, max_size=40), st.integers(0, 99))
@schedule
def test_reliable_replicas_agree_whatever_is_lost(script: list[Step], seed: int) -> None:
    net = ObjectsNet(["reliable"] * 4, loss=0.25, jitter=20, seed=seed)
    total = play(net, script)
    net.settle()
    assert agreed(net).counter("hits").value == total


@given(st.lists(steps, min_size=5, max_size=40), st.integers(0, 99))
@schedule
def test_causal_replicas_agree_when_nothing_was_skipped(script: list[Step], seed: int) -> None:
    net = ObjectsNet(["causal"] * 4, loss=0.1, jitter=20, seed=seed)
    total = play(net, script)
    net.settle()
    if not skipped(net):
        assert agreed(net).counter("hits").value == total
    else:
        assert sum(h.objects.stats.over_gap for h in net.holders()), "a replica that lost something says so"


@given(
    st.lists(steps, min_size=4, max_size=20),
    st.lists(steps, min_size=4, max_size=20),
    st.lists(steps, min_size=2, max_size=10),
    st.sampled_from(("causal", "reliable")),
    st.integers(0, 99),
)
@schedule
def test_newcomers_and_restarts_in_mid_stream(
    one: list[Step], two: list[Step], three: list[Step], order: str, seed: int
) -> None:
    """A newcomer gets a snapshot while others publish, another one perhaps from the newcomer; a member is killed and
    goes on from its disk."""
    loss = 0.2 if order == "reliable" else 0.0
    net = ObjectsNet([order] * 4, loss=loss, jitter=10, seed=seed)
    total = play(net, [*one, ("join", 5, 0), *two, ("restart", 2, 0), ("join", 6, 0), *three])
    net.settle()
    assert net[5].installed is not None and net[6].installed is not None
    assert agreed(net).counter("hits").value == total
    net.run(30_000 * MS)
    assert net[2].member.may_publish, "the restarted member has its ticket back"
    total += play(net, [("add", 2, 9), ("edit", 2, 4), ("edit", 2, 9), ("set", 2, 1)])
    net.settle()
    assert agreed(net).counter("hits").value == total


@pytest.mark.parametrize("order", ["fifo", "unordered"])
def test_weaker_orders_agree_on_registers_and_counters_when_nothing_is_lost(order: str) -> None:
    net = ObjectsNet([order] * 4, loss=0.0, jitter=60, seed=3, recovery="Rk")
    script: list[Step] = [
        ("run", 0, 3) if n % 4 == 3 else (("set", "add", "delete", "set")[n * 7 % 4], n % 3, n % 10) for n in range(80)
    ]
    total = play(net, script)
    net.settle()
    assert not skipped(net)
    states = {h.objects.state() for h in net.holders()}
    assert len(states) == 1 and net[0].objects.counter("hits").value == total


def writes(holder: Holder) -> list[tuple[Any, Any, Set]]:
    found = []
    for frame in holder.frames:
        for event in events_of(frame):
            op = decode(event.payload)
            if isinstance(op, Set):
                found.append((event.stamp, frame.timestamp(event.stamp.seq), op))
    return found


def test_a_later_write_in_causal_order_always_wins() -> None:
    """Three publishers write the same registers, some having seen each other's writes and some not; by the vectors."""
    net = ObjectsNet(["causal"] * 4, jitter=30, seed=7)
    play(net, [("set", n % 3, n * 7 % 10) if n % 5 else ("run", 0, 20 + n % 40) for n in range(60)])
    net.settle()
    agreed(net)
    all_ = writes(net[3])
    concurrent = 0
    for at, t, op in all_:
        for other, u, op2 in all_:
            if op.key == op2.key and precedes(t, u):
                assert at < other
            elif op.key == op2.key and at != other and not precedes(u, t):
                concurrent += 1
    assert concurrent, "the schedule must have concurrent writes, or it shows nothing"
    for key in ("k0", "k1", "k2"):
        last = max(w for w in all_ if w[2].key == key)
        assert not any(precedes(last[1], u) for _, u, op in all_ if op.key == key)
        assert net[0].objects.registers("world").written(key) == last[0]
