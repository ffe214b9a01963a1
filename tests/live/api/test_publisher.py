"""The publisher: tickets come and go, and every event is published once, in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import whence
from tests.live.net.live import LIMIT, assert_causal, collect, fast, run, say, several, until
from whence.audit.trace import MemoryTrace
from whence.core.clock.event import FRAME_EVENTS
from whence.core.ports import Coordinate, Resign
from whence.errors import ClusterClosed, NoTicket, UsageError
from whence.live.publisher import PART_FRAMES
from whence.testing import MemoryNetwork


async def lose_ticket(net: MemoryNetwork, loser: whence.Cluster, *others: whence.Cluster) -> None:
    """Cut it off until its lease has expired."""
    net.cut([loser.address], [other.address for other in others])
    await until(lambda: not loser.may_publish, "the lease expires")
    net.heal()


def test_it_survives_the_loss_of_its_ticket_and_publishes_each_event_once_in_order(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        net, trace = MemoryNetwork(), MemoryTrace()
        common = {"transport": net, "settings": fast(), "trace": trace, "order": "reliable"}
        async with several("lobby", 3, **common) as (a, b, c), b.publisher() as publisher, c.publisher() as other:
            await other.ready()
            ids: list[str] = []
            for n in range(30):
                if n in (10, 20):
                    await lose_ticket(net, b, a, c)
                ids.append(await publisher.publish(b"%d" % n))
            for cluster in (a, c):
                events = await collect(cluster, 30)
                assert [e.payload for e in events] == [b"%d" % n for n in range(30)]
                assert [e.id for e in events] == ids
            assert len({(e.frame.ticket, e.frame.inc) for e in events}) == 3, "under three tickets, one after the other"
            assert publisher.published == 30
        assert_causal(trace)

    with caplog.at_level(logging.WARNING, "whence"):
        run(main())
    said = [r.getMessage() for r in caplog.records]
    assert sum("is lost" in s and "publishing waits for another" in s for s in said) >= 2
    assert sum("publishing goes on" in s for s in said) >= 2


async def test_who_waits_for_a_ticket_publishes_as_soon_as_its_past_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody has the last event of the ticket's former owner; nothing else happens that would wake the publisher."""
    monkeypatch.setattr("whence.live.publisher.IDLE_NS", 1 << 62)  # nobody gives way
    net = MemoryNetwork()
    async with (
        several("lobby", 4, transport=net, settings=fast(), tickets=3) as (a, b, c, d),
        AsyncExitStack() as stack,
    ):
        for owner in (a, b, c):
            publisher = await stack.enter_async_context(owner.publisher())
            await publisher.ready()
        await until(lambda: len(a.coordinators()) == 3, "all tickets are taken")
        lose = net.lose
        net.lose = lambda s, t, reliable: (s == c.address and not reliable) or lose(s, t, reliable)  # type: ignore[method-assign]
        await publisher.publish(b"nobody has it, but the ring knows of it")
        await asyncio.sleep(1)
        c.abandon()
        waiting = await stack.enter_async_context(d.publisher())
        call = asyncio.create_task(waiting.publish(b"x"))
        await until(lambda: d.may_publish, "its ticket")
        await asyncio.sleep(0.01)
        assert call.done() and d.stats()["order.skipped"] == 1


async def test_concurrent_calls_keep_their_order_across_a_loss() -> None:
    net = MemoryNetwork()
    async with several("lobby", 2, transport=net, settings=fast()) as (a, b), b.publisher() as publisher:
        await publisher.ready()
        many = [b"%d" % n for n in range(3 * PART_FRAMES * FRAME_EVENTS)]
        calls = [asyncio.create_task(publisher.publish_many(many))]
        await asyncio.sleep(0)  # its first part is accepted
        b._node.feed(Resign())
        single = [b"later %d" % n for n in range(20)]
        calls += [asyncio.create_task(publisher.publish_many([payload])) for payload in single[:10]]
        await until(lambda: b._node.ticket is None)
        assert 0 < publisher.published < len(many)
        b._node.feed(Coordinate())
        calls += [asyncio.create_task(publisher.publish_many([payload])) for payload in single[10:]]
        ids = [name for names in await asyncio.wait_for(asyncio.gather(*calls), LIMIT) for name in names]
        events = await collect(a, len(many) + 20)
        assert [e.payload for e in events] == [*many, *single]
        assert [e.id for e in events] == ids


