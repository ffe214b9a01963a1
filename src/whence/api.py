"""What an application writes against: join a cluster, read its events, publish.

    async with whence.join("lobby", seeds=["127.0.0.1:7001"], secret=...) as cluster, cluster.publisher() as publisher:
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
from collections.abc import Callable, Coroutine, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from whence.clock import MemberId, address_of
from whence.errors import ClusterClosed, NotJoined, UsageError
from whence.events import Event, Events
from whence.net.entry import LIVE, NODE, Entry, live_config
from whence.net.host import Host
from whence.net.keys import Keys
from whence.net.keys import load as load_keys
from whence.net.memory import MemoryNetwork
from whence.net.node import Node
from whence.net.roles import PublisherSeal
from whence.net.transport import Faults
from whence.order import FREE_ORDERS, RANK, TICKET_ORDERS, Blocked, Contract
from whence.ports import Contracted, Leave, Move
from whence.publisher import Coordination, Publisher, Seat, Tickets, finish
from whence.trace import TraceWriter

T = TypeVar("T")

LEAVE_TIMEOUT = 6.0
"""Seconds that leaving may take: the ring's own patience is 20 rounds."""
PEERS_EVERY = 2.0
"""Seconds between two looks whether the peers kept in a directory have changed."""


class Cluster:
    """A cluster this process is a member of."""

    def __init__(self, entry: Entry, node: Node) -> None:
        self._entry = entry
        self._host = entry.host
        self._node = node
        self._founder = entry.founder
        self._on_alert = entry.on_alert
        node.on_contract = entry.on_contract
        receives_only = isinstance(entry.seal, PublisherSeal) and not entry.seal.may_publish
        self._tickets = Tickets(node, entry.host, entry.founder, receives_only)
        self._reader: Events | None = None
        self._peers: list[MemberId] = []
        self._peers_timer: asyncio.TimerHandle | None = None

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
    def clock_size(self) -> tuple[int, int] | None:
        """R and K of the clock this member publishes under; None in a cluster with tickets, or with a mechanism."""
        return self._node.member.ordering.clock_size

    @property
    def contract(self) -> Contracted | None:
        """What was last said of the contract of a cluster without tickets: broken, or kept again. None: nothing yet."""
        return self._node.contract

    def measured(self) -> dict[str, float]:
        """Without tickets: the clock's size, and what was measured of its contract over about the last 2000 frames (X,
        P_nc, two upper bounds of the error rate, the promise). Empty in a cluster with tickets."""
        return self._node.member.ordering.measured()

    def move(self, entries: int, keys: int) -> None:
        """Go on with an (N, R, K) clock of this size; the others follow when they see it. Nothing stops."""
        if self.clock_size is None:
            raise UsageError("this cluster has tickets or a mechanism, and no (N, R, K) clock")
        self._node.feed(Move(entries, keys))

    @property
    def may_publish(self) -> bool:
        """It holds a ticket now, or needs none."""
        return self._node.may_publish

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
        return self._node.member.why_blocked(event_id)

    def events(self, order: str | None = None) -> Events:
        """The events, in the order this member joined with. `order` may name a weaker one, which it includes."""
        if order is not None:
            offered = FREE_ORDERS if self.clock_size is not None else TICKET_ORDERS
            if order not in offered:
                raise UsageError(f"order must be one of {', '.join(offered)}, not {order!r}")
            if RANK[order] > RANK[self.order]:
                raise UsageError(
                    f"this member joined in {self.order} order, which is weaker than {order}: join with it"
                )
        previous, self._reader = self._reader, Events(self)
        if previous is not None:  # what it had not handed out yet
            self._reader._frame, self._reader._at = previous._frame, previous._at
            previous._frame = []
            self._node.changed.tell()
        self._node.backlog.read = True
        return self._reader

    def publisher(self, *, timeout: float | None = None, wait_for_reader: bool = True) -> Publisher:
        """A block in which this member publishes, whatever happens to its ticket:

            async with cluster.publisher() as publisher:
                await publisher.publish(b"hello")

        `timeout`: seconds that a publish waits for a ticket before it raises NoTicket; None: as long as it takes.
        `wait_for_reader`: publishing waits while the own application is behind with its reading. False is for
        applications whose reading waits for something else, as a bridge's does."""
        return Publisher(self._tickets, timeout, wait_for_reader)

    def coordinate(self, timeout: float = 10.0) -> Coordination:
        """A block with one ticket, for those who want the seat itself. Entering waits for a ticket, or raises NoTicket;
        publishing raises LostTicket when the ring takes it away; leaving gives it back. The founder keeps its ticket
        until it leaves the cluster: without a coordinator there is no ring."""
        return Coordination(self._tickets, timeout)

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
        """Stop at once, without a word: as a crash looks to the others."""
        if self._node.closed:
            return
        if self._reader is not None and not self._node.backlog.busy and self._node.failure is None:
            self._node.save_state()
        self._host.detach(self._node)
        self._node.abandoned()
        if self._peers_timer is not None:
            self._peers_timer.cancel()

    def _keep_peers(self) -> None:
        """So that a restart finds somebody even if the seeds are gone."""
        if self._node.closed or self._entry.directory is None:
            return
        peers = self.members()[1:]
        if peers != self._peers and peers:
            self._peers = peers
            self._entry.remember_peers(peers)
        self._peers_timer = asyncio.get_running_loop().call_later(PEERS_EVERY, self._keep_peers)


