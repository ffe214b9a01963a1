"""What an application writes against: create or join a cluster, read its events, publish.

    async with whence.join("lobby", ["127.0.0.1:7001"], secret=...) as cluster, cluster.publisher() as publisher:
        await publisher.publish(b"hello")
        async for event in cluster.events():
            print(event.origin, event.payload)

However a block is left (also by Ctrl-C, cancellation or an exception), the ticket is given back and the others are
told, within a bounded time.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

import msgspec

from whence.core.clock import MemberId, address_of
from whence.core.config import Settings, near
from whence.core.order import Blocked, Contract
from whence.core.order.config import OrderName
from whence.core.ports import Contracted, Leave, Move
from whence.errors import ClusterClosed, ConfigError, NotJoined, TimedOut, UsageError, WhenceError
from whence.live.events import Event, EventBatch, Events, reading
from whence.live.net.council import CouncilStatus, council_of, force_found, owners
from whence.live.net.entry import Entry
from whence.live.net.guard import Secret
from whence.live.net.host import Host, boot_ns
from whence.live.net.keys import Keys, PublisherSeal
from whence.live.net.keys import load as load_keys
from whence.live.net.memory import MemoryNetwork
from whence.live.net.node import MemberChange, Node
from whence.live.net.queues import Changes
from whence.live.net.status import ClusterStatus, status_of
from whence.live.net.transport import Faults, parse_address
from whence.live.publisher import Publisher, Tickets, checked, finish

if TYPE_CHECKING:
    from whence.audit.trace import TraceWriter

T = TypeVar("T")

LISTEN = "127.0.0.1:0"
LEAVE_TIMEOUT = 6.0
"""Seconds that leaving may take: the ring's own patience is 20 rounds."""
PORT = ("secret", "tls", "insecure", "advertise", "transport", "faults")
"""Options that a `Host` takes."""
MEMBER = ("directory", "memory", "state", "restore", "trace", "votes", "on_alert", "on_contract", "timeout")
"""Options that an `Entry` takes as they are."""
POLL = 0.1
"""Seconds after which `wait_for` tries its condition again though nothing was told: it may be about anything."""
VIEW_TIMEOUT = 1.0
"""Seconds that a joiner, once it takes part, waits for the first word of who else is there."""


class Clock:
    """The (N, R, K) clock of a member of a cluster without tickets (docs/probabilistic.md)."""

    def __init__(self, node: Node) -> None:
        self._node = node

    @property
    def size(self) -> tuple[int, int]:
        """R and K of the clock that this member publishes under."""
        size = self._node.member.ordering.clock_size
        assert size is not None
        return size

    @property
    def contract(self) -> Contracted | None:
        """The last change: the contract is broken, or kept again. None: no change yet."""
        return self._node.contract

    def measured(self) -> dict[str, float]:
        """The clock's size, and what was measured of its contract over about the last 2000 frames (X, P_nc, two upper
        bounds of the error rate, the promise)."""
        return self._node.member.ordering.measured()

    def move(self, entries: int, keys: int) -> None:
        """Switch to a clock of this size; the others follow when they see it. Publishing goes on meanwhile."""
        self._node.feed(Move(entries, keys))


