"""The API that applications write against, over a network in memory: what it promises, how it names misuse."""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import whence
from tests.live.net.live import LIMIT, assert_causal, collect, fast, several, until
from whence.audit.trace import MemoryTrace
from whence.errors import ClusterClosed, ConfigError, NoTicket, NotJoined, TimedOut, UsageError
from whence.live.api import Options
from whence.live.events import Events
from whence.live.net.queues import Changes
from whence.testing import MemoryNetwork


async def test_events_arrive_in_causal_order_at_all_members() -> None:
    net, trace = MemoryNetwork(), MemoryTrace()
    common = {"transport": net, "settings": fast(), "trace": trace}
    async with several("lobby", 3, **common) as (a, b, c):
        async with a.publisher() as cause, b.publisher() as effect:
            first = await cause.publish(b"question")
            [seen] = await collect(b, 1)
            assert (seen.id, seen.payload, seen.origin) == (first, b"question", a.me)
            second = await effect.publish(b"answer")
            for cluster in (a, c):
                events = await collect(cluster, 2)
                assert [e.id for e in events] == [first, second]
                assert [e.payload for e in events] == [b"question", b"answer"]
                assert not any(e.over_gap for e in events)
                assert events[1].frame.ticket == effect.ticket
        await until(lambda: all(len(x.members()) == 3 for x in (a, b, c)), "everybody knows everybody")
        assert a.members()[0] == a.me
        await until(lambda: list(c.coordinators().values()) == [a.me], "only the founder keeps its ticket")
    assert_causal(trace)
    assert {r.kind for r in trace.rows} >= {"join", "publish", "deliver", "ticket", "snapshot", "leave"}


@pytest.mark.parametrize("ballast", [0, 5 << 20], ids=["small", "in parts"])
async def test_a_late_joiner_gets_state_and_exactly_the_events_after_it(ballast: int) -> None:
    class App:
        def __init__(self) -> None:
            self.seen: list[bytes] = []

        def state(self) -> bytes:
            return bytes(ballast) + b"\n".join(self.seen)

        def restore(self, state: bytes) -> None:
            assert state[:ballast] == bytes(ballast)
            self.seen = state[ballast:].split(b"\n") if state else []

        async def read(self, cluster: whence.Cluster) -> None:
            async for event in cluster.events():
                self.seen.append(event.payload)
                await asyncio.sleep(0)  # a state taken here would be right; one taken before the append would not

    net, trace = MemoryNetwork(), MemoryTrace()
    one, two = App(), App()
    common = {"transport": net, "settings": fast(), "trace": trace}
    async with whence.create("lobby", state=one.state, restore=one.restore, **common) as a:
        reader = asyncio.create_task(one.read(a))
        async with a.publisher() as seat:
            stop = asyncio.Event()

            async def talk() -> int:
                n = 0
                while not stop.is_set():
                    await seat.publish(b"%d" % n)
                    await asyncio.sleep(0)  # as slowly as the application reads
                    n += 1
                return n

            talker = asyncio.create_task(talk())
            await until(lambda: len(one.seen) > 20)
            async with whence.join("lobby", [a.address], state=two.state, restore=two.restore, **common) as b:
                begun = len(two.seen)
                assert begun > 20, "the snapshot brought what was before"
                second = asyncio.create_task(two.read(b))
                await until(lambda: len(two.seen) > begun + 20)
                stop.set()
                total = await talker
                await until(lambda: len(one.seen) == total and len(two.seen) == total)
                assert one.seen == two.seen == [b"%d" % n for n in range(total)]
                second.cancel()
        reader.cancel()
    assert_causal(trace)


async def test_publishes_of_one_moment_share_a_frame_and_ids_are_in_order() -> None:
    async with whence.create("lobby", transport=MemoryNetwork(), settings=fast()) as a, a.publisher() as seat:
        ids = await asyncio.gather(*(seat.publish(b"%d" % i) for i in range(50)))
        ids += await seat.publish_many([b"%d" % i for i in range(50, 1500)])
        events = await collect(a, 1500)
        assert [e.id for e in events] == list(ids)
        assert [e.payload for e in events] == [b"%d" % i for i in range(1500)]
        assert len({e.frame.key for e in events}) <= 5, "a frame holds many events"
        assert await seat.publish_many([]) == []


