"""The simulator's event loop: makes planned calls in virtual time, and drives the same members that run live.

The world passes inputs to members and carries out their outputs in order; it makes no protocol decisions. The same
scenario, seed and schedule give the same run, step by step, whatever PYTHONHASHSEED is. Calls at equal times run in the
order in which they were planned.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from whence.core import ports
from whence.core.clock import MemberId, address_of, reaches
from whence.core.config import Config
from whence.core.member import Member
from whence.core.recorder import Recorder, Sink
from whence.core.ring.messages import RingMessage, by_receiver
from whence.core.wire import Message, pack, unpack
from whence.errors import RemoteError
from whence.lab.sim.actions import Schedule
from whence.lab.sim.checks import Checks, Violation
from whence.lab.sim.host import App, Instance, SimHost
from whence.lab.sim.lies import Key
from whence.lab.sim.scenario import Loaded, config_of
from whence.lab.sim.stage import Stage
from whence.lab.sim.tally import Tally

MAX_SPINS = 1000
"""Consecutive immediate wakes that are tolerated; more is a livelock."""
UNPACKED = 256
"""Decoded packets that are remembered."""
CONTACTS = 3
"""Members that a starting process is given as contacts."""


def _message_of(data: bytes) -> Message:
    return unpack(data).message


MakeMember = Callable[..., Member]
"""Makes members of `(id, config, rng, checkpoint)`, and with roles of the key; tests pass faulty ones."""

Watch = Callable[[Member, list[ports.Output], int], None]
"""Called after each step of a member, with its outputs and the time on its clock, by experiments that count."""


class World(Stage):
    """The members of one run. `whence.lab.sim.run.play` adds the faults and the operator."""

    def __init__(
        self,
        loaded: Loaded,
        seed: int,
        *,
        schedule: Schedule | None = None,
        make: MakeMember = Member,
        watch: Watch | None = None,
        sink: Sink | None = None,
    ) -> None:
        super().__init__(loaded, seed, schedule, sink)
        self.make, self.watch = make, watch
        self.run_id = f"{loaded.name}-{seed}"
        self._configs: dict[tuple[int, str], Config] = {}
        self.tally = Tally(self)
        self.checks = Checks(self, self.tally)
        self._sized = self.scenario.wire or self.scenario.network.uplink > 0
        self.sample: Message | None = None  # the last message with items, for hostile peers to alter
        # Gossip brings the same packet to many members: decode it once. Messages are immutable.
        self._unpack = lru_cache(UNPACKED)(_message_of)
        self._packed: tuple[Message | None, MemberId, int, bytes] = (None, "", 0, b"")
        self._handlers: dict[type, Callable[[Instance, Any], None]] = {
            ports.Published: self._on_published,
            ports.Arrived: self.tally.arrived,
            ports.Deliver: self._on_deliver,
            ports.Dropped: self.tally.dropped,
            ports.Asked: self.tally.asked,
            ports.GaveUp: self._on_gave_up,
            ports.Ticket: self.tally.ticket,
            ports.Copied: self.checks.copied,
            ports.SentTo: lambda instance, out: None,  # nothing is sent to one member here
            ports.Moved: self.tally.moved,
            ports.Contracted: self.tally.contracted,
            ports.TakeSnapshot: self._on_take_snapshot,
            ports.InstallSnapshot: self._on_install_snapshot,
            ports.Joined: self._on_joined,
            ports.Left: self._on_left,
            ports.CutOff: self._on_cut_off,
            ports.Refused: self.tally.refused,
            ports.MemberUp: lambda instance, out: None,  # who is there, the world knows
            ports.MemberDown: lambda instance, out: None,
            ports.Behind: self._on_behind,
            ports.Remember: lambda instance, out: None,  # a crash saves the checkpoint of the last completed step
        }

    # -- time ------------------------------------------------------------------------------------------------

    def run(self, progress: Callable[[int, int], None] | None = None) -> Violation | None:
        """Make planned calls, to the end or to the first violation. Calls `progress(now, end)` from time to time."""
        heap, end, count = self._heap, self.end, 0
        try:
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

    def bootstrap(self) -> None:
        """Plan the start of the first processes."""
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
                self.plan(0, self.start_members, self.hosts[name], False, True)
        else:
            founders = {scenario.founder_of(c) for c in self.clusters}
            gap = scenario.join_every if scenario.join_every is not None else scenario.round
            for name in first:
                if name in founders:
                    self.plan(0, self.start, name, False, True)
            for k, name in enumerate(n for n in first if n not in founders):
                self.plan(scenario.round + k * gap, self.start, name, False)

    # -- processes -------------------------------------------------------------------------------------------

    def config(self, cluster: int, order: str) -> Config:
        """The settings of the members of a cluster with this order."""
        found = self._configs.get((cluster, order))
        if found is None:
            settings = self.clusters[cluster]
            found = config_of(self.scenario, settings, order, self.network.typical)
            self._configs[cluster, order] = found
        return found

    def start(self, name: str, disk: bool, genesis: bool = False) -> None:
        """Start a process, as a new life."""
        host = self.hosts[name]
        if not host.up:
            host.boot += 1
            host.up = True
            self.start_members(host, disk, genesis)

    def start_members(self, host: SimHost, disk: bool, genesis: bool) -> None:
        """Make and start the members of a process, one per cluster."""
        host.instances = {}
        for i, cluster in enumerate(self.clusters):
            if host.name not in self.scenario.members_of(cluster):
                continue
            checkpoint, state = host.disk.get(i, (None, None)) if disk else (None, None)
            order = self.orders[i][host.name]
            rng = self.rng(f"member/{cluster.name}/{host.name}/{host.boot}")
            seal = (Key(cluster.name, host.name not in self.liars[i]),) if cluster.roles else ()
            member = self.make(host.id, self.config(i, order), rng, checkpoint, *seal)
            recorder = None if self.sink is None else self._recorder(host, i, order, checkpoint is not None)
            instance = Instance(host, i, order, member, App() if state is None else App.decode(state), recorder)
            host.instances[i] = instance
            self.checks.started(instance)
            self.tally.started(instance)
            self.step(instance, ports.Start(self._contacts(host, i, genesis), genesis))
            if genesis and host.name == self.scenario.founder_of(cluster):
                self.step(instance, ports.FoundRing())
            if host.wants.get(i):
                self.step(instance, ports.Coordinate())

    def _recorder(self, host: SimHost, cluster: int, order: str, goes_on: bool) -> Recorder:
        assert self.sink is not None
        name = self.clusters[cluster].name
        before = host.saved.get(cluster) if goes_on else None
        return Recorder(self.sink, run=self.run_id, cluster=name, member=host.id, order=order, previous=before)

    def _contacts(self, host: SimHost, cluster: int, genesis: bool) -> tuple[MemberId, ...]:
        names = self.scenario.members_of(self.clusters[cluster])
        if genesis and self.scenario.bootstrap == "join":
            return ()
        others = [self.hosts[n] for n in names if n != host.name]
        if genesis:
            return tuple(h.id for h in others if h.up)
        ready = [h for h in others if h.up and cluster in h.instances and h.instances[cluster].joined]
        up = ready or [h for h in others if h.up] or [h for h in others if h.boot]
        rng = self.rng(f"contacts/{host.id}")
        return tuple(h.id for h in rng.sample(up, min(CONTACTS, len(up))))

    def crash(self, name: str) -> bool:
        """Crash a process. Its disk holds the checkpoint of its last completed step."""
        host = self.hosts[name]
        if not host.up:
            return False
        host.disk = {  # a member that has not joined yet has no checkpoint
            i: (instance.member.checkpoint(), instance.app.encode())
            for i, instance in host.instances.items()
            if instance.joined
        }
        host.saved = {i: instance.id for i, instance in host.instances.items() if instance.joined}
        for instance in host.instances.values():
            if instance.recorder is not None:
                instance.recorder.row("crash", self.now)
        self.stop(host)
        return True

    def stop(self, host: SimHost) -> None:
        """Stop a process; messages in flight to it are lost."""
        for instance in host.instances.values():
            self.checks.stopped(instance)
            self.tally.stopped(instance)
        host.up = False
        host.instances = {}

    # -- steps -----------------------------------------------------------------------------------------------

    def step(self, instance: Instance, event: ports.Input) -> list[ports.Output]:
        """Pass one input to a member, and carry out its outputs in order."""
        local = instance.host.clock.at(self.now)
        try:
            outs = instance.member.handle(event, local)
        except Exception as error:
            raise self.checks.violation(
                "core", f"{type(error).__name__}: {error} on {type(event).__name__}", instance
            ) from error
        self.tally.steps += 1
        if self.watch is not None:
            self.watch(instance.member, outs, local)
        for out in outs:
            if type(out) is ports.Send:
                self._send(instance, out)
            else:
                self._handlers[type(out)](instance, out)
        if instance.recorder is not None:
            instance.recorder.record(outs, self.now)
        self.checks.stepped(instance, event, outs)
        if not instance.left:
            self.sleep(instance)
        return outs

    def sleep(self, instance: Instance) -> None:
        wake_at = instance.member.wake_at
        if wake_at is None:
            return
        at = instance.host.clock.when(wake_at)
        if at <= self.now:
            at = self.now + 1
            instance.spins += 1
            if instance.spins > MAX_SPINS:
                raise self.checks.violation(
                    "livelock", f"asked {instance.spins} times in a row to be woken at once", instance
                )
        else:
            instance.spins = 0
        if instance.wake < 0 or at < instance.wake:
            instance.wake = at
            self.plan(at, self._wake, instance, at)

    def _wake(self, instance: Instance, planned: int) -> None:
        if instance.wake != planned:  # superseded by an earlier one
            return
        instance.wake = -1
        if instance.host.instances.get(instance.cluster) is not instance:
            return
        wake_at = instance.member.wake_at
        if wake_at is not None and instance.host.clock.at(self.now) < wake_at:
            self.sleep(instance)  # put off in the meantime
        else:
            self.step(instance, ports.Wake())

    # -- messages --------------------------------------------------------------------------------------------

    def _send(self, instance: Instance, out: ports.Send) -> None:
        src, dst = instance.host.name, address_of(out.to)
        host = self.hosts.get(dst)
        if host is None:  # an address invented by hostile bytes
            self.tally.nowhere += 1
            return
        message: object = out.message
        size = 0
        if self._sized:
            data = self._pack(instance, out.message)
            size = len(data)
            if self.scenario.wire:
                message = data
        self.tally.sent(type(out.message).__name__, size)
        if out.reliable:
            at = self.network.stream(self.now, instance.id, src, out.to, dst, size)
            if at is not None:
                self.plan(at, self._arrive, host, instance.cluster, instance.id, out.to, message)
        else:
            for at in self.network.datagram(self.now, src, dst, size):
                self.plan(at, self._arrive, host, instance.cluster, instance.id, None, message)

    def _pack(self, instance: Instance, message: Message) -> bytes:
        """Encode a message; the last one is cached, since gossip sends one object to many."""
        last, sender, cluster, data = self._packed
        if last is not message or sender != instance.id or cluster != instance.cluster:
            data = pack(self.clusters[instance.cluster].name, instance.id, message)
            self._packed = (message, instance.id, instance.cluster, data)
            if getattr(message, "items", None):
                self.sample = message
        return data

    def _arrive(self, host: SimHost, cluster: int, sender: MemberId, to: MemberId | None, message: Any) -> None:
        """A datagram reaches the current member at the address; a stream (`to`) only the member it was opened to,
        unless it was opened to any life."""
        instance = host.instances.get(cluster)
        if instance is None or (to is not None and not reaches(to, instance.id)):
            self.tally.dead_letters += 1
            return
        if self.scenario.wire:
            self.receive_bytes(instance, sender, message)
        else:
            self.step(instance, ports.Received(sender, message))

    def receive_bytes(self, instance: Instance, sender: MemberId, data: bytes) -> None:
        """Decode as in a live cluster; the member is told of bytes that the codec refuses."""
        try:
            message = self._unpack(data)
            receives_only = self.clusters[instance.cluster].roles and address_of(sender) in self.liars[instance.cluster]
            if receives_only and isinstance(message, RingMessage):
                message = by_receiver(message)
        except RemoteError as error:
            self.tally.bad_bytes += 1
            self.step(instance, ports.BadBytes(sender, f"{type(error).__name__}: {error}"))
            return
        self.step(instance, ports.Received(sender, message))

    # -- outputs ---------------------------------------------------------------------------------------------

    def _on_published(self, instance: Instance, out: ports.Published) -> None:
        self.checks.published(instance, out.frame)
        self.tally.published(instance, out.frame)

    def _on_deliver(self, instance: Instance, out: ports.Deliver) -> None:
        self.checks.delivered(instance, out)
        self.tally.delivered(instance, out)

    def _on_gave_up(self, instance: Instance, out: ports.GaveUp) -> None:
        self.checks.gave_up(instance, out)
        self.tally.gave_up(instance, out)

    def _on_cut_off(self, instance: Instance, out: ports.CutOff) -> None:
        self.checks.cut_off(instance, out)
        self.tally.cut_offs += 1

    def _on_take_snapshot(self, instance: Instance, out: ports.TakeSnapshot) -> None:
        state = instance.app.encode()  # taken now: later outputs are not in it
        self.checks.snapshot_taken(instance, out.token, state)
        self.plan(self.now + self.scenario.snapshot_delay, self._hand_over, instance, out.token, state)

    def _hand_over(self, instance: Instance, token: str, state: bytes) -> None:
        if instance.host.instances.get(instance.cluster) is instance:
            self.step(instance, ports.SnapshotTaken(token, state))

    def _on_install_snapshot(self, instance: Instance, out: ports.InstallSnapshot) -> None:
        self.checks.snapshot_installed(instance, out)
        instance.app = App.decode(out.state)

    def _on_joined(self, instance: Instance, out: ports.Joined) -> None:
        instance.joined = True
        self.checks.joined(instance, out)
        self.tally.joined(instance, out)

    def _on_left(self, instance: Instance, out: ports.Left) -> None:
        instance.left = True
        self.tally.left += 1
        self.plan(self.now, self._gone, instance)

    def _on_behind(self, instance: Instance, out: ports.Behind) -> None:
        """The runtime begins another life, which joins with a snapshot."""
        self.tally.behind += 1
        self.plan(self.now, self._again, instance)

    def _again(self, instance: Instance) -> None:
        if instance.host.instances.get(instance.cluster) is instance and self.crash(instance.host.name):
            self.start(instance.host.name, disk=False)

    def _gone(self, instance: Instance) -> None:
        """A member has left; a process without members stops."""
        host = instance.host
        if host.instances.get(instance.cluster) is instance:
            self.checks.stopped(instance)
            self.tally.stopped(instance)
            del host.instances[instance.cluster]
            host.up = bool(host.instances)