@pytest.mark.parametrize("order", ["causal", "probabilistic"])
async def test_a_publish_that_need_not_wait_does_not_suspend_until_a_frame_is_full(order: str) -> None:
    def turns(call: Coroutine[Any, Any, str]) -> tuple[int, str]:
        """How often a call suspends if nothing else happens meanwhile; 0 or 1 are told apart."""
        try:
            call.send(None)
        except StopIteration as done:
            return 0, done.value
        with pytest.raises(StopIteration) as over:
            call.send(None)
        return 1, over.value.value

    net = MemoryNetwork()
    common = {"transport": net, "settings": fast(), "order": order}
    async with several("lobby", 3, **common) as (a, b, c), b.publisher() as publisher:
        await publisher.ready()
        ids, suspended = [], []
        for n in range(3):
            await asyncio.sleep(0.3)  # the lease is renewed, rounds pass
            await publisher.publish(b"first of turn %d" % n)  # after a look at the time, which may take a turn
            before = len(ids)
            while not suspended or len(suspended) == n:
                times, name = turns(publisher.publish(b"%d" % len(ids)))
                ids.append(name)
                if times:
                    suspended.append(len(ids) - before)
            await asyncio.sleep(0)
        assert suspended == [FRAME_EVENTS - 1] * 3, "only the one that filled the frame"
        for cluster in (a, c):
            events = [e for e in await collect(cluster, len(ids) + 3) if not e.payload.startswith(b"first")]
            assert [e.id for e in events] == ids
            assert len({e.frame for e in events}) == 3


async def test_a_loop_of_publishes_leaves_turns_of_the_loop_to_others() -> None:
    async with whence.create("lobby", transport=MemoryNetwork(), settings=fast()) as a, a.publisher() as publisher:
        await publisher.ready()
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        task = asyncio.create_task(other())
        for n in range(20 * FRAME_EVENTS):
            await publisher.publish(b"%d" % n)
        assert turns >= 19, "one for each frame, after the first"
        task.cancel()


async def test_a_payload_is_bytes() -> None:
    async with whence.create("lobby", transport=MemoryNetwork(), settings=fast()) as a, a.publisher() as publisher:
        for payload, wrong in (("text", r"not str.*encode\(\)"), ({"a": 1}, "not dict"), (5, "not int")):
            with pytest.raises(UsageError, match=wrong):
                await publisher.publish(payload)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="list of payloads"):
            await publisher.publish_many(b"abc")  # type: ignore[arg-type]
        await publisher.publish_many([bytearray(b"1"), memoryview(b"2")])  # type: ignore[list-item]
        assert [e.payload for e in await collect(a, 2)] == [b"1", b"2"]


async def test_outside_its_block_a_publisher_is_an_error_also_at_the_creator() -> None:
    async with whence.create("lobby", transport=MemoryNetwork(), settings=fast()) as a:
        publisher = a.publisher()
        with pytest.raises(UsageError, match="inside the block"):
            await publisher.publish(b"too early")
        async with publisher, a.publisher() as other:
            await publisher.publish(b"1")
            await other.publish(b"2")
        assert a.may_publish, "the founder keeps its ticket"
        with pytest.raises(UsageError, match="inside the block"):
            await publisher.publish(b"too late")
        async with a.publisher() as open_publisher:
            pass_on = asyncio.create_task(open_publisher.publish_many([b"3"] * 10))
            a.abandon()
            with pytest.raises(ClusterClosed):
                await pass_on


async def test_a_cancelled_publish_is_out_or_it_is_not_and_published_tells(tmp_path: Path) -> None:
    async with (
        whence.create("lobby", transport=MemoryNetwork(), settings=fast(), directory=tmp_path) as a,
        a.publisher() as publisher,
    ):
        early = asyncio.create_task(publisher.publish(b"never"))
        await asyncio.sleep(0)  # it waits for the ticket
        early.cancel()
        with pytest.raises(asyncio.CancelledError):
            await early
        assert publisher.published == 0
        await publisher.ready()
        late = asyncio.create_task(publisher.publish(b"out", durable=True))
        while not publisher.published:
            await asyncio.sleep(0)
        late.cancel()  # it waits for the journal
        with pytest.raises(asyncio.CancelledError):
            await late
        assert publisher.published == 1
        await publisher.publish(b"next")
        assert [e.payload for e in await collect(a, 2)] == [b"out", b"next"]


async def test_the_ordinary_loop_with_a_burst_larger_than_the_queue() -> None:
    """`async for event: await publish(answer)`: publishing must not wait for the reader that waits for it."""
    net, trace = MemoryNetwork(), MemoryTrace()
    common = {"transport": net, "trace": trace, "order": "reliable"}
    async with (
        whence.create("lobby", settings=fast(), **common) as a,
        whence.join("lobby", [a.address], settings=fast(queue_events=20), **common) as b,
        whence.join("lobby", [a.address], settings=fast(), **common) as c,
    ):

        async def answer() -> None:
            async with b.publisher() as publisher:
                answered = 0
                async for event in b.events():
                    if event.origin == a.me:
                        await asyncio.wait_for(publisher.publish(b"re " + event.payload), LIMIT)
                        answered += 1
                    if answered == 200:
                        return

        answering = asyncio.create_task(answer())
        await say(a, *(b"%d" % n for n in range(200)))
        await asyncio.wait_for(answering, LIMIT)
        events = await collect(c, 400)
        assert [e.payload for e in events if e.origin == b.me] == [b"re %d" % n for n in range(200)]
    assert_causal(trace)