async def test_the_ticket_is_given_back_and_can_be_had_again() -> None:
    net = MemoryNetwork()
    common = {"transport": net, "settings": fast(), "tickets": 2}
    async with several("lobby", 3, **common) as (a, b, c):
        async with b.publisher() as seat, a.publisher() as ours:
            await seat.publish(b"x")
            await ours.publish(b"else it would give way")
            with pytest.raises(NoTicket, match="all 2 tickets are taken"):
                async with c.publisher(timeout=1.0) as full:
                    await full.ready()
        assert not b.may_publish
        with pytest.raises(UsageError, match="inside the block"):
            await seat.publish(b"too late")
        async with c.publisher() as seat:
            await seat.publish(b"y")
        with pytest.raises(RuntimeError, match="oops"):
            async with c.publisher():
                raise RuntimeError("oops")
        async with b.publisher() as again:
            await again.ready()
            assert b.may_publish and not c.may_publish


async def test_whoever_cannot_join_is_told_why() -> None:
    net = MemoryNetwork()
    with pytest.raises(NotJoined, match=r"127\.0\.0\.1:99: no answer"):
        async with whence.join("lobby", ["127.0.0.1:99"], transport=net, timeout=0.3):
            pass
    async with whence.create("lobby", transport=net, settings=fast()) as a:
        with pytest.raises(NotJoined, match="is not in it"):
            async with whence.join("cellar", [a.address], transport=net, timeout=0.3):
                pass
    assert not net.hosts, "whoever failed to join listens no more"


async def test_misuse_is_named() -> None:
    net = MemoryNetwork()
    with pytest.raises(UsageError, match="insecure=True"):
        whence.create("lobby")
    with pytest.raises(UsageError, match="loopback"):
        whence.create("lobby", listen="192.0.2.1:0", insecure=True)
    with pytest.raises(UsageError, match="advertise"):
        whence.create("lobby", listen="0.0.0.0:0", secret=b"0" * 32)
    with pytest.raises(UsageError, match="one of secret"):
        whence.create("lobby", secret=b"0" * 32, insecure=True)
    with pytest.raises(UsageError, match="transport"):
        whence.create("lobby", transport="pigeon", insecure=True)
    with pytest.raises(UsageError, match="not an address"):
        whence.create("lobby", listen="nowhere", insecure=True)
    with pytest.raises(ConfigError, match="order"):
        whence.create("lobby", order="alphabetical", transport=net)
    with pytest.raises(ConfigError, match="no 'fanuot'; did you mean 'fanout'"):
        whence.create("lobby", transport=net, settings={"fanuot": 3})
    with pytest.raises(ConfigError, match=r"not 'p\.toml'"):
        whence.create("lobby", transport=net, settings="p.toml")
    with pytest.raises(UsageError, match="no option 'secrte'; did you mean 'secret'"):
        whence.create("lobby", secrte=b"0" * 32)
    with pytest.raises(UsageError, match=r"needs a contact.*whence\.create"):
        whence.join("lobby", [], transport=net)
    with pytest.raises(UsageError, match="not an address"):
        whence.join("lobby", ["nowhere"], transport=net)
    with pytest.raises(UsageError, match="Host"):
        whence.create("lobby", host=whence.Host(transport=net), secret=b"0" * 32)
    async with whence.create("lobby", transport=net, settings=fast()) as a:
        async with a.publisher() as seat:
            with pytest.raises(UsageError, match="at most"):
                await seat.publish(b"x" * (2 << 20))
            event = await seat.publish(b"small")
            assert a.why_blocked(event).state == "delivered"
        with pytest.raises(UsageError, match="not an event id"):
            a.why_blocked("nonsense")
    with pytest.raises(UsageError, match="inside the block"):
        await seat.publish(b"after the end")


