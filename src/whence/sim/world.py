"""Virtual time: a heap of things to come, driving the very members that run live.

The world hands inputs to members and carries out their outputs in order; it decides nothing itself. Same scenario,
same seed, same schedule: same run, step by step, whatever PYTHONHASHSEED is. Equal times are ordered by when they
were planned.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from whence import ports
from whence.clock import MemberId, address_of, boot_of
from whence.config import Config
from whence.errors import RemoteError
from whence.member import Member
from whence.recorder import Recorder, Sink
from whence.sim import faults
from whence.sim.actions import Schedule
from whence.sim.chaos import expand
from whence.sim.checks import Checks, Violation
from whence.sim.host import App, Host, LocalClock, Seat
from whence.sim.network import Network, key_of
from whence.sim.operator import Operator
from whence.sim.scenario import Cluster, Loaded, Scenario, config_of
from whence.sim.tally import Tally
from whence.wire import Message, pack, unpack

MAX_SPINS = 1000
"""Wakes in a row that ask for another one at once: more is a member that never sleeps."""
CONTACTS = 3
"""Members that a starting process is told of."""


class MakeMember(Protocol):
    """How members are made; tests put broken ones here."""

    def __call__(self, me: MemberId, config: Config, rng: random.Random, checkpoint: bytes | None) -> Member: ...


class World:
    """One run. `schedule` defaults to what scenario and seed expand to."""

    def __init__(
        self,
        loaded: Loaded,
        seed: int,
        *,
        schedule: Schedule | None = None,
        make: MakeMember = Member,
        sink: Sink | None = None,
    ) -> None:
        self.scenario: Scenario = loaded.scenario
        self.seed = seed
        self.schedule = expand(loaded, seed) if schedule is None else schedule
        self.make = make
        self.sink = sink
        self.run_id = f"{loaded.name}-{seed}"
        self.now = 0
        self.end = self.scenario.duration + self.scenario.settle
        self.clusters: tuple[Cluster, ...] = self.scenario.cluster
        base = Path(loaded.path).parent if loaded.path else None
        self.network = Network(self.scenario.network, self.scenario.names, seed, base)
        self.hosts = {n: Host(n, self._clock(n)) for n in self.scenario.names}
        self.orders = [self.scenario.orders(c, seed) for c in self.clusters]
        self.free = [c.free for c in self.clusters]
        self._configs: dict[tuple[int, str], Config] = {}
        self.tally = Tally(self)
        self.checks = Checks(self)
        self.operator = Operator(self)
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._planned = 0
        self._sized = self.scenario.wire or self.scenario.network.uplink > 0
        self.sample: Message | None = None  # the last message with items: raw material for hostile peers
        self._packed: tuple[Message | None, MemberId, int, bytes] = (None, "", 0, b"")
        self._handlers: dict[type, Callable[[Seat, Any], None]] = {
            ports.Published: self._on_published,
            ports.Arrived: self.tally.arrived,
            ports.Deliver: self._on_deliver,
            ports.Dropped: self.tally.dropped,
            ports.Asked: self.tally.asked,
            ports.GaveUp: self._on_gave_up,
            ports.Ticket: self.tally.ticket,
            ports.Moved: self.tally.moved,
            ports.Contracted: self.tally.contracted,
            ports.TakeSnapshot: self._on_take_snapshot,
            ports.InstallSnapshot: self._on_install_snapshot,
            ports.Joined: self._on_joined,
            ports.Left: self._on_left,
            ports.CutOff: self.tally.cut_off,
            ports.Refused: self.tally.refused,
            ports.Remember: lambda seat, out: None,  # a crash saves the checkpoint of the last completed step
        }

    # -- time ------------------------------------------------------------------------------------------------

    def plan(self, at: int, what: Callable[..., None], *args: Any) -> None:
        """Call this at a true time."""
        self._planned += 1
        heapq.heappush(self._heap, (at, self._planned, what, args))

    def run(self, progress: Callable[[int, int], None] | None = None) -> Violation | None:
        """Run to the end, or to the first violation. `progress(now, end)` is called now and then."""
        heap, end, count = self._heap, self.end, 0
        try:
            self._bootstrap()
            while heap and heap[0][0] <= end:
                at, _, what, args = heapq.heappop(heap)
                self.now = at
                what(*args)
                count += 1
                if progress is not None and not count & 0xFFF:
                    progress(at, end)
            self.now = end
            self.checks.finish()
        except Violation as violation:
            return violation
        if progress is not None:
            progress(end, end)
        return None

    def _bootstrap(self) -> None:
        scenario = self.scenario
        for i, cluster in enumerate(self.clusters):
            for name in scenario.coordinators_of(cluster):
                self.hosts[name].wants[i] = True
        first = [n for n in scenario.names if n not in scenario.absent]
        if scenario.bootstrap == "preset":
            for host in (self.hosts[n] for n in first):  # everybody's id must be known before anybody starts
                host.boot = 1
                host.up = True
            for name in first:
                self.plan(0, self.seat_all, self.hosts[name], False, True)
        else:
            founders = {scenario.founder_of(c) for c in self.clusters}
            gap = scenario.join_every if scenario.join_every is not None else scenario.round
            for name in first:
                if name in founders:
                    self.plan(0, self.start, name, False, True)
            for k, name in enumerate(n for n in first if n not in founders):
                self.plan(scenario.round + k * gap, self.start, name, False)
        for action in self.schedule:
            self.plan(action.at, faults.carry_out, self, action)
        self.operator.begin()

    # -- processes -------------------------------------------------------------------------------------------

    def _clock(self, name: str) -> LocalClock:
        clocks = self.scenario.clocks
        rng = random.Random(f"{self.seed}/clock/{name}")
        return LocalClock(rng.randint(0, clocks.offset), rng.randint(-clocks.drift, clocks.drift))

    def config(self, cluster: int, order: str) -> Config:
        """The settings of the members of a cluster that chose this order."""
        found = self._configs.get((cluster, order))
        if found is None:
            settings = self.clusters[cluster]
            found = config_of(self.scenario, settings, order, self.network.typical)
            self._configs[cluster, order] = found
        return found

    def start(self, name: str, disk: bool, genesis: bool = False) -> None:
        """The next life of a process begins."""
        host = self.hosts[name]
        if not host.up:
            host.boot += 1
            host.up = True
            self.seat_all(host, disk, genesis)

    def seat_all(self, host: Host, disk: bool, genesis: bool) -> None:
        """Make and start the members of a process, one per cluster."""
        host.seats = {}
        for i, cluster in enumerate(self.clusters):
            if host.name not in self.scenario.members_of(cluster):
                continue
            checkpoint, state = host.disk.get(i, (None, None)) if disk else (None, None)
            order = self.orders[i][host.name]
            rng = random.Random(f"{self.seed}/member/{cluster.name}/{host.name}/{host.boot}")
            member = self.make(host.id, self.config(i, order), rng, checkpoint)
            recorder = None if self.sink is None else self._recorder(host, i, order, checkpoint is not None)
            seat = Seat(host, i, order, member, App() if state is None else App.decode(state), recorder)
            host.seats[i] = seat
            self.checks.seated(seat)
            self.tally.seated(seat)
            self.step(seat, ports.Start(self._contacts(host, i, genesis), genesis))
            if genesis and host.name == self.scenario.founder_of(cluster):
                self.step(seat, ports.FoundRing())
            if host.wants.get(i):
                self.step(seat, ports.Coordinate())

    def _recorder(self, host: Host, cluster: int, order: str, goes_on: bool) -> Recorder:
        assert self.sink is not None
        name = self.clusters[cluster].name
        before = host.saved.get(cluster) if goes_on else None
        return Recorder(self.sink, run=self.run_id, cluster=name, member=host.id, order=order, previous=before)

    def _contacts(self, host: Host, cluster: int, genesis: bool) -> tuple[MemberId, ...]:
        names = self.scenario.members_of(self.clusters[cluster])
        if genesis and self.scenario.bootstrap == "join":
            return ()
        others = [self.hosts[n] for n in names if n != host.name]
        if genesis:
            return tuple(h.id for h in others if h.up)
        ready = [h for h in others if h.up and cluster in h.seats and h.seats[cluster].joined]
        up = ready or [h for h in others if h.up] or [h for h in others if h.boot]
        rng = random.Random(f"{self.seed}/contacts/{host.id}")
        return tuple(h.id for h in rng.sample(up, min(CONTACTS, len(up))))

    def crash(self, name: str) -> bool:
        """The process stops dead. Its disk holds the checkpoint of its last completed step."""
        host = self.hosts[name]
        if not host.up:
            return False
        host.disk = {  # a member that has not joined yet has nothing to go on from
            i: (seat.member.checkpoint(), seat.app.encode()) for i, seat in host.seats.items() if seat.joined
        }
        host.saved = {i: seat.id for i, seat in host.seats.items() if seat.joined}
        for seat in host.seats.values():
            if seat.recorder is not None:
                seat.recorder.row("crash", self.now)
        self.stop(host)
        return True

    def stop(self, host: Host) -> None:
        """No process any more: what is on its way to it is lost."""
        for seat in host.seats.values():
            self.checks.unseated(seat)
            self.tally.unseated(seat)
        host.up = False
        host.seats = {}

    # -- steps -----------------------------------------------------------------------------------------------

    def step(self, seat: Seat, event: ports.Input) -> None:
        """One input to one member, and its outputs carried out in order."""
        local = seat.host.clock.at(self.now)
        try:
            outs = seat.member.handle(event, local)
        except Exception as error:
            raise self.checks.violation(
                "core", f"{type(error).__name__}: {error} on {type(event).__name__}", seat
            ) from error
        self.tally.steps += 1
        for out in outs:
            if type(out) is ports.Send:
                self._send(seat, out)
            else:
                self._handlers[type(out)](seat, out)
        if seat.recorder is not None:
            seat.recorder.record(outs, self.now)
        self.checks.stepped(seat, event, outs)
        if not seat.left:
            self.sleep(seat)

    def sleep(self, seat: Seat) -> None:
        wake_at = seat.member.wake_at
        if wake_at is None:
            return
        at = seat.host.clock.when(wake_at)
        if at <= self.now:
            at = self.now + 1
            seat.spins += 1
            if seat.spins > MAX_SPINS:
                raise self.checks.violation("livelock", f"asked {seat.spins} times in a row to be woken at once", seat)
        else:
            seat.spins = 0
        if seat.wake < 0 or at < seat.wake:
            seat.wake = at
            self.plan(at, self._wake, seat, at)

    def _wake(self, seat: Seat, planned: int) -> None:
        if seat.wake != planned:  # superseded by an earlier one
            return
        seat.wake = -1
        if seat.host.seats.get(seat.cluster) is not seat:
            return
        wake_at = seat.member.wake_at
        if wake_at is not None and seat.host.clock.at(self.now) < wake_at:
            self.sleep(seat)  # put off in the meantime
        else:
            self.step(seat, ports.Wake())

    # -- messages --------------------------------------------------------------------------------------------

    def _send(self, seat: Seat, out: ports.Send) -> None:
        src, dst = seat.host.name, address_of(out.to)
        host = self.hosts.get(dst)
        if host is None:  # an address that hostile bytes have made up
            self.tally.nowhere += 1
            return
        message: object = out.message
        size = 0
        if self._sized:
            data = self._pack(seat, out.message)
            size = len(data)
            if self.scenario.wire:
                message = data
        self.tally.sent(type(out.message).__name__, size)
        if out.reliable:
            at = self.network.stream(self.now, seat.id, src, out.to, dst, size)
            if at is not None:
                self.plan(at, self._arrive, host, seat.cluster, seat.id, out.to, message)
        else:
            for at in self.network.datagram(self.now, src, dst, size):
                self.plan(at, self._arrive, host, seat.cluster, seat.id, None, message)

    def _pack(self, seat: Seat, message: Message) -> bytes:
        """The bytes of a message; gossip sends one object to many, so the last one is remembered."""
        last, sender, cluster, data = self._packed
        if last is not message or sender != seat.id or cluster != seat.cluster:
            data = pack(self.clusters[seat.cluster].name, seat.id, message)
            self._packed = (message, seat.id, seat.cluster, data)
            if getattr(message, "items", None):
                self.sample = message
        return data

    def _arrive(self, host: Host, cluster: int, sender: MemberId, to: MemberId | None, message: Any) -> None:
        """A datagram reaches whoever lives at the address; a stream (`to`) only the life it was opened to, if it names
        one (boot 0: any)."""
        seat = host.seats.get(cluster)
        if seat is None or (to is not None and to != seat.id and boot_of(to)):
            self.tally.dead_letters += 1
            return
        if self.scenario.wire:
            self.receive_bytes(seat, sender, message)
        else:
            self.step(seat, ports.Received(sender, message))

    def receive_bytes(self, seat: Seat, sender: MemberId, data: bytes) -> None:
        """As live: through the codec, whose refusal the member is told of."""
        try:
            message = unpack(data).message
        except RemoteError as error:
            self.tally.bad_bytes += 1
            self.step(seat, ports.BadBytes(sender, f"{type(error).__name__}: {error}"))
            return
        self.step(seat, ports.Received(sender, message))

    # -- outputs ---------------------------------------------------------------------------------------------

    def _on_published(self, seat: Seat, out: ports.Published) -> None:
        self.checks.published(seat, out.frame)
        self.tally.published(seat, out.frame)

    def _on_deliver(self, seat: Seat, out: ports.Deliver) -> None:
        self.checks.delivered(seat, out)
        self.tally.delivered(seat, out)

    def _on_gave_up(self, seat: Seat, out: ports.GaveUp) -> None:
        self.checks.gave_up(seat, out)
        self.tally.gave_up(seat, out)

    def _on_take_snapshot(self, seat: Seat, out: ports.TakeSnapshot) -> None:
        state = seat.app.encode()  # now: the outputs after this one are not in it
        self.checks.snapshot_taken(seat, out.token, state)
        self.plan(self.now + self.scenario.snapshot_delay, self._hand_over, seat, out.token, state)

    def _hand_over(self, seat: Seat, token: str, state: bytes) -> None:
        if seat.host.seats.get(seat.cluster) is seat:
            self.step(seat, ports.SnapshotTaken(token, state))

    def _on_install_snapshot(self, seat: Seat, out: ports.InstallSnapshot) -> None:
        self.checks.snapshot_installed(seat, out)
        seat.app = App.decode(out.state)

    def _on_joined(self, seat: Seat, out: ports.Joined) -> None:
        seat.joined = True
        self.checks.joined(seat, out)
        self.tally.joined(seat, out)

    def _on_left(self, seat: Seat, out: ports.Left) -> None:
        seat.left = True
        self.tally.left += 1
        self.plan(self.now, faults.gone, self, seat)

    def rng(self, purpose: str) -> random.Random:
        """A generator of its own for a purpose."""
        return random.Random(f"{self.seed}/{purpose}")

    def key(self, text: str) -> int:
        """64 bits that depend on seed and text alone."""
        return key_of(f"{self.seed}/{text}")
