"""Objects in live clusters over the memory transport, and the replay of a recording over sockets."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import whence
from tests.live.net.live import enter, run
from tests.live.objects.recordings import small
from whence.live.api import Join
from whence.live.objects import Full, Objects
from whence.live.objects.live import Live
from whence.testing import MemoryNetwork

pytest.importorskip("pycrdt")

FAST = {"round_ns": 50_000_000}
"""Gossip is quicker than usual; the ring is not, for a busy machine must not cost a ticket."""


@asynccontextmanager
async def member(
    network: MemoryNetwork | str,
    contacts: list[str],
    name: str = "lobby",
    objects: Objects | None = None,
    **options: Any,
) -> AsyncIterator[tuple[whence.Cluster, Objects, Live]]:
    objects = objects or Objects()
    options = {"insecure": True, "tickets": 4, "settings": FAST, **options}
    if "host" in options:
        del options["insecure"]
    else:
        options["transport"] = network
    async with (
        enter(name, contacts, state=objects.state, restore=objects.restore, **options) as cluster,
        Live(objects, cluster) as live,
    ):
        yield cluster, objects, live


def plain(network: MemoryNetwork, contact: whence.Cluster) -> Join:
    """A member whose objects, if any, are its test's."""
    return whence.join("lobby", contact.address, transport=network, tickets=4, settings=FAST)


async def until(live: Live, condition: Callable[[], bool]) -> None:
    """Wait for changes until it holds."""
    changes = live.changes()
    try:
        while not condition():
            await anext(changes)
    finally:
        changes.close()


async def test_what_one_writes_the_others_see() -> None:
    network = MemoryNetwork(0.1, seed=1)
    async with AsyncExitStack() as stack:
        a, oa, la = await stack.enter_async_context(member(network, [], order="reliable"))
        _, _, lb = await stack.enter_async_context(member(network, [a.address], order="reliable"))
        c, oc, lc = await stack.enter_async_context(member(network, [a.address], order="reliable"))
        seat = await stack.enter_async_context(a.publisher())
        seen = lb.changes(lb.objects.registers("scores"))
        await la.publish(seat, oa.registers("scores").set("ann", 3), oa.counter("hits").add(2))
        change = await anext(seen)
        assert (change.name, change.key) == ("scores", "ann") and change.event and change.event.owner == a.me
        second = await stack.enter_async_context(c.publisher())
        await until(lc, lambda: oc.counter("hits").value == 2)
        text = oc.document("notes")
        await lc.publish(second, text.insert(0, "hello"), text.insert(5, " world"), oc.counter("hits").add(-5))
        for live in (la, lb, lc):
            o = live.objects
            await until(live, lambda o=o: o.document("notes").text == "hello world")  # type: ignore[misc]
            await until(live, lambda o=o: o.counter("hits").value == -3)  # type: ignore[misc]
            assert o.registers("scores").items() == [("ann", 3)] and not o.stats.malformed