async def test_events_end_with_the_cluster_and_readers_take_turns() -> None:
    async def _rest(events: Events) -> list[bytes]:
        return [event.payload async for event in events]

    async with whence.create("lobby", transport=MemoryNetwork(), settings=fast()) as a:
        async with a.publisher() as seat:
            await seat.publish_many([b"0", b"1", b"2", b"3"])
        old = a.events()
        assert (await anext(old)).payload == b"0"
        new = a.events()
        assert [(await anext(new)).payload for _ in range(2)] == [b"1", b"2"], "it goes on where the other stopped"
        with pytest.raises(UsageError, match="this reader has ended"):
            await anext(old)
        waiting = asyncio.create_task(_rest(new))
        await asyncio.sleep(0.05)
        with pytest.raises(UsageError, match="being read already"):
            a.events()
        with pytest.raises(UsageError, match="one task at a time"):
            await anext(new)
    assert await asyncio.wait_for(waiting, LIMIT) == [b"3"]


async def test_a_slow_application_holds_up_its_own_publishes_and_sheds_others() -> None:
    net, trace = MemoryNetwork(), MemoryTrace()
    common = {"transport": net, "trace": trace, "order": "reliable"}
    async with (
        whence.create("lobby", settings=fast(), **common) as a,
        whence.join("lobby", [a.address], settings=fast(queue_events=50), **common) as b,
        a.publisher() as seat,
    ):
        slow = b.events()
        reading = asyncio.create_task(collect(a, 1000))
        for n in range(100):
            await seat.publish_many([b"%d" % (10 * n + i) for i in range(10)])
            await asyncio.sleep(0)  # else these would be two large frames
        await reading
        await until(lambda: b.stats()["net.shed"] > 0, "frames are shed")
        assert b.stats()["net.backlog_events"] <= 50 + 10 + 100, "bounded"
        assert [(await anext(slow)).payload for _ in range(1000)] == [b"%d" % n for n in range(1000)], "recovered"
        slow.done()  # no event in hand: nothing published below is an answer to one
        async with b.publisher() as own:
            for _ in range(6):
                await own.publish_many([b"y"] * 10)
            stuck = asyncio.create_task(own.publish(b"z"))
            await until(lambda: b._node.backlog.full)
            assert not stuck.done()
            for _ in range(61):
                await anext(slow)
            await stuck
    assert_causal(trace)


async def test_several_clusters_share_a_host() -> None:
    net = MemoryNetwork()
    async with whence.Host(transport=net) as one, whence.Host(transport=net) as two:
        async with (
            whence.create("red", host=one, settings=fast()) as red,
            whence.create("blue", host=one, settings=fast()) as blue,
            whence.join("blue", [one.address], host=two, settings=fast()) as blue2,
        ):
            assert red.address == blue.address == one.address and one.clusters == ["red", "blue"]
            with pytest.raises(UsageError, match="already"):
                async with whence.create("red", host=one):
                    pass
            async with red.publisher() as r, blue.publisher() as b:
                await r.publish(b"red")
                await b.publish(b"blue")
                assert [e.payload for e in await collect(red, 1)] == [b"red"]
                for cluster in (blue, blue2):
                    assert [e.payload for e in await collect(cluster, 1)] == [b"blue"]
            async with whence.join("red", [one.address], host=two, settings=fast()) as late:  # interest may change
                async with red.publisher() as r:
                    await r.publish(b"again")
                assert [e.payload for e in await collect(late, 1)] == [b"again"]
        first = red.me
        async with whence.create("red", host=one, settings=fast()) as again:
            assert again.me != first, "another life"


async def test_cancellation_leaves_cleanly() -> None:
    net = MemoryNetwork()
    async with whence.create("lobby", transport=net, settings=fast()) as a:
        sits = asyncio.Event()

        async def guest() -> None:
            async with whence.join("lobby", [a.address], transport=net, settings=fast()) as b, b.publisher():
                sits.set()
                await asyncio.sleep(1000)

        task = asyncio.create_task(guest())
        await sits.wait()
        await until(lambda: len(a.coordinators()) == 2 and len(a.members()) == 2)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert task.cancelled()
        await until(lambda: len(a.coordinators()) == 1 and len(a.members()) == 1, "ticket and membership are back")
        assert list(net.hosts) == [a.address]


