"""One node by hand: no loop, no socket, no clock. What it does in a step, and what it does not."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from whence.audit.judge import judge
from whence.audit.trace import MemoryTrace
from whence.core.cast.messages import Gossip, Subscribe
from whence.core.clock import address_of
from whence.core.clock.event import FRAME_EVENTS
from whence.core.member import Checkpoint, Member
from whence.core.order.layer import MAX_ANSWERS
from whence.core.order.messages import AckRecover, Recover
from whence.core.ports import Coordinate, Deliver, FoundRing, Leave, Resign, Start
from whence.core.recorder import Recorder
from whence.core.ring.messages import (
    Ballot,
    Begin,
    CJoin,
    Claim,
    Council,
    Known,
    Ledger,
    NackCoord,
    Poll,
    Prepare,
    Reject,
    RingMessage,
    Sit,
    Tenure,
    Update,
    Volunteer,
    Voter,
)
from whence.core.wire import encode, read_header, unpack
from whence.errors import ClusterClosed, DiskError
from whence.live.events import Event, Events
from whence.live.net.disk import Journal
from whence.live.net.entry import Settings
from whence.live.net.hello import DIRECTED, read_direct
from whence.live.net.node import URGENT_BYTES, MemberChange, Node
from whence.live.net.outbox import Outbox
from whence.live.net.queues import EventIds
from whence.live.net.scribe import Scribe, inline
from whence.live.net.transport import Connection

MS = 1_000_000
SETTINGS = {"ring_round_ns": 200 * MS, "delta_ns": 50 * MS, "round_ns": 50 * MS}


class Parcel(NamedTuple):
    """What a node ships."""

    to: Sequence[str]
    packet: bytes
    reliable: bool


class Wire:
    """Nodes joined by hand: what one ships waits until it is carried."""

    def __init__(self, *names: str, **options: Any) -> None:
        self.now = 0
        self.trace = MemoryTrace()
        self.sent: list[tuple[str, Parcel]] = []
        self.nodes: dict[str, Node] = {}
        for name in names:
            self.add(name, **options)

    def add(self, name: str, order: str = "causal", **options: Any) -> Node:
        me = f"{name}:1#1"
        member = Member(me, Settings.of(SETTINGS).config(4, order, "c"), random.Random(name))

        def ship(to: Sequence[str], packet: bytes, reliable: bool) -> None:
            self.sent.append((me, Parcel(to, packet, reliable)))

        recorder = Recorder(self.trace.append, run="hand", cluster="c", member=me, order=order)
        node = self.nodes[f"{name}:1"] = Node(member, ship=ship, **options)
        node.trace(recorder)
        return node

    def step(self, node: Node) -> list[Parcel]:
        """One step; what it ships."""
        before = len(self.sent)
        node.step(self.now, self.now)
        return [parcel for _, parcel in self.sent[before:]]

    def carry(self) -> None:
        """All that was shipped arrives; everybody steps once."""
        sent, self.sent = self.sent, []
        for _, parcel in sent:
            packet = parcel.packet
            if packet[0] == DIRECTED:
                _, packet = read_direct(packet)
            header = read_header(packet)
            for address in parcel.to:
                self.nodes[address].receive(header.sender, header.body)
        for node in self.nodes.values():
            self.step(node)

    def pass_time(self, ns: int, tick: int = 5 * MS) -> None:
        for _ in range(ns // tick):
            self.now += tick
            self.carry()

    def founded(self) -> Node:
        """Everybody is there, and the first one may publish."""
        first, *others = self.nodes.values()
        first.feed(Start())
        first.feed(FoundRing())
        self.step(first)
        for other in others:
            other.feed(Start((first.me,)))
        for _ in range(1000):
            self.pass_time(5 * MS)
            everybody = all(len(n.member.members()) == len(self.nodes) for n in self.nodes.values())
            if everybody and first.member.may_publish:
                return first
        raise AssertionError("not founded")


def test_the_last_step_of_a_voter_is_on_disk_before_others_know_of_it(tmp_path: Path) -> None:
    """Rule C3: it ends its own vouch with the leave, and its next life is the same voter."""
    waiting: list[tuple[Any, Any]] = []
    disk = inline
    with Journal(tmp_path, "c") as journal:
        journal.load()
        journal.next_boot()
        wire = Wire("a", journal=journal, disk=lambda job, over: disk(job, over))
        node = wire.founded()
        disk = lambda job, over: waiting.append((job, over))  # noqa: E731
        node.feed(Leave())
        wire.step(node)
        assert waiting and not node.left
        inline(*waiting[0])
        assert node.left
    with Journal(tmp_path, "c") as journal:
        saved = msgspec.msgpack.decode(journal.load().checkpoint or b"", type=Checkpoint).ring
    assert saved is not None and saved.vote is not None
    assert [row.floor > row.top for row in saved.vote.table.rows if row.top] == [True]


def accept(wire: Wire, node: Node, *payloads: bytes) -> list[str]:
    """Publish; the ids that the application is told at once."""
    batch = node.batch or node.begin(wire.now)
    assert batch is not None
    ids = EventIds()
    batch.add_all(payloads, sum(map(len, payloads)), ids)
    return list(ids)


def delivered(node: Node) -> list[str]:
    """The ids of all events that wait for the application."""
    return [name for item in node.backlog.items if isinstance(item, Deliver) for name in item.frame.names()]


def gossip(parcels: list[Parcel]) -> list[Parcel]:
    return [p for p in parcels if p.packet[0] != DIRECTED and isinstance(unpack(p.packet).message, Gossip)]


def test_all_publishes_of_a_step_share_a_frame_that_is_encoded_once() -> None:
    wire = Wire("a", "b", "c", "d")
    a = wire.founded()
    ids = [accept(wire, a, b"%d" % i) for i in range(10)]
    pushed = [p for p in gossip(wire.step(a)) if unpack(p.packet).message.items]  # type: ignore[union-attr]
    assert len(pushed) == 1 and sorted(pushed[0].to) == ["b:1", "c:1", "d:1"] and not pushed[0].reliable
    assert ids == [[f"0:1.0.1:{i}@a:1#1"] for i in range(1, 11)]
    many = accept(wire, a, *[b"x"] * (2 * FRAME_EVENTS + 1))
    pushed = [p for p in gossip(wire.step(a)) if unpack(p.packet).message.items]  # type: ignore[union-attr]
    assert len(pushed) == 3 and delivered(a)[10:] == many
    wire.carry()
    for node in wire.nodes.values():
        assert node.backlog.events == 10 + 2 * FRAME_EVENTS + 1
    assert judge(wire.trace.rows).ok


def test_what_is_for_one_life_is_directed_and_gossip_is_not() -> None:
    wire = Wire("a", "b")
    wire.founded()
    kinds = set()
    for _ in range(200):
        wire.now += 5 * MS
        for sender, parcel in wire.sent:
            packet = parcel.packet
            directed = packet[0] == DIRECTED
            if directed:
                target, packet = read_direct(packet)
                assert [address_of(target)] == list(parcel.to)
            message = unpack(packet).message
            assert unpack(packet).sender == sender
            assert directed == parcel.reliable
            kinds.add((type(message).__name__, directed))
            assert not (isinstance(message, RingMessage) and not directed)
        wire.carry()
    assert ("Gossip", False) in kinds and ("Gossip", True) not in kinds


def test_what_was_accepted_is_published_once_whatever_takes_the_ticket_before_the_step() -> None:
    """The step stamps the batch before it handles anything else, as of the time when the batch was begun: neither a
    command nor the end of the lease comes between."""
    for loss in ("command", "time"):
        wire = Wire("a", "b", "c")
        a = wire.founded()
        b = wire.nodes["b:1"]
        b.feed(Coordinate())
        while not b.member.may_publish:  # alone in its ring, nobody loses a ticket by time
            wire.pass_time(50 * MS)
        before = a.incarnation
        if loss == "command":
            a.feed(Resign())
        ids = accept(wire, a, *(b"%d" % n for n in range(FRAME_EVENTS + 10)))
        if loss == "time":
            wire.now += 3600 * 1000 * MS
        wire.step(a)
        assert a.failure is None and delivered(a) == ids, loss
        assert a.incarnation != before, "and then the ticket is gone"
        wire.carry()
        for node in wire.nodes.values():
            assert delivered(node) == ids, loss
        assert judge(wire.trace.rows).ok


def test_a_batch_is_begun_only_after_a_look_at_the_time() -> None:
    """Else events would be accepted under a lease that has expired since the last step."""
    wanted: list[int] = []
    wire = Wire("a", wanted=lambda: wanted.append(wire.now))
    a = wire.founded()
    wire.now += 3600 * 1000 * MS
    wanted.clear()
    assert a.begin(wire.now) is None and wanted == [wire.now]
    wire.step(a)
    batch = a.begin(wire.now)
    assert (batch is None) == (not a.member.may_publish)


def test_events_that_were_accepted_and_cannot_be_published_stop_the_node_loudly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    wire = Wire("a", "b")
    a = wire.founded()
    accept(wire, a, b"x")
    a.member.handle(Resign(), wire.now)  # behind the back of the node
    assert wire.step(a) == []
    assert a.failure is not None and "1 accepted events are not published" in caplog.text


def test_a_full_backlog_sheds_frames_but_not_the_ring_and_recovers_later() -> None:
    wire = Wire("a")
    b = wire.add("b", order="reliable", max_events=8)
    a = wire.founded()
    b.backlog.read = True
    for n in range(20):
        accept(wire, a, b"%d" % n)
        wire.step(a)
        wire.carry()
    assert b.backlog.full and b.backlog.events == 9 and b.stats.shed >= 11
    answer = AckRecover(1, tuple(d.frame for d in a.backlog.items if isinstance(d, Deliver))[:3])
    shed = b.stats.shed
    b.receive(a.me, encode(answer))
    wire.step(b)
    assert b.stats.shed == shed + 3 and b.backlog.events == 9
    wire.pass_time(1000 * MS)
    assert b.backlog.events == 9 and a.me in b.member.members(), "it still takes part"
    got: list[bytes] = []
    for _ in range(400):
        while b.backlog.items:
            got += b.backlog.take_frame().frame.payloads()
        wire.pass_time(5 * MS)
    assert got == [b"%d" % n for n in range(20)]
    assert judge(wire.trace.rows).ok


RECEIVERS_LIES: list[RingMessage] = [
    Reject(1, "no", True, (1 << 40) - 1, ()),
    Reject(1, "no", False, 1 << 24 | 5, ()),
    Poll(1, Tenure(1, 2), Tenure(0, 1 << 48), (1 << 40) - 1, 0),
    Update(1, Tenure(1, 2), Tenure(0, 1 << 48), 9, (), (Tenure(0, (1 << 64) - 1),)),
    NackCoord(1, Tenure(0, 1 << 48), (1 << 40) - 1),
    CJoin(1),
    Known(Council(9, (Voter("b:1#1", True),), ())),
    Begin(Council(9, (Voter("b:1#1", True),), ()), Ledger(0, (), ())),
    Prepare(1, Ballot(1 << 30, "b:1#1")),
    Sit(1, 1, Tenure(0, 1 << 48), 0),
    Claim(1, 1, 1 << 24, (0, 1, 2)),
    Volunteer(Voter("b:1#1", True)),
]


@pytest.mark.parametrize("lie", RECEIVERS_LIES, ids=lambda lie: type(lie).__name__)
def test_messages_of_the_ring_from_a_receiver_cost_nobody_a_ticket(lie: RingMessage) -> None:
    wire = Wire("a", "b", "c")
    a = wire.founded()
    inc, era = a.incarnation, a.member.ring.ctx.table.era
    receiver = Connection()
    receiver.is_publisher = False
    a.receive("b:1#1", encode(lie), True, receiver)
    wire.step(a)
    assert a.incarnation == inc and a.member.ring.ctx.table.era == era
    wire.pass_time(1000 * MS)
    assert a.incarnation == inc and a.member.may_publish
    answers = isinstance(lie, Reject | Known)
    assert ("b:1#1" in a.member.cut_off) is not answers, "a receiver answers, and asks for nothing"


def test_a_peer_that_only_asks_leaves_time_for_everything_else() -> None:
    """A kilobyte can ask for a megabyte: an address gets a few such answers in a round, and more in the next one."""
    wire = Wire("a", "b")
    a = wire.founded()
    accept(wire, a, *[bytes(1000)] * 2000)
    wire.step(a)
    inc = a.member.ordering.T[0][0]
    ask = encode(Recover(7, tuple((0, inc, 1 + i, 4096) for i in range(64))))

    def answers() -> int:
        a.receive("b:1#1", ask, True)
        a.receive("b:1#2", ask, True)  # in another life
        return sum(isinstance(unpack(read_direct(p.packet)[1]).message, AckRecover) for p in wire.step(a) if p.reliable)

    first = [answers() for _ in range(10)]
    assert MAX_ANSWERS <= sum(first) <= MAX_ANSWERS + 2 and first[-1] == 0 and a.member.stats()["order.unanswered"] > 0
    wire.pass_time(100 * MS)
    assert answers() == 2


def test_a_cut_off_is_by_certificate_logged_and_closes_the_connections(caplog: pytest.LogCaptureFixture) -> None:
    wire = Wire("a", "b", "c")
    a = wire.founded()
    closed: list[Connection] = []

    class Line(Connection):
        def close(self) -> None:
            closed.append(self)

    lines = [Line("b:1"), Line("b:1"), Line("b:2"), Line("c:1")]
    for line, name in zip(lines, ("bob", "bob", "bob", "carol"), strict=True):
        line.name = name
    a.receive("b:1#1", b"\xc1\xc1", False, lines[0])
    wire.step(a)
    assert closed == lines[:1] and "b:1#1 is cut off" in caplog.text
    a.receive("b:1#1", encode(Subscribe(1)), False, lines[1])
    a.receive("b:2#7", encode(Subscribe(1)), False, lines[2])  # in another life, under another address
    a.receive("c:1#1", encode(Subscribe(1)), False, lines[3])
    wire.step(a)
    assert closed == lines[:3] and a.stats.cut_off == 2
    assert list(a.member.cut_off) == ["b:1#1"] and "b:2#7" not in a.member.members()


def test_a_disk_that_fails_stops_the_node_before_anything_leaves_it() -> None:
    class Full:
        rotates = False

        def save(self, *_: object, **__: object) -> None:
            raise DiskError("cannot write: no space left on device")

    wire = Wire("a", "b")
    a = wire.founded()
    a.scribe = Scribe(Full(), a.fail)  # type: ignore[arg-type]
    a._outbox = Outbox(a.scribe, a._late, a._send)
    last = a.begin(wire.now)
    assert last is not None and last.waits
    last.add(b"x")
    assert wire.step(a) == []
    assert isinstance(a.failure, DiskError)
    with pytest.raises(ClusterClosed, match="no space"):
        asyncio.run(last.stored())
    assert not a.backlog.items and a.wake_at is None
    assert a.begin(wire.now) is None


def test_a_node_that_has_stopped_holds_up_nobody_else() -> None:
    """What comes for it is thrown away: its host reads on for its other nodes."""
    wire = Wire("a", "b")
    a = wire.founded()
    held: list[bool] = []

    class Line(Connection):
        def hold(self, now: bool) -> None:
            held.append(now)

    line = Line("b:1")
    large = bytes(URGENT_BYTES)
    a.receive("b:1#1", large, True, line)
    assert held == [True]
    wanted: list[None] = []
    a._wanted = lambda: wanted.append(None)
    a.fail(DiskError("no space left on device"))
    a.receive("b:1#1", large)
    assert wanted == [None], "so that what waits already is thrown away soon"
    wire.step(a)
    assert (a.waiting_bytes, line.waiting, held) == (0, 0, [True, False])


def test_what_the_application_raises_when_the_disk_has_the_step_stops_the_node(tmp_path: Path) -> None:
    """The disk goes on to its next job, and nobody waits for it for ever."""
    waiting: list[tuple[Any, Any]] = []
    disk = inline

    def tell(_: MemberChange) -> None:
        raise ValueError("the application's")

    with Journal(tmp_path, "c") as journal:
        journal.load()
        journal.next_boot()
        wire = Wire("a", journal=journal, disk=lambda job, over: disk(job, over))
        node = wire.founded()
        assert node.scribe is not None
        disk = lambda job, over: waiting.append((job, over))  # noqa: E731
        accept(wire, node, b"x")
        wire.step(node)
        node.watchers.append(tell)
        node.receive("b:1#1", encode(Subscribe(1)))
        wire.step(node)
        while waiting:
            inline(*waiting.pop())
        assert isinstance(node.failure, ValueError) and not node.scribe.busy


@pytest.mark.parametrize("which", [0, 1])
def test_an_alert_that_raises_loses_no_event(which: int) -> None:
    wire = Wire("a")
    a = wire.founded()

    def alert(_: Event) -> None:
        raise ValueError("the application's")

    async def read() -> list[bytes]:
        events, found = Events(a, alert), list[bytes]()
        for payload in (b"1", b"2", b"3"):
            accept(wire, a, payload)
            wire.step(a)
        items = a.backlog.items
        items[which] = msgspec.structs.replace(items[which], alert=5)
        while items:
            try:
                found += (await events.batch(3)).payloads
            except ValueError:
                found.append(b"alert")
        return found

    assert asyncio.run(read()) == [*[b"1"][:which], b"alert", *[b"1", b"2", b"3"][which:]]
