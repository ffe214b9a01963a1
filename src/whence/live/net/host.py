"""One endpoint of a process: one port, one guard, the packets of all clusters that the process is in.

Coming in: guard -> whose word is it (a host's, or a member's of which cluster) -> the node's inbox. Going out:
guard, once for all targets -> transport. All nodes with something to do step together, then the transport is
flushed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import whence
from whence.core.clock import MemberId, address_of, member_id, reaches
from whence.core.clock.bounds import MAX_MESSAGE_BYTES
from whence.core.ports import Unreachable, Vacated
from whence.core.wire import read_header
from whence.errors import KeysError, RemoteError, UsageError
from whence.live.net.council import force_found, holds
from whence.live.net.guard import Plain, Secret, SecretGuard
from whence.live.net.hello import (
    DIRECTED,
    HELLO,
    Answer,
    Ask,
    Decide,
    Decided,
    Greeting,
    Hello,
    decode_hello,
    differences,
    encode_hello,
    read_direct,
    settings_of,
)
from whence.live.net.keys import Keys
from whence.live.net.memory import MemoryNetwork, MemoryTransport
from whence.live.net.node import NEVER
from whence.live.net.tcp import TcpTransport
from whence.live.net.tls import Pins, Protection
from whence.live.net.transport import (
    Connection,
    Faults,
    NetStats,
    Route,
    is_wildcard,
    parse_address,
)

if TYPE_CHECKING:
    from whence.live.net.node import Node

log = logging.getLogger("whence.live.net")

MAX_FORGED = 8
"""Packets that the guard refuses on one connection before it is closed. On a stream of an honest peer there are none,
unless its clock is off."""
MAX_LANES = 4
"""Connections that one certificate may have: its two lanes, and those that they follow and whose end is not known yet.
The oldest makes room: each holds a packet under way, and its own share of what is urgent."""
MAX_QUESTIONS = 64
"""Questions of a connection (who is there?) that are answered in a second."""
_NONCES = random.SystemRandom()  # `secrets` takes half a megabyte
_BOOTTIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)

INBOX_BYTES = 256 << 10
"""Bytes of packets that wait for a node before no more are read: one step's worth, so that steps stay short."""

LITTLE_BYTES = 4 << 10
"""Bytes of packets that are handled as soon as they are read. More wait until this iteration of the loop is over, and
share a step with what else comes in it."""

EARLY_S = 0.0015
"""How much too early a timer may fire: libuv counts in milliseconds, and rounds. A node that is woken too early has
nothing to do, and would sleep again, several times in the last millisecond."""

MAX_TOLD = 64
"""Peers whose settings differ, and of which that is logged."""


def boot_ns() -> int:
    """The members' clock. It is never set, and counts the time that the machine sleeps, where the system has such a
    clock: with `time.monotonic_ns`, which Linux stops meanwhile, a resumed laptop would still own its ticket."""
    return time.clock_gettime_ns(_BOOTTIME) if _BOOTTIME is not None else time.monotonic_ns()