class Join:
    """`async with whence.join(...) as cluster`."""

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
        cluster = self._cluster = Cluster(entry, node)
        await entry.start(node, saved)
        joined = await node.changed.until(lambda: bool(node.how or node.failure is not None or node.refused), deadline)
        if node.failure is not None:
            raise ClusterClosed(f"{node.cluster!r} was not joined: {node.failure}") from node.failure
        if node.refused:
            raise UsageError(f"{node.cluster!r} was not joined: {node.refused}")
        if not joined:
            raise NotJoined(f"{node.cluster!r}: no member gave a snapshot within {entry.timeout:g} s")
        cluster._keep_peers()
        return cluster

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        assert self._cluster is not None
        try:
            await finish(self._cluster.leave())
        finally:
            await self._close()

    async def _close(self) -> None:
        if self._cluster is not None:
            self._cluster.abandon()
        self._entry.close()
        if self._own_host:
            await self._entry.host.close()


def join(
    name: str,
    seeds: Sequence[str] = (),
    listen: str = "127.0.0.1:0",
    *,
    order: str = "causal",
    tickets: int = 8,
    found: bool | None = None,
    secret: bytes | str | None = None,
    tls: Keys | str | os.PathLike[str] | None = None,
    insecure: bool = False,
    roles: Keys | str | os.PathLike[str] | None = None,
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
    contract: Contract | None = None,
    on_alert: Callable[[Event], None] | None = None,
    on_contract: Callable[[Contracted], None] | None = None,
) -> Join:
    """Join the cluster `name` through any of `seeds`; without seeds (or with `found=True`) found it.

    `order`, this member's own choice: `unordered`, `fifo`, `causal`, `reliable`. `tickets`: how many may publish at a
    time, the same for all members, as are `settings` (overrides of `LIVE`, names as in `Config.sized`; `queue_events`
    and `queue_bytes` are this node's own).

    `order="probabilistic"`: a cluster without tickets, where every member may publish at any time, as in the others
    that give a `contract` (order `unordered` or `fifo`). `on_alert` is called before an event is handed out that
    something handed out earlier may depend on; `on_contract` when the contract is broken, or kept again
    (docs/probabilistic.md). `settings={"mechanism": "vector"}`: a cluster without tickets in causal order by a
    mechanism of the survey (docs/survey.md).

    `secret`, shared by all; or `tls`, the directory that `whence keys issue` made for this member (its roles count,
    too); or `insecure=True`, on loopback only. `roles`: such a directory for its roles alone, with a secret.

    `state` gives the application's state to a joiner, and to the disk; `restore` takes it: between two events, never
    within one. `directory`: what survives a crash; one of its own for each member. `trace`: a directory, a `.jsonl` or
    `.parquet` file, or a trace writer.

    `host`: share a port with other clusters of this process; then what belongs to the port (`listen`, `advertise`,
    `secret`, `tls`, `insecure`, `transport`, `faults`) is said there. Raises NotJoined if nobody lets it in within
    `timeout` seconds.
    """
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
    keys = host.keys if roles is None else roles if isinstance(roles, Keys) else load_keys(roles)
    node_settings = {name: (settings or {}).get(name, default) for name, default in NODE.items()}
    entry = Entry(
        host=host,
        config=live_config(name, order, tickets, {**(settings or {}), **({"contract": contract} if contract else {})}),
        on_alert=on_alert,
        on_contract=on_contract,
        seeds=[str(seed) for seed in seeds],
        founder=not seeds if found is None else found,
        state=state,
        restore=restore,
        seal=None if keys is None else keys.seal(name),
        directory=None if directory is None else Path(directory),
        trace=trace,
        timeout=timeout,
        **node_settings,
    )
    return Join(entry, own_host)


def run(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run`, on uvloop where it is installed."""
    try:
        uvloop = import_module("uvloop")
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


__all__ = [
    "LIVE",
    "Cluster",
    "Contract",
    "Coordination",
    "Event",
    "Events",
    "Faults",
    "Host",
    "Join",
    "MemoryNetwork",
    "Publisher",
    "Seat",
    "join",
    "live_config",
    "run",
]