async def test_who_publishes_when_the_cluster_is_abandoned_does_not_wait_for_ever() -> None:
    async with whence.create("t", listen="a:1", transport=MemoryNetwork(), settings=fast()) as cluster:
        seat = await cluster.publisher().__aenter__()
        accepted = await seat.publish(b"out")  # and the node has not stepped yet
        cluster.abandon()
        assert [event.id async for event in cluster.events()] == [accepted], "what was accepted is published"
        with pytest.raises(ClusterClosed):
            await seat.publish(b"never")


def test_the_package_shows_the_api_and_nothing_else() -> None:
    assert set(dir(whence)) == {*whence.__all__, "audit", "lab", "live", "testing", "web"} and len(whence.__all__) <= 29
    for option in Options.__annotations__:
        assert re.search(rf"^ +{option} |`{option}`", whence.join.__doc__ or "", re.MULTILINE), option
    assert all(getattr(whence, name) is not None for name in whence.__all__)
    assert issubclass(whence.NoTicket, whence.WhenceError) and issubclass(whence.NoTicket, TimeoutError)
    with pytest.raises(AttributeError):
        _ = whence.nonsense
    code = "import sys, whence; assert 'asyncio' not in sys.modules; whence.join; assert 'asyncio' in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


async def test_members_come_and_go_and_can_be_awaited() -> None:
    async def _all(changes: Changes[whence.MemberChange]) -> list[whence.MemberChange]:
        return [change async for change in changes]

    net = MemoryNetwork()
    async with whence.create("lobby", transport=net, settings=fast()) as a:
        changes = a.changes()
        async with whence.join("lobby", a.address, transport=net, settings=fast()) as b:  # one contact, by itself
            assert b.members() == [b.me, a.me], "right after joining"
            assert a.created and not b.created
            came = await asyncio.wait_for(anext(changes), LIMIT)
            assert (came.member, came.change) == (b.me, "joined")
            async with whence.join("lobby", [b.address], transport=net, settings=fast()) as c:
                await a.wait_for(lambda: len(a.members()) == 3, LIMIT)
                assert (await asyncio.wait_for(anext(changes), LIMIT)).member == c.me
            gone = await asyncio.wait_for(anext(changes), LIMIT)
            assert (gone.member, gone.change) == (c.me, "gone")
            with pytest.raises(TimedOut, match=r"within 0\.05 s"):
                await a.wait_for(lambda: len(a.members()) == 9, 0.05)
        left = asyncio.create_task(a.wait_for(lambda: False))
        await asyncio.sleep(0)
        rest = asyncio.create_task(_all(changes))
    with pytest.raises(ClusterClosed):
        await left
    assert [change.member for change in await asyncio.wait_for(rest, LIMIT)] == [b.me]


async def test_who_publishes_and_never_reads_leaves_nothing_on_the_disk(tmp_path: Path) -> None:
    """Neither memory nor the journal keep what nobody asks for; after a restart the last of it is there."""
    options = {"transport": MemoryNetwork(), "settings": fast(queue_events=100), "directory": tmp_path}
    async with whence.create("lobby", "127.0.0.1:7", **options) as a, a.publisher() as publisher:
        for n in range(200):
            await publisher.publish_many([b"%d" % (20 * n + i) for i in range(20)])
        assert a.stats()["net.backlog_events"] <= 120
        kept = a._entry.journal
        assert kept is not None and sum(frame.count for frame, _ in kept._queue) <= 120
    async with whence.create("lobby", "127.0.0.1:7", **options) as a:
        first = (await collect(a, 1))[0]
        rest = await collect(a, 3999 - int(first.payload))
        assert int(first.payload) >= 3880 and rest[-1].payload == b"3999", "the last ones, each once"