class Host:
    """A port of this process, shared by the clusters it joins:
    `async with Host(listen=...) as host, join("a", host=host) as a, join("b", host=host) as b: ...`

    `listen`: `host:port`, port 0 for any free one. `advertise`: the address under which others reach it, where that is
    another one. One of `secret`, `tls` or `insecure=True` has to be given, except for a `MemoryNetwork`.
    """

    def __init__(
        self,
        listen: str = "127.0.0.1:0",
        *,
        advertise: str | None = None,
        secret: Secret | None = None,
        tls: Keys | str | os.PathLike[str] | None = None,
        insecure: bool = False,
        transport: MemoryNetwork | None = None,
        faults: Faults | None = None,
    ) -> None:
        name, _ = parse_address(listen)
        if is_wildcard(name) and advertise is None:
            raise UsageError(
                f"listening on {listen} needs advertise='host:port': the address under which others reach it"
            )
        if transport is not None and not isinstance(transport, MemoryNetwork):
            raise UsageError(f"transport is a MemoryNetwork, in the place of TCP, not {transport!r}")
        self.listen = listen
        self.advertise = advertise
        self.stats = NetStats()
        self.faults = faults
        self._memory = transport
        self._pins = Pins()
        in_memory = self.in_memory and secret is None and tls is None  # nobody else is in this process
        self.protection = Protection(Plain()) if in_memory else Protection.of(secret, tls, insecure, listen)
        if tls is not None and self.in_memory:
            raise UsageError("tls protects connections, and a MemoryNetwork has none")
        self.guard = self.protection.guard
        self._transport: TcpTransport | MemoryTransport | None = None
        self._tcp: TcpTransport | None = None
        self._nodes: dict[str, Node] = {}
        self._known_in: set[str] = set()
        self._replies: dict[int, asyncio.Future[Any]] = {}
        self._deciding: set[asyncio.Future[None]] = set()
        self._told: set[tuple[str, str]] = set()
        self._dirty: dict[str, Node] = {}
        self._scheduled = False
        self._held = False
        self._unflushed = False
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._boot = 0

    # -- life ---------------------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """Where others reach this host."""
        if self._transport is None:
            raise UsageError("the host has not started: async with Host(...) as host")
        return self.advertise or self._transport.address

    @property
    def in_memory(self) -> bool:
        """All of its peers are in this process, and time may be virtual."""
        return self._memory is not None

    async def start(self) -> None:
        if self._transport is not None:
            raise UsageError("the host has started already")
        transport = self._make_transport()
        if self.faults is not None:
            self.faults.listeners.append(self._fault)
        await transport.start(self._received)
        self._transport = transport

    def _make_transport(self) -> TcpTransport | MemoryTransport:
        if self._memory is not None:
            return self._memory.transport(self.listen, self.stats)
        largest = MAX_MESSAGE_BYTES + 512  # seal, direction
        self._tcp = TcpTransport(
            self.listen,
            self.stats,
            self._greeting,
            largest,
            closed=self._closed,
            proved=self._proved,
            unreachable=self._unreachable,
            server_tls=self.protection.server,
            client_tls=self.protection.client,
            keys=self.protection.keys,
        )
        return self._tcp

    async def close(self) -> None:
        """Stop listening and drop all connections; what clusters are left are not told."""
        transport, self._transport = self._transport, None
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._nodes.clear()
        if self.faults is not None and self._fault in self.faults.listeners:
            self.faults.listeners.remove(self._fault)
        if transport is not None:
            await transport.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def rekey(self, secret: Secret | None = None, tls: Keys | str | os.PathLike[str] | None = None) -> None:
        """As `Cluster.rekey`."""
        old = self.protection.keys
        if isinstance(self.guard, SecretGuard) and secret is not None and tls is None:
            self.guard.rekey(secret)
        elif old is None or self._tcp is None or secret is not None:
            raise UsageError("rekey: the kind of protection cannot change; give secret= or tls= as at the start")
        else:
            new = Protection.of(None, tls or old.directory, False)
            if new.keys is None or (new.keys.name, new.keys.role, new.keys.public) != (old.name, old.role, old.public):
                raise KeysError(f"{old.directory} is now of another member or cluster: start it again")
            self.protection = new
            self._tcp.rekey(new)

    # -- nodes --------------------------------------------------------------------------------------------------

    def new_id(self, persist: Callable[[int], int] = lambda boot: boot) -> MemberId:
        """The id of the next life at this address. No boot is ever used twice: it is at least the time in milliseconds,
        and above what `persist` has kept on disk."""
        self._boot = persist(max(self._boot + 1, time.time_ns() // 1_000_000))
        return member_id(self.address, self._boot)

    def attach(self, node: Node) -> None:
        if node.cluster in self._nodes:
            raise UsageError(f"this host is in cluster {node.cluster!r} already")
        self._nodes[node.cluster] = node
        self._known_in.add(node.cluster)

    def detach(self, node: Node) -> None:
        if self._nodes.get(node.cluster) is node:
            del self._nodes[node.cluster]
            self._dirty.pop(node.cluster, None)
            timer = self._timers.pop(node.cluster, None)
            if timer is not None:
                timer.cancel()

    @property
    def stays_put(self) -> bool:
        """Its address was chosen, so a restarted process can have it again."""
        return not self.in_memory and parse_address(self.advertise or self.listen)[1] != 0

    def unknown(self, cluster: str) -> bool:
        """No member of this cluster can know its address: the system has just chosen it."""
        return parse_address(self.advertise or self.listen)[1] == 0 and cluster not in self._known_in

    @property
    def clusters(self) -> list[str]:
        """The clusters this host is in."""
        return list(self._nodes)

    def _fault(self, what: str) -> None:
        for node in self._nodes.values():
            node.fault(what, time.time_ns())

    def wants_step(self, cluster: str) -> None:
        """The node of this cluster has something to do when this turn of the loop is over."""
        node = self._nodes.get(cluster)
        if node is not None:
            self._dirty[cluster] = node
            if not self._scheduled:
                self._scheduled = True
                asyncio.get_running_loop().call_soon(self.step)

    def step(self) -> None:
        """All nodes with something to do step, and what they send is written, once per peer."""
        self._scheduled = False
        if self._transport is None:
            return
        dirty, self._dirty = self._dirty, {}
        now, wall = time.monotonic_ns() if _BOOTTIME is None else time.clock_gettime_ns(_BOOTTIME), time.time_ns()
        for node in dirty.values():
            node.step(now, wall)
            if node.wake_at is not None and node.wake_at < node.planned:
                self._sleep(node, now)
        if self._unflushed:
            self._unflushed = False
            self._transport.flush()
        if self._held and all(node.waiting_bytes < INBOX_BYTES // 4 for node in self._nodes.values()):
            self._hold(False)

    def _hold(self, held: bool) -> None:
        """Back pressure: what we do not read, our peers' publishers wait for."""
        self._held = held
        self.stats.held += held
        if self._transport is not None:
            self._transport.hold(held)

    def _sleep(self, node: Node, now: int) -> None:
        """A timer for the node's next wake, which is earlier than the one there is."""
        if node.wake_at is None or self._nodes.get(node.cluster) is not node:
            return
        if (planned := self._timers.get(node.cluster)) is not None:
            planned.cancel()
        delay = max(0, node.wake_at - now) / 1e9 + EARLY_S
        self._timers[node.cluster] = asyncio.get_running_loop().call_later(delay, self._wake, node)
        node.planned = node.wake_at

    def _wake(self, node: Node) -> None:
        self._timers.pop(node.cluster, None)
        node.planned, now = NEVER, boot_ns()
        if node.wake_at is not None and node.wake_at > now:  # put off in the meantime
            self._sleep(node, now)
        elif node.wake_at is not None:
            self.wants_step(node.cluster)

    # -- out ----------------------------------------------------------------------------------------------------

    def ship(self, to: Sequence[str], packet: bytes, reliable: bool) -> None:
        """Send a packet to each of these addresses, when all nodes have stepped."""
        transport = self._transport
        if transport is None:
            return
        if self.faults is not None:
            wanted = len(to)
            to = [address for address in to if not self.faults.lose(self.address, address, reliable)]
            self.stats.lost_on_purpose += wanted - len(to)
        data = self.guard.seal(packet)
        stats = self.stats
        stats.sent += len(to)
        stats.sent_bytes += len(to) * len(data)
        transport.send(to, data, reliable)
        self._unflushed = True

    def congested(self) -> bool:
        return self._transport is not None and self._transport.congested()

    async def drained(self, timeout: float) -> bool:
        return self._transport is None or await self._transport.drained(timeout)

    # -- in -----------------------------------------------------------------------------------------------------

    def _received(self, packets: Sequence[bytes | memoryview], connection: Connection) -> None:
        """The packets of a chunk, from anybody: whatever they are, they disturb nobody else. A lone event is handled at
        once. More waits until this turn of the loop is over, and shares a step with what else comes in it."""
        stats, waiting = self.stats, 0
        for data in packets:
            if connection.closed:
                break
            stats.received += 1
            stats.received_bytes += len(data)
            try:
                packet = self.guard.open(data)
            except RemoteError as error:
                self._unauthentic(data, connection, error)
                continue
            route = connection.route
            if route is None or not packet.startswith(route.prefix):
                route = self._route(packet, connection)
                if route is None:
                    continue
            prefix, cluster, sender, target = route
            node = self._nodes.get(cluster)
            if node is None:
                stats.no_cluster += 1
            elif target is not None and target != node.me and not reaches(target, node.me):
                stats.other_life += 1
            else:
                node.receive(sender, memoryview(packet)[len(prefix) :], target is not None, connection)
                self._dirty[cluster] = node
                waiting = max(waiting, node.waiting_bytes)
        if waiting > INBOX_BYTES and not self._held:
            self._hold(True)
        if not waiting or self._scheduled:
            return
        if waiting > LITTLE_BYTES:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self.step)
        else:
            self.step()

    def _unauthentic(self, data: bytes | memoryview, connection: Connection, error: RemoteError) -> None:
        self.stats.unauthentic += 1
        if connection.peer is None:
            connection.refuse("it greets without any protection" if _greets(data) else str(error))
        else:  # whoever replays a greeting cannot seal what follows
            connection.forged += 1
            if connection.forged >= MAX_FORGED:
                connection.refuse(str(error))

    def _route(self, packet: bytes, connection: Connection) -> Route | None:
        """Where a packet goes that does not begin as the last one on its connection did; None: nowhere."""
        stats, inner = self.stats, packet
        try:
            kind = packet[0] if packet else -1
            if kind == HELLO:
                self._hello(decode_hello(packet), connection)
                return None
            target = None
            if kind == DIRECTED:
                target, inner = read_direct(packet)
            cluster, sender, body = read_header(inner)
        except RemoteError as error:
            stats.bad_packet += 1
            if connection.peer is None:
                connection.refuse(str(error))
            connection.close()
            return None
        if connection.peer != address_of(sender):
            stats.other_sender += 1
            return None
        if connection.urgent and target is None:  # gossip on the lane that is never held: no member sends it there
            connection.urgent = False
            stats.not_urgent += 1
            connection.hold(self._held)
        route = connection.route = Route(packet[: len(packet) - len(body)], cluster, sender, target)
        return route

    # -- hello --------------------------------------------------------------------------------------------------

    def _greeting(self, urgent: bool) -> bytes:
        """The first packet on a connection that this host opens."""
        return self.guard.seal(encode_hello(Greeting(self.address, urgent)))

    def _hello(self, hello: Hello, connection: Connection) -> None:
        match hello:
            case Greeting():
                if connection.peer is None:
                    if connection.name is not None:  # a certificate's: nobody speaks for somebody else's address
                        self._claim(hello.address, connection.name)
                    connection.peer = hello.address
                    connection.urgent = hello.urgent
            case Ask() | Decide() if not self._may_ask(hello.address, connection):
                pass
            case Ask():
                self._say(hello.address, self.answer(hello))
            case Answer() | Decided():
                waiting = self._replies.get(hello.nonce)
                if waiting is not None and not waiting.done():
                    waiting.set_result(hello)
            case Decide():
                task = asyncio.ensure_future(self._decide(hello, connection.is_publisher))
                self._deciding.add(task)
                task.add_done_callback(self._deciding.discard)

    def _may_ask(self, address: str, connection: Connection) -> bool:
        """It asks for itself, else it could have this host dial whom it likes; and not all the time."""
        second, count = int(asyncio.get_running_loop().time()), connection.asked[1] + 1
        connection.asked = (second, count if connection.asked[0] == second else 1)
        if address == connection.peer and connection.asked[1] <= MAX_QUESTIONS:
            return True
        self.stats.unanswered += 1
        return False

    async def _decide(self, decide: Decide, by_publisher: bool) -> None:
        """Somebody with the cluster's keys wants its ring founded again (rule C0)."""
        node, refused = self._nodes.get(decide.cluster), ""
        if node is None:
            refused = f"this process is not in {decide.cluster!r}"
        elif not by_publisher:
            refused = "a member that may only receive cannot decide that"
        elif len(self._deciding) > 1:
            refused = "another decision is being carried out"
        else:
            log.warning("%s: %s says that the council is lost for good", decide.cluster, decide.address)
            try:
                await force_found(node, boot_ns())
            except UsageError as error:
                refused = str(error)
        self._say(decide.address, Decided(decide.nonce, refused))

    async def decide(self, address: str, cluster: str, timeout: float) -> str:
        """Have the member at this address found the ring again; returns why it does not. Raises TimeoutError."""
        question = Decide(cluster, self.address, _NONCES.getrandbits(48))
        decided: Decided = await self._reply(address, question, timeout)
        return decided.refused

    async def _reply(self, address: str, question: Ask | Decide, timeout: float) -> Any:
        """The answer to a question. Raises TimeoutError."""
        waiting = self._replies[question.nonce] = asyncio.get_running_loop().create_future()
        try:
            self._say(address, question)
            return await asyncio.wait_for(waiting, timeout)
        finally:
            del self._replies[question.nonce]

    def _claim(self, address: str, name: str) -> None:
        try:
            before = self._pins.claim(address, name)
        except RemoteError:  # one of the two lies: whoever listens there can show who it is
            self._say(address, Answer("-", 0))
            raise
        if self._tcp is not None and self._pins.connections(address) > MAX_LANES:
            self._tcp.drop_oldest(address, name)
        if before:
            if self._tcp is not None:
                self._tcp.drop(before, name)
            for node in list(self._nodes.values()):
                node.feed(Vacated(before))

    def _proved(self, address: str, name: str) -> None:
        """This process has reached the address, and its listener shows the certificate of `name`."""
        liar = self._pins.prove(address, name)
        if liar and self._tcp is not None:
            log.warning("%s has spoken for %s, which is %s's: its connections are closed", liar, address, name)
            self._tcp.drop(address, liar)

    def _closed(self, connection: Connection) -> None:
        if connection.peer is not None and connection.name is not None:
            self._pins.release(connection.peer, connection.name)

    def _unreachable(self, address: str) -> None:
        for node in list(self._nodes.values()):
            node.feed(Unreachable(address))

    def _say(self, address: str, hello: Hello) -> None:
        if self._transport is not None:
            self.ship((address,), encode_hello(hello), True)
            self._transport.flush()

    def why_unreached(self, address: str) -> str:
        """Why there is no answer from this address, as far as it is known."""
        return "" if self._tcp is None else self._tcp.failures.get(address, "")

    def refused(self) -> dict[str, str]:
        """The last reason for each address whose connection was refused, and when."""
        return {} if self._tcp is None else self._tcp.listener.refusals.told()

    def answer(self, ask: Ask) -> Answer:
        """Who this host is in the cluster."""
        node = self._nodes.get(ask.cluster)
        if node is None:
            return Answer(ask.cluster, ask.nonce)
        mine = settings_of(node.member.config)
        self._differ(ask.cluster, mine, ask.settings, ask.address)
        member = node.me if node.how is not None else ""
        holding = holds(node, time.monotonic_ns())
        run, lag = node.run if member else "", (node.member.blocked(), node.backlog.events)
        ticket = node.ticket if node.member.may_publish and node.ticket is not None else -1
        about = (run, node.member.order, whence.__version__, ticket, *lag)
        return Answer(ask.cluster, ask.nonce, member, mine, node.remembers, holding, *about)

    def _differ(self, cluster: str, mine: Mapping[str, str], theirs: Mapping[str, str], there: str) -> str:
        """Log, once a peer, how its settings differ; returns that where the two cannot work together."""
        said, decisive = differences(mine, theirs, there)
        if said and (there, said) not in self._told and len(self._told) < MAX_TOLD:
            self._told.add((there, said))
            log.warning("%s: settings differ: %s; give all members the same", cluster, said)
        return said if decisive else ""

    async def ask(self, address: str, cluster: str, timeout: float) -> Answer | None:
        """Who the host at this address is in the cluster (no `member`: it is not in it); None: there was no answer.
        Raises UsageError if their settings cannot work together."""
        node = self._nodes.get(cluster)
        mine = {} if node is None else settings_of(node.member.config)
        try:
            question = Ask(cluster, self.address, _NONCES.getrandbits(48), mine)
            answer: Answer = await self._reply(address, question, timeout)
        except TimeoutError:
            return None
        differ = self._differ(cluster, mine, answer.settings, address)
        if differ:
            raise UsageError(f"{cluster!r} cannot be joined: {differ}. Give all members the same settings")
        return answer


def _greets(data: bytes | memoryview) -> bool:
    """It is a greeting that nothing protects. One sealed packet in 256 begins with the same byte."""
    try:
        return data[:1] == bytes((HELLO,)) and isinstance(decode_hello(bytes(data)), Greeting)
    except RemoteError:
        return False
