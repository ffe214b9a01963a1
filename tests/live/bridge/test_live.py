"""Bridges between live clusters: in one process over memory, and as a process that is killed."""

from __future__ import annotations

import asyncio
import errno
import os
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

import whence
from tests.live.bridge.world import Member, inversions, members
from tests.live.net.live import LIMIT, enter, fast, until
from whence.audit.judge import judge
from whence.audit.trace import read as read_trace
from whence.audit.trace.merge import CROSSINGS, copies_of, merge, merged
from whence.core.clock import address_of
from whence.core.order.survey.config import MECHANISMS
from whence.errors import CyclicTopology, DiskError, TraceError, UsageError
from whence.live.bridge import Bridge, Said, everywhere
from whence.live.net.memory import MemoryNetwork


def answer(said: Said) -> bytes | None:
    """A question from elsewhere is answered."""
    return b"answer to " + said.payload if said.payload.startswith(b"question") and said.path else None


class World:
    """Clusters of three members each, over memory; the first founds."""

    def __init__(self) -> None:
        self.stack = AsyncExitStack()
        self.net = MemoryNetwork()
        self.clusters: dict[str, list[Member]] = {}
        self.trace: Path | None = None
        self.kinds: dict[str, dict[str, Any]] = {}
        """By cluster, what is not as usual."""
        self.settings = fast()
        """For crashes: none. A busy machine that stops a process for as long as a fast ring's patience is a crash, too,
        and the ring of three would not survive both (docs/ring.md)."""

    async def __aenter__(self) -> World:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stack.aclose()

    async def cluster(self, name: str, count: int = 3) -> list[Member]:
        joins = [
            enter(
                name,
                [f"{name}0:1"] if n else [],
                f"{name}{n}:1",
                trace=self.trace,
                **self.options(name),
            )
            for n in range(count)
        ]
        self.clusters[name] = await members(self.stack, joins, [answer] * count)
        return self.clusters[name]

    def options(self, name: str, **settings: Any) -> dict[str, Any]:
        kind = self.kinds.get(name, {})
        return {"transport": self.net, **kind, "settings": {**self.settings, **kind.get("settings", {}), **settings}}

    def bridge(
        self, links: str, directory: Path | None = None, queue_events: int = 65_536, who: int | str = "", **more: Any
    ) -> Bridge:
        sides = {
            name: {
                "contacts": [f"{name}0:1"],
                "listen": f"bridge{links}{who}-{name}:1",
                **self.options(name, queue_events=queue_events),
            }
            for name in links
        }
        return Bridge(sides, directory, probe=more.pop("probe", 0.1), trace=self.trace, **more)

    async def start(self, bridge: Bridge) -> asyncio.Task[None]:
        await self.stack.enter_async_context(bridge)
        task = asyncio.create_task(bridge.run())
        self.stack.push_async_callback(_stop, task)
        await until(lambda: bridge.open or task.done(), "the bridge is open")
        if task.done():
            task.result()
        return task

    def everybody(self) -> list[Member]:
        return [member for some in self.clusters.values() for member in some]


async def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


@pytest.fixture
def world() -> World:
    return World()


def each_once(everybody: list[Member], payloads: list[bytes]) -> None:
    for member in everybody:
        found = Counter(member.payloads)
        assert found == Counter(payloads), f"{member.cluster.me} in {member.cluster.name}"


def healed(everybody: list[Member], bridges: set[str]) -> bool:
    """The ring of each cluster has done with the last crash of a bridge (at one of these addresses): the next one may
    come. A ring of few does not survive crashes in quick succession (docs/ring.md), which is no matter of bridges."""
    owners = [list(member.cluster.coordinators().values()) for member in everybody]
    dead = any(sum(address_of(owner) in bridges for owner in some) > 1 for some in owners)
    return not dead and all(member.cluster.may_publish for member in everybody)


async def all_read(everybody: list[Member], count: int) -> None:
    await until(lambda: all(len(m.payloads) >= count for m in everybody), f"{count} events everywhere")


def test_a_ledger_that_cannot_be_synced_is_not_put_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    bridge = Bridge({name: {"insecure": True} for name in ("a", "b")}, tmp_path)
    bridge._save()
    before = (tmp_path / "ledger").read_bytes()
    bridge.gateway.is_member("a", "m:1#1")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskError, match="ledger: No space left"):
        bridge._save()
    assert (tmp_path / "ledger").read_bytes() == before
    monkeypatch.undo()
    bridge._save()
    assert (tmp_path / "ledger").read_bytes() != before