class Cluster:
    """A cluster this process is a member of."""

    def __init__(self, entry: Entry, node: Node) -> None:
        self._entry = entry
        self._host = entry.host
        self._node = node
        receives_only = isinstance(entry.seal, PublisherSeal) and not entry.seal.can_sign
        self._tickets = Tickets(node, entry.host, lambda: entry.founder, receives_only)
        self._reader: Events | None = None
        self.clock = Clock(node) if node.member.ordering.clock_size is not None else None
        """The (N, R, K) clock; None in a cluster with tickets, or with a mechanism."""

    @property
    def name(self) -> str:
        return self._node.cluster

    @property
    def me(self) -> MemberId:
        """This member's id: its address and which life of it this is."""
        return self._node.me

    @property
    def address(self) -> str:
        """`host:port`: what others give as a contact."""
        return address_of(self._node.me)

    @property
    def order(self) -> str:
        """The order in which this member delivers events."""
        return self._node.member.order

    @property
    def created(self) -> bool:
        """Whether this process created the cluster, or its ring, rather than joined it."""
        return self._entry.founder

    @property
    def may_publish(self) -> bool:
        """This member holds a ticket now, or needs none."""
        return self._node.member.may_publish

    @property
    def silent_since(self) -> float | None:
        """Since when this member wants to publish and may not, in seconds of the clock that counts while the machine
        sleeps (`CLOCK_BOOTTIME`). None while it may, and while no publisher wants a ticket."""
        since = self._node.silent_since if self._tickets.wanted else None
        return None if since is None else since / 1e9

    # -- who is there -------------------------------------------------------------------------------------------

    def members(self) -> list[MemberId]:
        """The members known here, itself first."""
        return self._node.member.members()

    def coordinators(self) -> dict[int, MemberId]:
        """Ticket -> owner, as far as known here: a member that only receives does not see a living owner lose its
        ticket."""
        return owners(self._node.member)

    @property
    def council(self) -> CouncilStatus | None:
        """The voters that decide who may publish: which do not answer, and how many more may be lost. None where no
        council decides: in a cluster without tickets, or with another ring (docs/ring.md)."""
        return council_of(self._node, boot_ns())

    async def status(self) -> ClusterStatus:
        """Who is there, who owns which ticket, who lags or does not answer, who was refused: it asks all members."""
        return await status_of(self._host, self._node, boot_ns())

    @property
    def waits_for(self) -> str:
        """In total order: what the next delivery waits for, such as word of an owner, or a quorum of voters; empty:
        nothing is due."""
        return self._node.member.waits_for()

    def cut_off(self) -> dict[MemberId, str]:
        """The members that broke the protocol, and how. This member ignores what they send, and sends them nothing."""
        return dict(self._node.member.cut_off)

    def changes(self, limit: int = 1024) -> Changes[MemberChange]:
        """Members as they come and go, from now on; up to so many are kept for a slow reader:

        async for change in cluster.changes():
            print(change.member, change.change)  # joined, gone
        """
        node = self._node
        changes = Changes[MemberChange](limit, node.changed, lambda: not node.open, lambda: node.forget(changes.put))
        node.watchers.append(changes.put)
        return changes

    async def wait_for(self, condition: Callable[[], bool], timeout: float | None = None) -> None:
        """Wait until the condition holds: `await cluster.wait_for(lambda: len(cluster.members()) == 3)`. It is tried
        when a member comes or goes, a ticket changes hands or events arrive, and at least every `POLL` seconds. Raises
        TimedOut after `timeout` seconds, ClusterClosed when the cluster is left."""
        node = self._node
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        while not condition() and node.open and (now := time.monotonic()) < deadline:
            await node.changed.until(lambda: condition() or not node.open, min(deadline, now + POLL))
        if condition():
            return
        if not node.open:
            raise ClusterClosed(f"cluster {self.name!r} was left, or its node has stopped")
        raise TimedOut(f"{self.name!r}: the condition did not come true within {timeout:g} s")

    # -- figures ------------------------------------------------------------------------------------------------

    def stats(self) -> dict[str, int]:
        """All counters, by layer; `net.` are those of the host and of this node. `docs/live.md` explains them."""
        node = self._node
        backlog = node.backlog
        return {
            **node.member.stats(),
            **self._host.stats.asdict(),
            **{f"guard.{name}": n for name, n in self._host.guard.stats().items()},
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
        self._flush()
        try:
            return self._node.member.why_blocked(event_id)
        except ValueError as error:
            raise UsageError(f"{error}: give an event's id, as Event.id and publish have it") from None

    # -- events -------------------------------------------------------------------------------------------------

    def events(self) -> Events:
        """The events, in the order this member joined with. There is one reader at a time: a second one continues where
        the first stopped, and is an error while the first waits for an event."""
        self._reader = Events(self._node, self._entry.on_alert, self._reader)
        return self._reader

    def batches(self, frames: int = 8) -> AsyncIterator[EventBatch]:
        """The same in batches, up to so many frames at a time, for applications that read many events a second:

            async for batch in cluster.batches():
                for event in batch: ...

        `batch.payloads` has their payloads alone, which is cheaper. A batch counts as processed when the next one is
        asked for."""
        if type(frames) is not int or frames < 1:
            raise UsageError(f"batches of 1 frame or more, not {frames!r}")
        events = self.events()

        async def read() -> AsyncIterator[EventBatch]:
            while batch := await events.batch(frames):
                yield batch

        return read()

    async def checkpoint(self) -> None:
        """Return when it is on disk that all events handed out so far are processed, and with `state` the state that
        has them: after a `kill -9` none of them comes again. Called by the task that reads, between two events;
        elsewhere it waits until the reader asks for the next one. Without it the state is written now and then, and the
        events since come again (`Event.replayed`)."""
        if self._node.scribe is None:
            raise UsageError("a checkpoint needs a directory: whence.join(..., directory=...)")
        if (reader := self._reader) is not None:
            if not reading(self._node):
                await self.wait_for(lambda: not reader.in_hand)
            reader.processed()
        await self._node.checkpoint()

    # -- publishing ---------------------------------------------------------------------------------------------

    def publisher(self, *, timeout: float | None = None, wait_for_reader: bool = True, keep: bool = False) -> Publisher:
        """A block in which this member publishes. If it loses its ticket, the publisher gets another one:

            async with cluster.publisher() as publisher:
                await publisher.publish(b"hello")

        `timeout`: seconds that a publish waits for a ticket before it raises NoTicket; None: as long as it takes.
        `wait_for_reader`: publishing waits while this application has too many events to read. False is for
        applications whose reader waits for something else, such as a bridge. `keep`: it gives its ticket to nobody
        while it has nothing to publish, so that the first event after a pause does not wait for another."""
        return Publisher(self._tickets, timeout, wait_for_reader, keep)

    async def send(self, member: MemberId, payload: bytes, *, timeout: float = 10.0) -> None:
        """Send to one member, in causal order with all events: its `events()` have it (`Event.direct`) after all that
        was delivered here before, and before all that is published here after this has returned. Returns when the
        member has it: a round trip. It needs no ticket; nobody else sees it; if the member crashes it may be lost.
        Raises UsageError for who is not known here and in a cluster without tickets, TimedOut without an answer."""
        self._flush()
        command, done = self._node.copies.send(member, checked(payload), int(timeout * 1e9))
        self._node.feed(command)
        if refused := (await done).refused:
            raise (TimedOut if refused.startswith("no answer") else UsageError)(f"{self.name}: {refused}")

    async def recreate(self, *, force: bool) -> None:
        """Create the ring again at this member, because its council is lost for good: an operator override
        (docs/ring.md, rule C0). If voters that do not answer live after all, their side and this one publish
        under the same tickets until they hear of each other. Raises UsageError while an owner, or enough voters to go
        on, are heard."""
        if not force:
            raise UsageError("the council decides who creates the ring again; recreate(force=True) overrides it")
        await force_found(self._node, boot_ns())

    def rekey(self, *, secret: Secret | None = None, tls: Keys | str | os.PathLike[str] | None = None) -> None:
        """Other keys, without a restart (docs/operations.md, "New keys"): a secret, or several (the first seals, all
        are accepted); or what the directory given as `tls` holds now. After a KeysError the old ones stay."""
        self._host.rekey(secret, tls)

    async def leave(self) -> None:
        """Give the ticket back, tell the others, stop. Done by leaving the `join` block."""
        node = self._node
        if node.closed:
            return
        node.feed(Leave())
        await node.changed.until(lambda: not node.open, time.monotonic() + LEAVE_TIMEOUT)
        await self._host.drained(1.0)
        self.abandon()

    def abandon(self) -> None:
        """Stop at once, without telling the others: to them it looks like a crash."""
        if self._node.closed:
            return
        self._flush()
        self._host.detach(self._node)
        self._node.abandoned()

    def _flush(self) -> None:
        """What was published in this turn of the loop becomes frames now."""
        if self._node.batch is not None:
            self._host.step()


class Join:
    """`async with whence.join(...) as cluster`, or `whence.create(...)`."""

    def __init__(self, entry: Entry, own_host: bool) -> None:
        self._entry = entry
        self._own_host = own_host
        self._cluster: Cluster | None = None

    async def __aenter__(self) -> Cluster:
        entry = self._entry
        if self._own_host:
            await entry.host.start()
        try:
            self._cluster = await self._enter(entry)
        except BaseException:
            await self._close()
            raise
        return self._cluster

    async def _enter(self, entry: Entry) -> Cluster:
        deadline = time.monotonic() + entry.timeout
        node, saved = entry.open()
        node.on_contract = entry.on_contract
        cluster = self._cluster = Cluster(entry, node)
        await entry.start(node, saved)
        if entry.peers:
            deadline = time.monotonic() + entry.timeout  # waiting for peers has a limit of its own
        there = lambda: bool(node.how or node.failure is not None or node.refused)  # noqa: E731
        had = -1
        while not (joined := await node.changed.until(there, deadline)) and node.member.arrived > had:
            had, deadline = node.member.arrived, time.monotonic() + entry.timeout  # a large state is on its way
        if node.failure is not None:
            name = "" if isinstance(node.failure, WhenceError) else f"{type(node.failure).__name__}: "
            raise ClusterClosed(f"{node.cluster!r} was not joined: {name}{node.failure}") from node.failure
        if node.refused:
            raise UsageError(f"{node.cluster!r} was not joined: {node.refused}")
        if not joined:
            raise NotJoined(
                f"{node.cluster!r}: {len(entry.met)} members answered, but none gave its state within "
                f"{entry.timeout:g} s. A member gives it at the next read: does its application read events?"
            )
        if entry.met and not entry.founder:  # somebody is there: do not come back with a view of oneself alone
            others = time.monotonic() + VIEW_TIMEOUT
            await node.changed.until(lambda: len(node.member.members()) > 1 or not node.open, min(deadline, others))
        entry.keep_peers(node)
        return cluster

    async def __aexit__(self, *_: object) -> None:
        assert self._cluster is not None
        try:
            await finish(self._cluster.leave())
        finally:
            await self._close()

    async def _close(self) -> None:
        if self._cluster is not None:
            self._cluster.abandon()
            if (scribe := self._cluster._node.scribe) is not None:
                await scribe.settled()
        self._entry.close()
        if self._own_host:
            await self._entry.host.close()


class Options(TypedDict, total=False):
    """The options of `create`, `join` and `bootstrap`; `help(whence.join)` explains each."""

    secret: Secret | None
    tls: Keys | str | os.PathLike[str] | None
    insecure: bool
    roles: Keys | str | os.PathLike[str] | None
    advertise: str | None
    transport: MemoryNetwork | None
    faults: Faults | None
    host: Host | None
    directory: str | os.PathLike[str] | None
    memory: str | os.PathLike[str] | None
    state: Callable[[], bytes] | None
    restore: Callable[[bytes], None] | None
    trace: str | os.PathLike[str] | TraceWriter | None
    order: OrderName
    tickets: int
    total: bool
    settings: Settings | Mapping[str, Any] | None
    profile: str
    contract: Contract | None
    votes: bool
    on_alert: Callable[[Event], None] | None
    on_contract: Callable[[Contracted], None] | None
    timeout: float


def create(name: str, listen: str = LISTEN, *, contacts: str | Sequence[str] = (), **options: Unpack[Options]) -> Join:
    """Create the cluster `name`: one process does, the others join it.

        async with whence.create("lobby", "10.0.0.7:7001", secret=secret) as cluster: ...

    A process that created a cluster and kept a `directory` continues from it. With `contacts` it creates the ring of a
    running cluster again, after all coordinators were lost: an operator override, never decided by a timeout. The
    options are those of `join`.
    """
    return _make(name, _contacts(contacts), listen, options, founder=True)


def join(name: str, contacts: str | Sequence[str], listen: str = LISTEN, **options: Unpack[Options]) -> Join:
    """Join the cluster `name` through any of `contacts` (`host:port` of members), and listen on `listen`.

        async with whence.join("lobby", ["10.0.0.7:7001"], "10.0.0.8:7001", secret=secret) as cluster: ...

    Raises NotJoined if no contact lets it in within `timeout` seconds (10), and UsageError if the members' settings
    cannot work together. A member that was in the cluster before, and has its `directory` or its memory as a voter,
    goes on alone instead, and keeps asking. The other options, all by name:

    Who may take part (one of the first three, except over a `MemoryNetwork`):
      secret      bytes or a passphrase, shared by all members; a list during a rotation: the first one seals
      tls         the directory that `whence keys issue` made for this member, its roles included
      insecure    True: no protection, for experiments on loopback
      roles       such a directory for its roles alone, beside a secret

    Where it listens:
      advertise   the address under which others reach it, if that is another one (NAT, containers, 0.0.0.0)
      transport   a `whence.testing.MemoryNetwork` in the place of TCP, for tests
      faults      a `whence.testing.Faults`: lost messages and cut links, for tests
      host        a `whence.Host`: a port shared by several clusters; it has the options above

    What is kept, and where:
      directory   the journal, from which a restarted member continues; each member needs its own
      memory      the directory of the voter state (a few KB), if there is no `directory`. By default the user's state
                  directory, if `listen` names a port, since others look for a voter at its address; None: it is not
                  kept, and a restarted process is a new voter
      state       returns the application's state, for a joiner and for the disk; called between two events
      restore     takes such a state; empty bytes if the giver has no `state`. Give both at all members
      trace       what happened, for the audit: a directory or a `.jsonl` file (JSON lines), or a `.parquet` name

    How the cluster works:
      order       this member's own: "unordered", "fifo", "causal" (the default), "reliable"; "total": in one
                  sequence with all others in this order (docs/total.md); or "probabilistic": a cluster without
                  tickets, where every member may publish at any time
      total       True: the cluster has total order for who wants it, the first member is one; the same at all members
      tickets     how many members may publish at a time (8); the same at all members
      settings    a `whence.Settings` or a mapping of its names (docs/tuning.md); the same at all members
      profile     a set of settings by name, such as "ccc11"; the same at all members
      contract    a `whence.Contract`: a cluster without tickets, and what its (N, R, K) clock promises
      votes       False: this member is not asked to vote on who may publish, as suits a process that comes and goes
      on_alert    called before an event is delivered that is probably a cause of one delivered earlier
      on_contract called when the contract is broken, or kept again
    """
    return _make(name, _contacts(contacts, required=f"joining {name!r}"), listen, options)


def bootstrap(name: str, peers: Sequence[str], listen: str, **options: Unpack[Options]) -> Join:
    """Create or join the cluster `name`, with the same list of `peers` at every node, itself among them.

        PEERS = ["10.0.0.7:7001", "10.0.0.8:7001", "10.0.0.9:7001"]
        async with whence.bootstrap("lobby", PEERS, "10.0.0.8:7001", secret=secret) as cluster: ...

    If one of the peers is in the cluster, it is joined. Else one of them creates it, as soon as all have answered:
    after a first start as well as after a power cut (docs/operations.md). It waits for them as long as it takes, or for
    `timeout` seconds. The other options are those of `join`.
    """
    listed = _contacts(peers, required=f"bootstrapping {name!r}")
    if len(set(listed)) != len(listed):
        raise UsageError(f"the list of peers names one twice: {', '.join(listed)}")
    return _make(name, (), listen, options, peers=listed)


def _contacts(contacts: str | Sequence[str], required: str = "") -> list[str]:
    """The addresses; one may be given by itself."""
    listed = [contacts] if isinstance(contacts, str) else [str(contact) for contact in contacts]
    for contact in listed:
        parse_address(contact)  # what is no address is said at once, not after a time-out
    if required and not listed:
        raise UsageError(f"{required} needs a contact, the host:port of a member; whence.create(...) creates a cluster")
    return listed


def _make(
    name: str,
    contacts: Sequence[str],
    listen: str,
    options: Options,
    founder: bool = False,
    peers: Sequence[str] = (),
) -> Join:
    for option in options:
        if option not in Options.__annotations__:
            raise UsageError(f"there is no option {option!r}{near(option, Options.__annotations__)}")
    host, roles = options.get("host"), options.get("roles")
    of_port = {key: value for key, value in options.items() if key in PORT and value not in (None, False)}
    if host is not None and of_port:
        raise UsageError(f"{', '.join(of_port)}: what belongs to the port is said to the Host")
    own_host = host is None
    if host is None:
        host = Host(listen, **of_port)  # type: ignore[arg-type]
    keys = host.protection.keys if roles is None else roles if isinstance(roles, Keys) else load_keys(roles)
    settings = Settings.of(options.get("settings"), options.get("profile", ""))
    if (contract := options.get("contract")) is not None:
        settings = msgspec.structs.replace(settings, contract=contract)
    if options.get("total") or options.get("order") == "total":
        settings = msgspec.structs.replace(settings, total=True)
    if (founder or peers) and settings.total and options.get("order") != "total":
        raise ConfigError("who creates a cluster with total order is in it, and keeps its logs: give order='total'")
    entry = Entry(
        host=host,
        config=settings.config(options.get("tickets", 8), options.get("order", "causal"), name),
        settings=settings,
        contacts=contacts,
        founder=founder,
        peers=peers,
        seal=None if keys is None else keys.seal(name),
        **{key: value for key, value in options.items() if key in MEMBER},  # type: ignore[arg-type]
    )
    if peers:  # waiting for them has a limit of its own, or none
        entry.patience, entry.timeout = options.get("timeout"), 10.0
    return Join(entry, own_host)


def run(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run`, on uvloop where it is installed."""
    try:
        uvloop = import_module("uvloop")
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)
