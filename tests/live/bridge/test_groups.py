"""Groups that share members: one clock entry for each, and causal order across them."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import whence
from tests.live.bridge.world import Step, inversions
from tests.live.net.live import enter, fast, until
from whence.audit.judge import judge
from whence.audit.trace import MemoryTrace
from whence.core.order.overlap import MAX_GROUPS, Overlap, Past, Waiting
from whence.errors import UsageError
from whence.live import Groups, Reader
from whence.live.bridge.envelope import Amid, unwrap
from whence.testing import MemoryNetwork

SHARED = {"AB": "p", "BC": "q", "CA": "r"}
"""Who is in which two of three groups: each pair shares one process, and no process is in all."""


class Party:
    """One process in two groups, whose application answers what it reads in the other group."""

    def __init__(self, groups: Groups, publishers: list[whence.Publisher]) -> None:
        self.groups, self.publishers = groups, publishers
        self.steps: list[Step] = []
        self.own: set[str] = set()
        self.turn = asyncio.Lock()

    async def say(self, at: int, payload: bytes) -> None:
        async with self.turn:
            before = len(self.steps)
            event = await self.groups.publish(self.publishers[at], payload)
            name = f"{self.publishers[at].node.cluster}/{event}"
            self.own.add(name)
            self.steps[before:before] = [("say", name), ("read", name)]

    async def listen(self) -> None:
        async for said in self.groups.events():
            name = f"{said.cluster}/{said.id}"
            if name not in self.own:
                self.steps.append(("read", name))
            hops = int(said.payload)
            if hops and name not in self.own:
                other = next(i for i, p in enumerate(self.publishers) if p.node.cluster != said.cluster)
                await self.say(other, b"%d" % (hops - 1))


async def parties(stack: AsyncExitStack, tickets: int, trace: MemoryTrace, slow: dict[str, Any]) -> list[Party]:
    made: list[Party] = []
    for names, who in SHARED.items():
        clusters = []
        for name in names:
            first = next(p for pair, p in SHARED.items() if name in pair)
            contacts = [] if who == first else [f"{first}{name}:1"]
            settings = fast(**(slow if name == "C" else {}))
            join = enter(name, contacts, f"{who}{name}:1", settings=settings, tickets=tickets, order="reliable", **NET)
            clusters.append(await stack.enter_async_context(join))
        groups = await stack.enter_async_context(Groups(*clusters, trace=trace))
        publishers = [await stack.enter_async_context(c.publisher(wait_for_reader=False)) for c in clusters]
        party = Party(groups, publishers)
        made.append(party)
        task = asyncio.create_task(party.listen())
        stack.callback(task.cancel)
    return made


NET: dict[str, Any] = {}


@pytest.mark.parametrize("tickets", [1, 3])
async def test_order_is_kept_across_groups_that_share_members(tickets: int) -> None:
    """Around a circle of groups, which bridges would refuse: an event of one group, an answer in the next, an answer to
    that in the third, where its second member has to have the first."""
    trace = MemoryTrace()
    NET["transport"] = MemoryNetwork()
    async with AsyncExitStack() as stack:
        some = await parties(stack, tickets, trace, {"mode": "rounds", "round_ns": 400_000_000})
        for n in range(6):
            await some[n % 3].say(n % 2, b"4")
        each = 6 * 5  # every event is in a group of two, and its answers go on from the other one
        await until(lambda: sum(len(p.own) for p in some) == each, "all have answered")
        await until(lambda: sum(len(p.steps) for p in some) == 3 * each, "all is read")
        assert inversions([p.steps for p in some]) == []
        assert all(p.groups.overlap.forced == 0 and len(p.groups.overlap) == 0 for p in some)
        if tickets == 1:
            assert {len(past) for p in some for past in p.groups.overlap.needs("").values()} == {1}
    report = judge(trace.rows)
    assert report.ok and report.total.deliveries == 2 * each, report


async def test_a_member_that_does_not_take_part_reads_the_payload_and_others_are_refused() -> None:
    net = MemoryNetwork()
    async with (
        whence.create("A", "a:1", transport=net, settings=fast()) as a,
        whence.create("B", "b:1", transport=net, settings=fast()) as b,
        whence.create("C", "c:1", transport=net, settings=fast(mechanism="vector")) as c,
    ):
        async with Groups(a, b) as groups, a.publisher() as publisher:
            await groups.publish(publisher, b"hello")
            said = await anext(groups.events())
            assert (said.cluster, said.payload) == ("A", b"hello")
        with pytest.raises(UsageError, match="C has no tickets"):
            Groups(a, c)
        with pytest.raises(UsageError, match="two clusters"):
            Groups(a)
        async with b.publisher() as publisher:
            await publisher.publish(b"\x01whence:[6,[]]\x02plain")
        heading, _ = unwrap((await anext(b.events())).payload)
        assert heading == Amid(())
        read = Reader("B").read("1:0.0.0:1@b:1#1", b"\x01whence:[6,[]]\x02plain")
        assert read is not None and read.payload == b"plain"


def past(*entries: int) -> Past:
    return tuple((1, n) for n in entries)


def test_what_does_not_come_is_given_up_after_a_while() -> None:
    overlap = Overlap({"A": past(0), "B": past(0)}, 10)
    first = Waiting("A", 0, past(1), {"B": past(2)}, "a1")
    assert overlap.receive(first, 0) == [] and overlap.wake_at == 10
    assert overlap.receive(Waiting("A", 0, past(2), {}, "a2"), 5) == [], "one ticket: in their order"
    assert [e.what for e in overlap.receive(Waiting("B", 0, past(1), {"Z": past(7)}, "b1"), 6)] == ["b1"]
    assert overlap.wake(9) == [] and [e.what for e in overlap.wake(10)] == ["a1", "a2"]
    assert overlap.forced == 1 and len(overlap) == 0 and overlap.wake_at is None
    assert overlap.needs("A") == {"B": past(2), "Z": past(7)}, "what others know goes on"
    for n in range(2 * MAX_GROUPS):
        overlap.receive(Waiting("B", 0, past(3 + n), {f"Z{n}": past(1)}, ""), 20)
    assert len(overlap.needs("")) == MAX_GROUPS and f"Z{2 * MAX_GROUPS - 1}" in overlap.needs("")


@given(st.integers(0, 2**32), st.integers(3, 5))
def test_any_delays_between_any_groups(seed: int, count: int) -> None:
    """Groups of one row of events each, every process in two of them; a process gets the rows at any speed."""
    dice = random.Random(seed)
    member = [(n, (n + 1) % count) for n in range(count)]
    rows: list[list[Waiting]] = [[] for _ in range(count)]
    parties = [Overlap({f"{g}": past(0) for g in pair}, 10**9) for pair in member]
    cursors = [dict.fromkeys(pair, 0) for pair in member]
    logs: list[list[Step]] = [[] for _ in range(count)]
    for n in range(120):
        who = dice.randrange(count)
        overlap, cursor = parties[who], cursors[who]
        g = dice.choice(member[who])
        if n < 80 and dice.random() < 0.4 and cursor[g] == len(rows[g]) and not len(overlap):
            event = Waiting(f"{g}", 0, past(len(rows[g]) + 1), overlap.needs(f"{g}"), f"{g}:{n}")
            rows[g].append(event)
            cursor[g] += 1
            overlap.published(f"{g}", 0, event.stamp[0])
            logs[who].append(("say", event.what))
            overlap.receive(event, 0)
        elif cursor[g] < len(rows[g]):
            event = rows[g][cursor[g]]
            cursor[g] += 1
            logs[who] += [("read", e.what) for e in overlap.receive(event, 0)]
    for who, overlap in enumerate(parties):
        for g in member[who]:
            for event in rows[g][cursors[who][g] :]:
                logs[who] += [("read", e.what) for e in overlap.receive(event, 0)]
        assert len(overlap) == 0, "nothing waits for ever"
    assert inversions(logs) == []


def test_without_the_entries_order_across_groups_breaks() -> None:
    asked, answered = Waiting("A", 0, past(1), {}, "q"), Waiting("B", 0, past(1), {}, "a")
    overlap = Overlap({"A": past(0), "B": past(0)}, 10)
    assert [e.what for e in [*overlap.receive(answered, 0), *overlap.receive(asked, 0)]] == ["a", "q"]