async def test_question_before_answer_in_a_chain_of_three(world: World, tmp_path: Path) -> None:
    async with world:
        world.trace = tmp_path
        for name in "ABC":
            await world.cluster(name)
        first = world.bridge("AB")
        await world.start(first)
        await world.start(world.bridge("BC"))
        for n in range(5):
            world.clusters["A"][n % 3].say(everywhere(b"question %d" % n))
            world.clusters["B"][n % 3].say(b"local %d" % n)
        asked = [b"question %d" % n for n in range(5)]
        answers = [
            b"answer to question %d" % n for n in range(5) for _ in range(6)
        ]  # of three members in B, three in C
        everybody = world.everybody()
        local = {"A": 0, "B": 5, "C": 0}
        await until(
            lambda: all(len(m.payloads) == 35 + local[m.cluster.name] for m in everybody), "all is read everywhere"
        )
        for member in everybody:
            expected = [*asked, *answers, *([b"local %d" % n for n in range(5)] if member.cluster.name == "B" else [])]
            assert Counter(member.payloads) == Counter(expected)
        assert inversions([m.steps for m in everybody]) == []
        c0 = world.clusters["C"][0]
        crossed = [s for s in c0.steps if s[0] == "read" and s in world.clusters["A"][0].steps]
        assert len(crossed) == 35, "an event has one name everywhere"
        assert first.stats("A")["bridge.forwarded"] == 5 and first.stats("B")["bridge.local"] == 5
        await until(lambda: len((tmp_path / CROSSINGS).read_text().splitlines()) == 70, "35 events over two bridges")
    audit_as_one(tmp_path)


def audit_as_one(trace: Path) -> None:
    """The oracle, which knows nothing of bridges, on the clusters as one; and on the same with two deliveries of a
    member exchanged, which it has to see."""
    rows = list(merged(read_trace(trace), copies_of(trace)))
    for cluster in "ABC":
        assert judge([row for row in read_trace(trace) if row.cluster == cluster]).ok
    out = trace.with_name("all.jsonl")
    assert merge(trace, out) == 70 and list(read_trace(out)) == rows
    with pytest.raises(UsageError, match="there already"):
        merge(trace, out)
    assert not [row for row in rows if row.ticket is not None], "clusters have tickets of their own"
    report = judge(rows)
    assert report.ok and report.total.deliveries > 9 * 35, report
    c0 = next(row.member for row in rows if row.member.startswith("C/C0"))
    read = [n for n, row in enumerate(rows) if row.member == c0 and row.kind == "deliver"]
    born = {row.event: row.member for row in rows if row.kind == "publish"}
    question = next(n for n in read if born[rows[n].event or ""].startswith("A/"))
    last = read[-1]
    rows[question], rows[last] = (
        msgspec.structs.replace(rows[question], event=rows[last].event, origin=rows[last].origin),
        msgspec.structs.replace(rows[last], event=rows[question].event, origin=rows[question].origin),
    )
    assert judge(rows).total.inverted > 0


def test_a_note_that_a_kill_has_cut_short(tmp_path: Path) -> None:
    note = '{"cluster":"A","event":"e","to":"B","as":"f"}\n'
    (tmp_path / CROSSINGS).write_text(note + '{"cluster":"A","ev')
    assert copies_of(tmp_path) == {("B", "f"): ("A", "e")}
    (tmp_path / CROSSINGS).write_text('{"cluster":"A","ev\n' + note)
    with pytest.raises(TraceError, match=r":1: no crossing"):
        copies_of(tmp_path)
    assert copies_of(tmp_path / "nowhere") == {}


async def test_a_bridge_that_would_close_a_circle_is_refused_and_the_others_go_on(world: World) -> None:
    for name in "ABC":
        await world.cluster(name, 2)
    await world.start(world.bridge("AB"))
    await world.start(world.bridge("BC"))
    third = world.bridge("CA", probe=LIMIT)
    with pytest.raises(CyclicTopology, match=r"C - B - A - C"):
        async with third:
            await third.run()
    assert not third.open
    second = world.bridge("BA", probe=LIMIT)
    with pytest.raises(CyclicTopology, match=r"B - A - B"):
        async with second:
            await second.run()
    world.clusters["A"][1].say(everywhere(b"still there"))
    await all_read(world.everybody(), 1)
    each_once(world.everybody(), [b"still there"])


