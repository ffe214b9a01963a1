"""What an application writes against: join a cluster, read its events, take a seat, publish.

    async with whence.join("lobby", seeds=["127.0.0.1:7001"], secret=...) as cluster:
        async with cluster.coordinate() as seat:
            await seat.publish(b"hello")
        async for event in cluster.events():
            print(event.origin, event.payload)

However a block is left (also by Ctrl-C, cancellation or an exception), the ticket is given back and the others are
told, within a bounded time.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from whence.clock import Frame, Incarnation, MemberId, address_of
from whence.config import MS, Config
from whence.errors import ClusterClosed, ConfigError, LostTicket, NoTicket, NotJoined, UsageError
from whence.member import Member
from whence.net.host import Host
from whence.net.memory import MemoryNetwork
from whence.net.node import Ask, Node
from whence.net.transport import Faults
from whence.order import ORDERS, RANK, Blocked
from whence.ports import Coordinate, Deliver, Found, Leave, Resign, Start
from whence.recorder import Recorder
from whence.ring.interface import State
from whence.trace import JsonlTrace, TraceWriter, open_trace

T = TypeVar("T")

LIVE: dict[str, Any] = {
    "members": 32,
    "mode": "eager",
    "round_ns": 200 * MS,
    "latency_ns": 5 * MS,
    "time_to_terminate": 0.5,
    "time_to_recover": 5.0,
    "ring_round_ns": 1000 * MS,
    "delta_ns": 250 * MS,
    "rate": 64.0,
    "history": 16_384,
    "buffer": 4096,
}
"""The settings of a live cluster where nothing else is said (`Config.sized` explains each). A publish is pushed at
once; rounds repair. The ring's times are such that a process which a busy machine holds up for some hundred milliseconds
keeps its ticket; the times of recovery are such that it loses no event by it."""

QUEUE_EVENTS = 65_536
QUEUE_BYTES = 64 << 20
LEAVE_TIMEOUT = 6.0
"""Seconds that leaving may take: the ring's own patience is 20 rounds."""
RELEASE_TIMEOUT = 5.0
"""Seconds to wait for the ring to take a ticket back at the end of a seat."""
SEED_RETRY = 0.5


class Event(msgspec.Struct, frozen=True, gc=False):
    """One event, as the application sees it."""

    payload: bytes
    seq: int
    frame: Frame
    over_gap: bool = False
    """Something before it was given up (never in `reliable` order)."""

    @property
    def id(self) -> str:
        """Unique in the cluster, for good."""
        return f"{self.frame.ticket}:{Incarnation.unpack(self.frame.inc)}:{self.seq}@{self.frame.owner}"

    @property
    def origin(self) -> MemberId:
        """The member that published it."""
        return self.frame.owner

    @property
    def sender_ticket(self) -> int:
        """The ticket it was published under."""
        return self.frame.ticket


