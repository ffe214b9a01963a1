"""A slow disk: what has to be on it first waits, and nothing else does."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import whence
from tests.live.net.live import LIMIT, assert_causal, collect, fast, until
from whence.audit.trace import MemoryTrace
from whence.core.clock import Frame
from whence.core.ports import Deliver
from whence.errors import ClusterClosed, DiskError, UsageError
from whence.live.net import entry, outbox, scribe
from whence.live.net.council import CouncilStatus
from whence.live.net.disk import Files, Journal
from whence.live.net.scribe import SAVE_BYTES, Scribe, in_thread
from whence.testing import MemoryNetwork


class Gate:
    """A disk that takes its time: jobs wait until it is opened."""

    def __init__(self) -> None:
        self.shut = False
        self.seconds = 0.0
        self.waiting: list[tuple[Callable[[], None], Callable[[BaseException | None], None]]] = []

    def run(self, job: Callable[[], None], over: Callable[[BaseException | None], None]) -> None:
        if self.seconds:
            asyncio.get_running_loop().call_later(self.seconds, scribe.inline, job, over)
        elif self.shut:
            self.waiting.append((job, over))
        else:
            scribe.inline(job, over)

    def open(self) -> None:
        self.shut = False
        while self.waiting:
            scribe.inline(*self.waiting.pop(0))


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    """The disk of every cluster in memory."""
    made = Gate()
    monkeypatch.setattr(entry, "inline", made.run)
    return made


async def three_voters(cluster: whence.Cluster) -> None:
    """Then one whose disk stands still is one of three. As one of two it would stop the ring, as its crash would."""
    await until(lambda: cluster.council is not None and len(cluster.council.voters) == 3, "three voters")


async def test_a_member_with_a_slow_disk_keeps_its_ticket_and_others_are_served(
    tmp_path: Path, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    def said(what: str) -> int:
        return caplog.text.count(what)

    net, trace = MemoryNetwork(), MemoryTrace()
    common = {"transport": net, "settings": fast(), "trace": trace}
    async with (
        whence.create("lobby", **common) as a,
        whence.join("lobby", [a.address], directory=tmp_path, **common) as b,
        whence.join("lobby", [a.address], **common) as c,
        a.publisher() as ours,
        b.publisher() as seat,
    ):
        await until(lambda: len(a.coordinators()) == 2)
        await three_voters(a)
        readers = [a.events(), c.events()]
        first = await seat.publish(b"before", durable=True)
        gate.shut = True
        slow = asyncio.create_task(seat.publish(b"slow", durable=True))
        await until(lambda: bool(gate.waiting), "the disk is asked")
        inc = b._node.incarnation
        for n in range(20):
            await ours.publish(b"%d" % n)
            await asyncio.sleep(1.0)  # many times a lease, in all
        got = [(await asyncio.wait_for(anext(reader), LIMIT)).payload for reader in readers for _ in range(21)]
        assert got == 2 * [b"before", *(b"%d" % n for n in range(20))], "nobody has the event that is not on disk"
        assert b._node.incarnation == inc and b.may_publish, "the ring's messages do not wait for the disk"
        assert not slow.done() and seat.published == 2
        assert said("the disk has written nothing for 5 s") == 1 and not said("writes again")
        gate.open()
        ids = [first, await asyncio.wait_for(slow, LIMIT)]
        for reader in readers:
            assert (await asyncio.wait_for(anext(reader), LIMIT)).id == ids[1]
        assert [e.id for e in await collect(b, 22) if e.origin == b.me] == ids
        await until(lambda: said("writes again") == 1)
    assert_causal(trace)


async def test_a_voter_that_cannot_write_its_votes_counts_as_missing(tmp_path: Path, gate: Gate) -> None:
    net = MemoryNetwork()
    common = {"transport": net, "settings": fast()}
    async with (
        whence.create("lobby", **common) as a,
        whence.join("lobby", [a.address], directory=tmp_path, **common) as b,
        whence.join("lobby", [a.address], **common) as c,
        a.publisher() as ours,
    ):
        await ours.ready()
        await three_voters(a)
        gate.shut = True
        async with c.publisher() as other:
            await other.ready()  # two of three voters grant a ticket
            await until(lambda: a.council is not None and b.me not in present(a.council), "it is not waited for")
            await other.publish(b"x")
        gate.open()
        await until(lambda: a.council is not None and len(present(a.council)) == 3, "it votes again")


async def test_what_waits_for_a_disk_that_stands_still_does_not_grow_with_time(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "WAITING_STEPS", 20)
    common = {"transport": MemoryNetwork(), "settings": fast()}
    async with (
        whence.create("lobby", **common) as a,
        whence.join("lobby", [a.address], directory=tmp_path, **common) as b,
        whence.join("lobby", [a.address], **common) as c,
        a.publisher() as ours,
        b.publisher() as held_up,
    ):
        await ours.ready()
        await held_up.ready()
        await three_voters(a)
        gate.shut = True
        slow = asyncio.create_task(held_up.publish(b"slow"))
        await until(lambda: bool(gate.waiting), "the disk is asked")
        async with c.publisher() as other:
            await other.ready()  # b is asked for its vote: what the ring says there waits for the disk, too
        for _ in range(30):
            await ours.publish(b"x")
            await asyncio.sleep(2.0)
        assert b._node.scribe is not None and 30 < b._node.scribe.waiting < 100, "a job an event, not a step"
        assert b.stats()["net.unsent"] > 0
        gate.open()
        await slow
        for each in (a, b, c):
            assert len(await collect(each, 31)) == 31


def present(council: CouncilStatus) -> list[str]:
    return [voter.member for voter in council.voters if not voter.missing]


async def test_an_event_is_handed_out_when_the_disk_knows_that_the_last_one_is_processed(
    tmp_path: Path, gate: Gate
) -> None:
    async with whence.create("t", transport=MemoryNetwork(), settings=fast(), directory=tmp_path) as a:
        events = a.events()
        async with a.publisher() as publisher:
            await publisher.publish_many([b"1", b"2", b"3"])
            assert (await anext(events)).payload == b"1"
            gate.shut = True
            slow = asyncio.create_task(publisher.publish(b"4"))
            await until(lambda: bool(gate.waiting), "the disk is asked")
            second = asyncio.ensure_future(anext(events))
            await asyncio.sleep(1.0)
            assert not second.done()
            gate.open()
            assert (await second).payload == b"2"
            await slow
            gate.shut = True
            slow = asyncio.create_task(publisher.publish(b"5"))
            await until(lambda: bool(gate.waiting))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(events), 0.1)
            gate.open()
            await slow
            assert (await anext(events)).payload == b"3", "a reader that gave up misses nothing"


async def test_a_loop_of_publishes_goes_on_while_earlier_events_are_on_their_way_to_the_disk(
    tmp_path: Path, gate: Gate
) -> None:
    """It used to wait for a sync each: 100 events took 100 seconds here."""
    common = {"transport": MemoryNetwork(), "settings": fast(), "order": "reliable"}
    async with (
        whence.create("lobby", **common) as a,
        whence.join("lobby", [a.address], directory=tmp_path, **common) as b,
        whence.join("lobby", [a.address], **common) as c,
        a.publisher() as ours,
    ):
        await three_voters(a)
        async with b.publisher() as publisher:
            await publisher.ready()
            gate.seconds = 1.0
            began = time.monotonic()
            ids = []
            for n in range(100):
                ids.append(await publisher.publish(b"%d" % n))
                await asyncio.sleep(0)  # a step each
            assert time.monotonic() - began < 0.5
            assert c.stats()["order.delivered"] == 0, "nobody has what is not on disk"
            await publisher.flush()
            assert time.monotonic() - began < 4, "the hundred share the syncs"
            assert b.stats()["order.delivered"] == 100
            last = await publisher.publish(b"100", durable=True)
            assert time.monotonic() - began > 1
            ids.append(last)
            ids.append(await publisher.publish(b"101"))  # leaving the block waits for it
        assert [e.id for e in await collect(c, 102)] == ids
        with pytest.raises(UsageError, match="directory"):
            await ours.publish(b"x", durable=True)
        gate.seconds = 0.0


async def test_a_disk_that_fails_late_ends_the_publishes_that_wait_for_it(tmp_path: Path, gate: Gate) -> None:
    net = MemoryNetwork()
    common = {"transport": net, "settings": fast()}
    async with (
        whence.create("lobby", **common) as a,
        whence.join("lobby", [a.address], directory=tmp_path, **common) as b,
        b.publisher() as publisher,
    ):
        await publisher.ready()
        gate.shut = True
        waiting = [asyncio.create_task(publisher.publish(b"%d" % n, durable=True)) for n in range(3)]
        await until(lambda: bool(gate.waiting))
        waiting.append(asyncio.create_task(publisher.publish(b"behind", durable=True)))
        await asyncio.sleep(0.1)
        _, over = gate.waiting.pop()
        over(DiskError("cannot write: no space left on device"))
        for publish in waiting:
            with pytest.raises(ClusterClosed, match="no space"):
                await publish
        with pytest.raises(ClusterClosed, match="no space"):
            await publisher.flush()
        await asyncio.sleep(1.0)
        assert a.stats()["order.delivered"] == 0, "nothing of it has left the process"


async def test_a_large_state_is_written_when_the_log_has_grown_not_by_the_clock(tmp_path: Path) -> None:
    written = 0
    large = os.urandom(4 * SAVE_BYTES)

    def state() -> bytes:
        nonlocal written
        written += 1
        return large

    settings = fast(time_to_terminate=2.0)
    common = {"transport": MemoryNetwork(), "settings": settings, "directory": tmp_path}
    async with whence.create("t", state=state, restore=lambda _: None, **common) as a:
        events = a.events()
        async with a.publisher() as publisher:
            for _ in range(30):
                await publisher.publish(b"x")
                await anext(events)
                await asyncio.sleep(1.5)
            assert written <= 2, "not once a second"
            for _ in range(60):
                await publisher.publish(os.urandom(SAVE_BYTES))
                await anext(events)
            assert 4 <= written <= 30
        events.done()


def frame(number: int) -> Deliver:
    deps = ((1, number - 1),) if number > 1 else ((0, 0),)
    return Deliver(Frame.of(0, 1, number, "a:1#1", deps, [b"%d" % number]))


class Slow(Files):
    """Real files, whose syncs wait to be let through, and are counted."""

    def __init__(self) -> None:
        self.syncs = 0
        self.entered, self.go_on = threading.Event(), threading.Event()

    def sync(self, fd: int) -> None:
        self.syncs += 1
        self.entered.set()
        assert self.go_on.wait(60)
        super().sync(fd)


def test_saves_that_wait_for_a_sync_share_the_next_one_in_order(tmp_path: Path) -> None:
    async def main() -> None:
        files = Slow()
        files.go_on.set()
        with Journal(tmp_path, "c", files=files) as journal:
            journal.load()
            journal.next_boot(1)
            failed: list[Exception] = []
            done: list[int] = []
            writer = Scribe(journal, failed.append, in_thread)
            files.syncs = 0
            files.go_on.clear()
            files.entered.clear()
            writer.save(b"1", [frame(1)], [], None, True, lambda: done.append(1))
            await asyncio.get_running_loop().run_in_executor(None, files.entered.wait, 60)
            for number in range(2, 52):
                writer.save(b"%d" % number, [frame(number)], [], None, True, lambda n=number: done.append(n))  # type: ignore[misc]
            writer.processed(3)
            writer.after(lambda: done.append(99))
            assert writer.busy and done == []
            files.go_on.set()
            await asyncio.wait_for(writer.settled(), 60)
            assert done == [*range(1, 52), 99] and files.syncs == 2 and not failed
        with Journal(tmp_path, "c") as journal:
            saved = journal.load()
            assert saved.checkpoint == b"51" and saved.done == 3 and len(saved.queue) == 48

    asyncio.run(main())


def test_after_a_failure_nothing_more_is_written_and_nobody_waits(tmp_path: Path) -> None:
    class Full(Files):
        def write(self, fd: int, data: memoryview) -> int:
            raise OSError(28, "no space left on device")

    async def main() -> None:
        with Journal(tmp_path, "c") as journal:
            journal.load()
            journal.next_boot(1)
            journal._files = Full()
            failed: list[Exception] = []
            writer = Scribe(journal, failed.append, in_thread)
            writer.save(b"1", [frame(1)], [], None, True, lambda: pytest.fail("it is not written"))
            writer.save(b"2", [frame(2)], [], None, True, lambda: pytest.fail("nor this"))
            await asyncio.wait_for(writer.settled(), 60)
            assert [str(error) for error in failed] and "no space" in str(failed[0])
            writer.processed(1)
            await asyncio.wait_for(writer.settled(), 60)
            assert len(failed) == 1

    asyncio.run(main())


@pytest.mark.parametrize("count", [1, 20])
async def test_the_disk_writes_a_step_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """At most three bytes for each byte of a payload of 100, everything included; more than the tail of a process and
    a whole log are written. `count`: events that are published together."""
    written = 0
    write = Files.write

    def counted(self: Files, fd: int, data: memoryview) -> int:
        nonlocal written
        written += (size := write(self, fd, data))
        return size

    monkeypatch.setattr(Files, "write", counted)
    monkeypatch.setattr(Files, "sync", lambda self, fd: None)
    rng, net = random.Random(1), MemoryNetwork()
    steps = max(1000, 3000 // count)  # so many that one generation more or less is little
    events = steps * count
    monkeypatch.setitem(Journal.__init__.__kwdefaults__, "rotate_bytes", 1)  # new generations count, too
    common: dict[str, Any] = {"transport": net, "settings": fast()}
    async with (
        whence.create("lobby", directory=tmp_path / "a", **common) as a,
        whence.join("lobby", [a.address], directory=tmp_path / "b", **common) as b,
        whence.join("lobby", [a.address], **common) as c,
        a.publisher() as ours,
        b.publisher() as theirs,
    ):
        await three_voters(a)
        readers = [asyncio.create_task(collect(each, events)) for each in (a, b, c)]
        before = written
        for n in range(steps):
            publisher = (ours, theirs)[n % 2]
            await publisher.publish_many([rng.randbytes(100) for _ in range(count)])
        await asyncio.gather(*readers)
        assert 2 * 100 * events < written - before < 3 * 2 * 100 * events, (written - before) / (200 * events)