async def test_a_bridge_that_ends_and_comes_back_loses_and_doubles_nothing(world: World, tmp_path: Path) -> None:
    """Stopped in the middle of its work, again and again."""
    world.settings = {}
    A, B = await world.cluster("A"), await world.cluster("B")
    total = 0

    def say(count: int) -> None:
        nonlocal total
        for n in range(total, total + count):
            A[n % 3].say(everywhere(b"a%d" % n))
            B[n % 3].say(everywhere(b"b%d" % n))
        total += count

    def crossed() -> int:
        return sum(payload.startswith(b"a") for payload in B[0].payloads)

    for life in range(3):
        bridge = world.bridge("AB", tmp_path)
        await bridge.__aenter__()
        task = asyncio.create_task(bridge.run())
        await until(lambda: bridge.open or task.done(), "open", 4 * LIMIT)  # noqa: B023
        homes = {"bridgeAB-A:1", "bridgeAB-B:1"}
        await until(lambda: healed(world.everybody(), homes), "the rings have healed", 4 * LIMIT)  # noqa: B023
        before = crossed()
        say(20)
        await until(lambda: crossed() > before + 3, "some have crossed")  # noqa: B023
        if life == 1:  # as Ctrl-C does; else without a word
            await _stop(task)
        else:
            for cluster in bridge.clusters.values():
                cluster.abandon()
            await asyncio.wait([task])
        await bridge.__aexit__(None, None, None)
        say(5)  # while it is away
    await world.start(world.bridge("AB", tmp_path))
    await all_read(world.everybody(), 2 * total)
    each_once(world.everybody(), [b"%c%d" % (c, n) for n in range(total) for c in b"ab"])
    assert inversions([m.steps for m in world.everybody()]) == []


async def test_a_bridge_that_is_behind_on_both_sides_does_not_wait_for_itself(world: World) -> None:
    """With room for a few events only, and more of them in both directions than that."""
    A, B = await world.cluster("A"), await world.cluster("B")
    bridge = world.bridge("AB", queue_events=4, probe=0.5)
    await bridge.__aenter__()
    world.stack.push_async_exit(bridge)
    for n in range(300):
        A[n % 3].say(everywhere(b"a%d" % n))
        B[n % 3].say(everywhere(b"b%d" % n))
    await until(lambda: all(c.buffers()["backlog"][0] > 4 for c in bridge.clusters.values()), "both are behind")
    task = asyncio.create_task(bridge.run())
    world.stack.push_async_callback(_stop, task)
    await all_read(world.everybody(), 600)
    each_once(world.everybody(), [b"%c%d" % (c, n) for n in range(300) for c in b"ab"])


def test_what_a_bridge_cannot_keep_it_refuses(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="causal or reliable or probabilistic"):
        Bridge({"A": {"order": "fifo"}, "B": {}})
    with pytest.raises(UsageError, match="as many addresses"):
        Bridge({"A": {}, "B": {}}, servers={"A": ["a:1", "b:1"], "B": ["c:1"]})
    with pytest.raises(UsageError, match="two clusters"):
        Bridge({"A": {}})


@pytest.mark.parametrize("kind", [*MECHANISMS, "contract"])
async def test_order_is_kept_between_clusters_of_any_kind(world: World, tmp_path: Path, kind: str) -> None:
    """Tickets, a mechanism or (N, R, K) clocks, tickets with an order that blocks: a chain, judged as one."""
    async with world:
        world.trace = tmp_path
        if kind == "contract":
            world.kinds["B"] = {"order": "probabilistic", "contract": whence.Contract(entries=16, keys=1)}
        else:
            world.kinds["B"] = {"settings": {"mechanism": kind}}
        for name in "ABC":
            await world.cluster(name)
        await world.start(world.bridge("AB"))
        await world.start(world.bridge("BC"))
        for n in range(4):
            world.clusters["ABC"[n % 3]][n % 3].say(everywhere(b"question %d" % n))
        answers = [b"answer to question %d" % n for n in range(4) for _ in range(6)]
        payloads = [b"question %d" % n for n in range(4)] + answers
        await all_read(world.everybody(), len(payloads))
        each_once(world.everybody(), payloads)
        assert inversions([m.steps for m in world.everybody()]) == []
    rows = list(merged(read_trace(tmp_path), copies_of(tmp_path)))
    report = judge(rows)
    assert report.ok and report.total.deliveries > 9 * len(payloads), report
    c0 = next(row.member for row in rows if row.member.startswith("C/C0"))
    first, *_, last = [n for n, row in enumerate(rows) if row.member == c0 and row.kind == "deliver"]
    rows[first], rows[last] = (
        msgspec.structs.replace(rows[a], event=rows[b].event, origin=rows[b].origin)
        for a, b in ((first, last), (last, first))
    )
    assert judge(rows).total.inverted > 0