class Events(AsyncIterator[Event]):
    """The events of a cluster, in its order. Asking for the next one says that the last one is done with.

    One reader at a time: a new `events()` goes on where the last one stopped, which ends."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._node = cluster._node
        self._frame: list[Event] = []
        self._at = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        at = self._at
        if at < len(self._frame):
            self._at = at + 1
            return self._frame[at]
        if not await self._next_frame():
            raise StopAsyncIteration
        self._at = 1
        return self._frame[0]

    async def batch(self) -> list[Event]:
        """The events of one frame, at least one; empty when the cluster was left. Cheaper than one by one."""
        if self._at < len(self._frame):
            rest, self._at = self._frame[self._at :], len(self._frame)
            return rest
        if not await self._next_frame():
            return []
        self._at = len(self._frame)
        return self._frame

    async def _next_frame(self) -> bool:
        """All events so far are done with: on to the next frame."""
        node, backlog = self._node, self._node.backlog
        self._frame, self._at = [], 0
        if self._cluster._reader is not self:
            return False
        backlog.busy = False
        while True:
            while backlog.items:
                item = backlog.items[0]
                if isinstance(item, Deliver):
                    was_full = backlog.full
                    backlog.take_frame()
                    if was_full and not backlog.full:
                        self._cluster._tell()
                    frame, gap = item.frame, item.over_gap
                    self._frame = [Event(p, s, frame, gap) for s, p in enumerate(frame.payloads(), frame.first)]
                    backlog.busy = True
                    return True
                backlog.items.popleft()
                node.snapshot(item)
            if node.failure is not None:
                raise ClusterClosed(f"the node of {node.cluster} has stopped: {node.failure}") from node.failure
            if node.left or self._cluster._closed or self._cluster._reader is not self:
                return False
            await self._cluster._change()


class Seat:
    """The right to publish, for as long as the block lasts and the ring agrees."""

    def __init__(self, cluster: Cluster, ticket: int, inc: Incarnation) -> None:
        self.cluster = cluster
        self.ticket = ticket
        self.inc = inc

    async def publish(self, payload: bytes) -> str:
        """Publish one event; returns its id when it is on its way. Waits while peers or the own application are behind.
        Raises LostTicket if the ring took the ticket away: then nothing was published."""
        return (await self.publish_many((payload,)))[0]

    async def publish_many(self, payloads: Sequence[bytes]) -> list[str]:
        """Publish events in this order, many in one frame: far cheaper than one by one. On LostTicket, its `published`
        holds the ids of those that were published."""
        cluster, node = self.cluster, self.cluster._node
        cap = node.member.config.limits.max_payload_bytes
        for payload in payloads:
            if len(payload) > cap:
                raise UsageError(f"an event holds at most {cap} bytes, not {len(payload)}")
        if not payloads:
            return []
        await cluster._room()
        self._check()
        done = asyncio.get_running_loop().create_future()

        def tell(ask: Ask) -> None:
            if not done.done():
                done.set_result(ask)

        node.publish(Ask(payloads, tell))
        ask: Ask = await done
        if ask.error is not None:
            if isinstance(ask.error, LostTicket):
                ask.error.published = tuple(ask.ids)
            raise ask.error
        return ask.ids

    def _check(self) -> None:
        node = self.cluster._node
        if self.cluster._closed or node.left:
            raise ClusterClosed(f"cluster {node.cluster!r} was left")
        if (node.member.ring.ticket, node.member.ring.inc) != (self.ticket, self.inc):
            raise LostTicket(f"ticket {self.ticket} was lost: leave the block and coordinate again")


class Coordination:
    """`async with cluster.coordinate() as seat`."""

    def __init__(self, cluster: Cluster, timeout: float) -> None:
        self._cluster = cluster
        self._timeout = timeout

    async def __aenter__(self) -> Seat:
        return await self._cluster._sit_down(self._timeout)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await _see_through(self._cluster._stand_up())


class Cluster:
    """A cluster this process is a member of."""

    def __init__(self, host: Host, node: Node, founder: bool) -> None:
        self._host = host
        self._node = node
        self._founder = founder
        self._reader: Events | None = None
        self._seats = 0
        self._closed = False
        self._waiters: list[asyncio.Future[None]] = []
        self._trace: TraceWriter | None = None
        node.changed.append(self._tell)

    @property
    def name(self) -> str:
        return self._node.cluster

    @property
    def me(self) -> MemberId:
        """This member's id: its address and which life of it this is."""
        return self._node.me

    @property
    def address(self) -> str:
        """`host:port`: what others give as a seed."""
        return address_of(self._node.me)

    @property
    def order(self) -> str:
        return self._node.member.order

    @property
    def may_publish(self) -> bool:
        """It holds a ticket now."""
        return self._node.member.may_publish

    def members(self) -> list[MemberId]:
        """The members known here, itself first."""
        return self._node.member.members()

    def coordinators(self) -> dict[int, MemberId]:
        """Ticket -> owner, as far as known here."""
        return self._node.member.ring.coordinators()

    def stats(self) -> dict[str, int]:
        """All counters, by layer; `net.` are those of the host and of this node. `docs/live.md` explains them."""
        node = self._node
        backlog = node.backlog
        return {
            **node.member.stats(),
            **self._host.stats.asdict(),
            **node.stats.asdict(),
            "net.backlog_events": backlog.events,
            "net.backlog_bytes": backlog.bytes,
            "members": len(node.member.members()),
            "held": node.member.blocked(),
        }

    def buffers(self) -> dict[str, tuple[int, int]]:
        """Every bounded buffer of the member and the backlog: fill and bound."""
        backlog = self._node.backlog
        return {**self._node.member.buffers(), "backlog": (backlog.events, backlog.max_events)}

    def why_blocked(self, event_id: str) -> Blocked:
        """Which events this one waits for, who was asked, until when."""
        return self._node.member.why_blocked(event_id)

    def events(self, order: str | None = None) -> Events:
        """The events, in the order this member joined with. `order` may name a weaker one, which it includes."""
        if order is not None:
            if order not in ORDERS:
                raise UsageError(f"order must be one of {', '.join(ORDERS)}, not {order!r}")
            if RANK[order] > RANK[self.order]:
                raise UsageError(
                    f"this member joined in {self.order} order, which is weaker than {order}: join with it"
                )
        previous, self._reader = self._reader, Events(self)
        if previous is not None:  # what it had not handed out yet
            self._reader._frame, self._reader._at = previous._frame, previous._at
            previous._frame = []
            self._tell()
        self._node.backlog.read = True
        return self._reader

    def coordinate(self, timeout: float = 10.0) -> Coordination:
        """A block in which this member may publish. Entering waits for a ticket, or raises NoTicket; leaving gives it
        back. The founder keeps its ticket until it leaves the cluster: without a coordinator there is no ring."""
        return Coordination(self, timeout)

    async def leave(self) -> None:
        """Give the ticket back, tell the others, stop. Done by leaving the `join` block."""
        if self._closed:
            return
        self._node.feed(Leave())
        await self._until(lambda: self._node.left or self._node.failure is not None, LEAVE_TIMEOUT)
        await self._host.drained(1.0)
        self.abandon()

    def abandon(self) -> None:
        """Stop at once, without a word: as a crash looks to the others."""
        if self._closed:
            return
        self._closed = True
        self._host.detach(self._node)
        self._tell()
        if self._trace is not None:
            self._trace.close()

    # -- tickets ------------------------------------------------------------------------------------------------

    async def _sit_down(self, timeout: float) -> Seat:
        member = self._node.member
        self._seats += 1
        try:
            if self._seats == 1 and not (self._founder and (member.ring.ticket is not None or self._founding)):
                self._node.feed(Coordinate())
            done = await self._until(lambda: self._closed or self._node.left or member.may_publish, timeout)
        except BaseException:
            await _see_through(self._stand_up())
            raise
        if self._closed or self._node.left:
            raise ClusterClosed(f"cluster {self.name!r} was left")
        if not done:
            reason = self._why_no_ticket()
            await _see_through(self._stand_up())
            raise NoTicket(f"no ticket of {self.name!r} within {timeout:g} s: {reason}")
        ticket, inc = member.ring.ticket, member.ring.inc
        assert ticket is not None and inc is not None
        return Seat(self, ticket, inc)

    @property
    def _founding(self) -> bool:
        return self._node.member.ring.state is State.FOUNDING or self._node.how is None

    def _why_no_ticket(self) -> str:
        member = self._node.member
        ring, total = member.ring, member.config.tickets
        if not member.joined:
            return "this member has not joined yet"
        if ring.may_publish:
            return f"ticket {ring.ticket} is there, but its former owners' events are still being recovered"
        known = ring.coordinators()
        if ring.state is State.FOUNDING:
            return "the ring is being founded: it waits until every lease of an earlier one has run out"
        if not known:
            return "no coordinator is known: the cluster's founder has left, or cannot be reached"
        if len(known) >= total:
            return f"all {total} tickets are taken, by {', '.join(sorted(set(known.values())))}"
        return (
            f"state {ring.state.value}, {len(known)} of {total} tickets are taken; the ring may be busy with a failure"
        )

    async def _stand_up(self) -> None:
        self._seats -= 1
        if self._seats or self._founder or self._closed:
            return
        self._node.feed(Resign())
        ring = self._node.member.ring
        await self._until(lambda: ring.ticket is None or self._seats > 0 or self._closed, RELEASE_TIMEOUT)

    # -- waiting ------------------------------------------------------------------------------------------------

    def _tell(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _change(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    async def _until(self, condition: Callable[[], bool], timeout: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while not condition():
                    await self._change()
                return True
        return condition()

    async def _room(self) -> None:
        """Back pressure: wait while the own application or the peers are behind."""
        node = self._node
        while node.backlog.full and not self._closed and node.failure is None:
            await self._change()
        if self._host.congested():
            await self._host.drained(1.0)


class Join:
    """`async with whence.join(...) as cluster`."""

    def __init__(self, host: Host, own_host: bool, make: Callable[[Host], Coroutine[Any, Any, Cluster]]) -> None:
        self._host = host
        self._own_host = own_host
        self._make = make
        self._cluster: Cluster | None = None

    async def __aenter__(self) -> Cluster:
        if self._own_host:
            await self._host.start()
        try:
            self._cluster = await self._make(self._host)
        except BaseException:
            if self._own_host:
                await self._host.close()
            raise
        return self._cluster

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        cluster = self._cluster
        assert cluster is not None
        try:
            await _see_through(cluster.leave())
        finally:
            cluster.abandon()
            if self._own_host:
                await self._host.close()


def join(
    name: str,
    seeds: Sequence[str] = (),
    listen: str = "127.0.0.1:0",
    *,
    order: str = "causal",
    tickets: int = 8,
    found: bool | None = None,
    secret: bytes | str | None = None,
    tls: object | None = None,
    insecure: bool = False,
    directory: str | os.PathLike[str] | None = None,
    trace: str | os.PathLike[str] | TraceWriter | None = None,
    transport: str | MemoryNetwork = "tcp",
    host: Host | None = None,
    state: Callable[[], bytes] | None = None,
    restore: Callable[[bytes], None] | None = None,
    settings: Mapping[str, Any] | None = None,
    timeout: float = 10.0,
    advertise: str | None = None,
    faults: Faults | None = None,
) -> Join:
    """Join the cluster `name` through any of `seeds`; without seeds (or with `found=True`) found it.

    `order`, this member's own choice: `unordered`, `fifo`, `causal`, `reliable`. `tickets`: how many may publish at a
    time, the same for all members, as are `settings` (overrides of `LIVE`, names as in `Config.sized`). `state` gives
    the application's state to a joiner, `restore` takes it: between two events, never within one. `trace`: a directory,
    a `.jsonl` or `.parquet` file, or a trace writer. `host`: share a port with other clusters of this process; then
    what belongs to the port (`listen`, `secret`, ...) is said there. Raises NotJoined if no seed lets it in within
    `timeout` seconds.
    """
    config = live_config(name, order, tickets, settings)
    own_host = host is None
    if host is None:
        host = Host(
            listen,
            advertise=advertise,
            secret=secret,
            tls=tls,
            insecure=insecure,
            transport=transport,
            faults=faults,
        )
    elif secret is not None or tls is not None or insecure or advertise is not None or faults is not None:
        raise UsageError("what belongs to the port (secret, tls, insecure, advertise, faults) is said to the Host")
    founder = not seeds if found is None else found

    async def make(host: Host) -> Cluster:
        return await _enter(host, config, list(seeds), founder, trace, state, restore, timeout)

    return Join(host, own_host, make)


async def _enter(
    host: Host,
    config: Config,
    seeds: list[str],
    founder: bool,
    trace: str | os.PathLike[str] | TraceWriter | None,
    state: Callable[[], bytes] | None,
    restore: Callable[[bytes], None] | None,
    timeout: float,
) -> Cluster:
    me = host.new_id()
    writer = _trace_writer(trace, config.cluster, me)
    recorder = None
    if writer is not None:
        recorder = Recorder(writer.append, run="live", cluster=config.cluster, member=me, order=config.order)
    node = Node(
        Member(me, config, random.Random(secrets.randbits(64))),
        ship=host.ship,
        wanted=lambda: host.wants_step(config.cluster),
        recorder=recorder,
        flush_trace=writer.flush if isinstance(writer, JsonlTrace) else None,
        state=state,
        restore=restore,
        max_events=QUEUE_EVENTS,
        max_bytes=QUEUE_BYTES,
    )
    host.attach(node)
    cluster = Cluster(host, node, founder)
    if writer is not None and writer is not trace:
        cluster._trace = writer
    try:
        deadline = asyncio.get_running_loop().time() + timeout
        contacts = await _contacts(host, config.cluster, seeds, timeout) if seeds else []
        node.feed(Start(tuple(contacts)))
        if founder:
            node.feed(Found())
        left = max(0.0, deadline - asyncio.get_running_loop().time())
        if not await cluster._until(lambda: node.how is not None or node.failure is not None, left):
            raise NotJoined(f"{', '.join(contacts)} gave no snapshot of {config.cluster!r} within {timeout:g} s")
        if node.failure is not None:
            raise node.failure
    except BaseException:
        cluster.abandon()
        raise
    return cluster


async def _contacts(host: Host, cluster: str, seeds: list[str], timeout: float) -> list[MemberId]:
    """Ask the seeds, again and again, until one of them is in the cluster; then give the others a moment."""
    others = [s for s in seeds if s != host.address]
    heard: dict[str, MemberId | None] = dict.fromkeys(others)

    async def knock(seed: str) -> None:
        while not heard[seed]:
            began = asyncio.get_running_loop().time()
            answer = await host.ask(seed, cluster, SEED_RETRY)
            if answer is not None:
                heard[seed] = answer
            if not answer:
                await asyncio.sleep(max(0.0, began + SEED_RETRY - asyncio.get_running_loop().time()))

    tasks = [asyncio.create_task(knock(seed)) for seed in others]
    try:
        if tasks:
            await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait(tasks, timeout=0.05)
    finally:
        for task in tasks:
            task.cancel()
    found = [m for m in heard.values() if m]
    if not found:
        said = [f"{s}: {'no answer' if a is None else 'is not in it'}" for s, a in heard.items()]
        raise NotJoined(
            f"no seed of {cluster!r} within {timeout:g} s ({'; '.join(said) or 'the only seed is this host'})"
        )
    return found


def live_config(name: str, order: str, tickets: int, settings: Mapping[str, Any] | None = None) -> Config:
    """The settings of a live cluster: `LIVE` with overrides."""
    wanted = {**LIVE, **(settings or {}), "cluster": name, "order": order, "tickets": tickets}
    try:
        return Config.sized(**wanted)
    except TypeError as error:
        raise ConfigError(f"settings: {error}") from None


def run(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run`, on uvloop where it is installed."""
    try:
        uvloop = import_module("uvloop")
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def _trace_writer(trace: str | os.PathLike[str] | TraceWriter | None, cluster: str, me: MemberId) -> TraceWriter | None:
    if trace is None or not isinstance(trace, str | os.PathLike):
        return trace
    path = Path(trace)
    if path.suffix in (".jsonl", ".parquet"):
        return open_trace(path)
    name = "".join(c if c.isalnum() or c in "._-" else "_" for c in f"{cluster}-{me}")
    return open_trace(path / f"{name}.jsonl")


async def _see_through(ending: Coroutine[Any, Any, None]) -> None:
    """Do it to its end though we are being cancelled; cancelled again, do it no longer."""
    task = asyncio.ensure_future(ending)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        task.cancel()
        raise


__all__ = [
    "LIVE",
    "Cluster",
    "Coordination",
    "Event",
    "Events",
    "Faults",
    "Host",
    "Join",
    "MemoryNetwork",
    "Seat",
    "join",
    "live_config",
    "run",
]