async def test_waiting_for_an_event_with_a_time_limit_leaves_nothing_behind() -> None:
    async with whence.create("lobby", transport=MemoryNetwork(), settings=fast()) as a:
        events = a.events()
        for _ in range(50):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(events), 0.001)
        assert not a._node.changed.waiting


async def test_reading_does_not_suspend_while_events_are_here_and_batches_hold_many_frames() -> None:
    net = MemoryNetwork()
    async with several("lobby", 3, transport=net, settings=fast()) as (a, b, c), b.publisher() as publisher:
        readers, ids = [a.events(), c.events()], []  # from now on nothing is thrown away
        for n in range(30):
            ids.append(await publisher.publish(b"%d" % n))
            if n % 3 == 2:
                await asyncio.sleep(0.01)  # three events a frame
        await until(lambda: all(len(reader.waiting()) == 30 for reader in readers))
        got = [(await anext(readers[0])).payload]  # may let the loop turn: it has not been asked for some time
        for _ in range(29):
            with pytest.raises(StopIteration) as done:
                readers[0].__anext__().send(None)
            got.append(done.value.value.payload)
        assert got == [b"%d" % n for n in range(30)]
        first = await anext(readers[1])  # the batch begins within a frame
        read, sizes = [first], []
        async for batch in c.batches(frames=4):
            sizes.append(len(batch))
            assert batch.payloads == [event.payload for event in batch] and batch.origins() == [b.me]
            read += batch
            if len(read) == 30:
                break
        assert sizes == [11, 12, 6] and batch[-1] == read[-1] and batch[1:3] == read[-5:-3]
        assert [event.payload for event in read] == got
        assert [event.id for event in read] == ids
        with pytest.raises(UsageError, match="1 frame or more, not 0"):
            c.batches(0)


async def test_calls_that_wait_share_a_turn_of_the_loop() -> None:
    """Ten tasks on one publisher fill frames as one does: no call waits for the turn of another."""
    net = MemoryNetwork()
    async with whence.create("live", "a:1", transport=net, settings=fast()) as a, a.publisher() as publisher:
        await publisher.ready()

        async def read() -> None:
            async for _ in a.events():
                pass

        reader = asyncio.create_task(read())
        ids: list[str] = []

        async def speak(name: int) -> None:
            for number in range(50):
                ids.extend(await publisher.publish_many([b"%d %d %d" % (name, number, i) for i in range(20)]))

        before = a.stats()["net.steps"]
        await asyncio.gather(*map(speak, range(10)))
        assert len(set(ids)) == publisher.published == 10_000
        assert a.stats()["net.steps"] - before < 40  # 10,000 events are 20 full frames
        reader.cancel()


@pytest.mark.parametrize("tickets", [1, 2])
async def test_whoever_idles_gives_the_ticket_to_whoever_waits(tickets: int) -> None:
    """Worker nine of nine used to publish never. A busy owner keeps its ticket."""
    trace = MemoryTrace()
    common = {"transport": MemoryNetwork(), "settings": fast(), "trace": trace, "tickets": tickets, "order": "reliable"}
    async with several("lobby", 5, **common) as clusters, AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(cluster.publisher(timeout=60)) for cluster in clusters]
        for n in range(3):
            for k, worker in enumerate(workers):
                await worker.publish(b"%d/%d" % (n, k))
        for cluster in clusters:
            found = sorted(event.payload for event in await collect(cluster, 15))
            assert found == [b"%d/%d" % (n, k) for n in range(3) for k in range(5)]
        assert sum(cluster.silent_since is not None for cluster in clusters) == 0, "nobody wants what nobody uses"

        async def busy() -> None:
            while True:
                await workers[-1].publish(b"busy")
                await asyncio.sleep(0.5)

        talking, kept = asyncio.create_task(busy()), clusters[-1]._node.incarnation
        if tickets == 1:
            with pytest.raises(NoTicket, match="all 1 tickets are taken"):
                await workers[0].publish(b"x")
            assert clusters[0].silent_since is not None
        else:
            await workers[0].publish(b"x")
            await workers[1].publish(b"x")
        assert clusters[-1]._node.incarnation == kept
        talking.cancel()
        await workers[-1].ready()
        async with clusters[-1].publisher(keep=True):
            await asyncio.sleep(5)
            for worker in workers[:-1]:
                await worker.publish(b"x") if tickets == 2 else None
            assert clusters[-1]._node.incarnation == kept
    assert_causal(trace)