async def test_a_daisy_joins_groups_by_a_cluster_of_their_servers(world: World) -> None:
    """The survey's daisy: one server a group, and a causal multicast among the servers alone."""
    world.kinds = {"A": {"settings": {"mechanism": "interval"}}, "D": {"settings": {"mechanism": "vector"}}}
    for name in "ABC":
        await world.cluster(name, 2)
    await world.cluster("D", 1)
    for name in "ABC":
        await world.start(world.bridge(name + "D"))
    for name in "ABC":
        world.clusters[name][1].say(everywhere(b"question of " + name.encode()))
    asked = [b"question of " + name for name in (b"A", b"B", b"C")]
    payloads = asked + [b"answer to " + one for one in asked for _ in range(5)]
    await all_read(world.everybody(), len(payloads))
    each_once(world.everybody(), payloads)
    assert inversions([m.steps for m in world.everybody()]) == []


@pytest.mark.parametrize("kinds", [{}, {"B": {"settings": {"mechanism": "vector"}}}], ids=["tickets", "vector"])
async def test_a_server_that_dies_is_taken_over(world: World, tmp_path: Path, kinds: dict[str, Any]) -> None:
    """In the middle of its work; and when it is there again, it forwards, and nothing is read twice."""
    async with world:
        world.trace, world.kinds = tmp_path, kinds
        A, B = await world.cluster("A"), await world.cluster("B")
        servers = {name: [f"bridgeAB{n}-{name}:1" for n in (0, 1)] for name in "AB"}
        first, second = (world.bridge("AB", who=n, servers=servers) for n in (0, 1))
        await world.start(first)
        await world.start(second)
        await until(lambda: first.gateway.active and not second.gateway.active, "one forwards")
        for n in range(20):
            A[n % 3].say(everywhere(b"question %d" % n))
            B[n % 3].say(everywhere(b"b%d" % n))
        await until(lambda: len(B[0].payloads) > 22, "some have crossed")
        for cluster in first.clusters.values():
            cluster.abandon()
        await first.__aexit__(None, None, None)
        for n in range(20, 30):
            A[n % 3].say(everywhere(b"question %d" % n))
        payloads = [b"question %d" % n for n in range(30)] + [b"b%d" % n for n in range(20)]
        payloads += [b"answer to question %d" % n for n in range(30) for _ in range(3)]
        await until(lambda: all(len(m.payloads) >= len(payloads) for m in world.everybody()), "all", 8 * LIMIT)
        assert second.gateway.active and sum(s.taken_over for s in second.gateway.stats.values()) > 0
        await world.start(world.bridge("AB", who=0, servers=servers))
        await until(lambda: not second.gateway.active, "the first one forwards again")
        A[0].say(everywhere(b"last"))
        await until(lambda: all(m.payloads[-1] == b"last" for m in world.everybody()), "the last one is everywhere")
        each_once(world.everybody(), [*payloads, b"last"])
        assert inversions([m.steps for m in world.everybody()]) == []
    assert judge(merged(read_trace(tmp_path), copies_of(tmp_path))).ok


def test_the_judge_of_these_tests_can_fail() -> None:
    said = [("say", "q"), ("read", "q"), ("read", "a")]
    answered = [("read", "q"), ("say", "a"), ("read", "a")]
    assert inversions([said, answered, [("read", "q"), ("read", "a")]]) == []
    assert inversions([said, answered, [("read", "a"), ("read", "q")]]) == ["member 2 read q after a"]