async def test_a_newcomer_in_mid_stream_misses_nothing_and_sees_nothing_twice() -> None:
    """Counters show both: the snapshot is taken where the application is, not where the member is."""
    network = MemoryNetwork(0.1, seed=2)
    async with AsyncExitStack() as stack:
        a, oa, la = await stack.enter_async_context(member(network, [], order="reliable"))
        b, ob, lb = await stack.enter_async_context(member(network, [a.address], order="reliable"))
        seats = [await stack.enter_async_context(c.publisher()) for c in (a, b)]

        async def load(seat: whence.Publisher, live: Live) -> None:
            o = live.objects
            for n in range(300):
                await live.publish(seat, o.counter("hits").add(1), o.registers("last").set(live.cluster.me, n))
                text = o.document("notes")
                await live.publish(seat, text.insert(len(text.draft) // 2, "x"))
                if n % 10 == 0:
                    await asyncio.sleep(0)

        async def come() -> list[Live]:
            late = []
            for _ in range(3):
                await until(la, lambda: len(late) * 100 <= oa.counter("hits").value)
                late.append((await stack.enter_async_context(member(network, [b.address], order="reliable")))[2])
            return late

        late, _, _ = await asyncio.gather(come(), load(seats[0], la), load(seats[1], lb))
        for live in (la, lb, *late):
            o = live.objects
            await until(live, lambda o=o: o.counter("hits").value >= 600 and len(o.document("notes").text) >= 600)  # type: ignore[misc]
            assert o.counter("hits").value == 600
            assert o.registers("last").items() == sorted([(a.me, 299), (b.me, 299)])
            assert o.document("notes").text == oa.document("notes").text == "x" * 600
        assert any(live.objects.stats.restored for live in late)
        assert ob.stats.applied == 1800


async def test_changes_end_with_the_cluster_and_are_bounded() -> None:
    network = MemoryNetwork(seed=4)
    others: list[bytes] = []
    objects = Objects(limit=600)
    async with whence.create("lobby", transport=network, insecure=True, tickets=2, settings=FAST) as cluster:
        live = Live(objects, cluster, other=lambda e: others.append(e.payload))
        async with live, cluster.publisher() as seat:
            slow = live.changes(limit=2)
            await seat.publish_many([b"mine", *[objects.counter("c").add(1)] * 5])
            await until(live, lambda: objects.counter("c").value == 5)
            assert slow.missed == 3 and others == [b"mine"]
            with pytest.raises(Full):
                await live.publish(seat, objects.registers("r").set("k", "v" * 600))
        assert [c.name async for c in slow] == ["c", "c"], "and then it ends"


async def test_what_other_raises_ends_the_block() -> None:
    """It used to freeze the replica without a word."""
    network = MemoryNetwork(seed=5)

    def refuse(event: whence.Event) -> None:
        raise LookupError(event.payload.decode())

    async with AsyncExitStack() as stack:
        a, oa, la = await stack.enter_async_context(member(network, []))
        await stack.enter_async_context(member(network, [a.address]))
        c = await stack.enter_async_context(plain(network, a))
        seat = await stack.enter_async_context(a.publisher())
        for leave_early in (True, False):
            with pytest.raises(LookupError, match="no such page"):
                async with Live(Objects(), c, other=refuse) as live:
                    await seat.publish(b"no such page")
                    while not leave_early or not live.over:
                        await asyncio.sleep(10)
        assert not asyncio.current_task().cancelling(), "and the task goes on"  # type: ignore[union-attr]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1), Live(Objects(), c, other=refuse):
                await asyncio.sleep(10)
        await la.publish(seat, oa.counter("hits").add(1))


async def test_callbacks_that_are_coroutines_are_awaited_in_order() -> None:
    network = MemoryNetwork(seed=6)
    pushed: list[bytes] = []

    async def push(event: whence.Event) -> None:
        await asyncio.sleep(0.5 if event.payload == b"0" else 0)  # the first one's socket is slow
        pushed.append(event.payload)

    async with AsyncExitStack() as stack:
        a, _, _ = await stack.enter_async_context(member(network, []))
        await stack.enter_async_context(member(network, [a.address]))
        c = await stack.enter_async_context(plain(network, a))
        await stack.enter_async_context(Live(Objects(), c, other=push))
        seat = await stack.enter_async_context(a.publisher())
        await seat.publish_many([b"%d" % n for n in range(20)])
        await c.wait_for(lambda: len(pushed) == 20, 10)
        assert pushed == [b"%d" % n for n in range(20)]


async def test_whoever_has_published_reads_it_here_and_by_its_id_at_another_member() -> None:
    network = MemoryNetwork(0.2, seed=7)
    async with AsyncExitStack() as stack:
        a, oa, la = await stack.enter_async_context(member(network, [], order="reliable"))
        b, ob, lb = await stack.enter_async_context(member(network, [a.address], order="reliable"))
        seats = [await stack.enter_async_context(c.publisher()) for c in (a, b)]
        for n in range(30):
            [name] = await la.publish(seats[0], oa.registers("todo").set("milk", n))
            assert oa.registers("todo")["milk"] == n
            await lb.applied(name, timeout=20)
            assert ob.registers("todo")["milk"] == n
            await lb.publish(seats[1], ob.counter("hits").add(1))
            assert ob.counter("hits").value == n + 1
        c, oc, lc = await stack.enter_async_context(member(network, [b.address], order="reliable"))
        await lc.applied(name, timeout=5)
        assert oc.registers("todo")["milk"] == 29 and not oc.stats.applied, "it came with the state"
        network.cut([a.address], [b.address, c.address])
        [name] = await la.publish(seats[0], oa.registers("todo").set("milk", 30))
        with pytest.raises(whence.TimedOut):
            await lc.applied(name, timeout=0.5)


def example() -> Any:
    path = Path(__file__).parents[3] / "examples" / "replay_editing.py"
    spec = importlib.util.spec_from_file_location("replay_editing", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_replay_example() -> None:
    """The whole recording is a soak: `python examples/replay_editing.py PATH`."""
    rows = run(example().replay(small(), drop=0.2, watchers=2, order="reliable"))
    assert [r["role"] for r in rows] == ["author 0", "author 1", "author 2", "watcher", "watcher"]
    assert all(r["same"] and r["operations"] == 6 for r in rows)
