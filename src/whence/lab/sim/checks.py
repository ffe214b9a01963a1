"""The checks of every run: after each step of each member, and at the end.

========== ================================================================================================
kind       what is wrong
========== ================================================================================================
core       a member raised an error of its own
livelock   a member repeatedly asks to be woken at the same moment
buffer     a buffer exceeds its bound
id         an event id was used twice
twice      an application got an event that its state already contained
order      a delivery that the member's order forbids (`whence.audit.judge`)
total      two members in total order deliver different events at a place, or one leaves a place out
alert      an inversion in probabilistic order without an alert of PCO17 Algorithm 4
ring       an invariant of the ticket ring (`whence.lab.sim.invariants`)
blame      an honest member cut off another one
snapshot   an installed state differs from the captured one
lost       in a run without faults and losses, a member lacks an event
agreement  at the end, a member with reliable order lacks an event it was promised
quiet      at the end, a member lacks an acknowledged event that another one has, and has counted no loss
stuck      at the end, a member is still joining or holds events back
========== ================================================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whence.audit.judge import Causality, Verdict
from whence.audit.judge.promises import AGREEMENT, INVERSIONS
from whence.audit.judge.report import report
from whence.core import ports
from whence.core.clock import AnyFrame, Incarnation, MemberId, address_of
from whence.lab.sim import survivors
from whence.lab.sim.actions import OUTSIDER, Hostile, MoveAction, PublishAction
from whence.lab.sim.host import TenureKey, tenure_of
from whence.lab.sim.invariants import council_lives
from whence.lab.sim.rings import Rings
from whence.lab.sim.survivors import Bits, count, died

if TYPE_CHECKING:
    from whence.lab.sim.host import Instance
    from whence.lab.sim.stage import Stage
    from whence.lab.sim.tally import Tally

INVERSION = "inversion"
"""Kind of what is wrong for a reader, and for no promise: a delivery before its cause at a member that may have it."""
QUIET_ROUNDS = 60
"""Rounds without faults after which nobody may still ask for a ticket."""


class Violation(Exception):
    """A failed check; the run's scenario, seed and schedule reproduce it."""

    def __init__(self, kind: str, what: str, *, at: int, member: str, seed: int) -> None:
        super().__init__(kind, what)
        self.kind = kind
        self.what = what
        self.at = at
        self.member = member
        self.seed = seed

    def __str__(self) -> str:
        who = f" at {self.member}" if self.member else ""
        return f"{self.kind}{who}, {self.at / 1e9:.4f} s, seed {self.seed}: {self.what}"


class Checks:
    """The checks of one run."""

    def __init__(self, stage: Stage, tally: Tally) -> None:
        self.stage = stage
        self.tally = tally
        self.judges = [Causality() for _ in stage.clusters]
        self.rings = [Rings() for _ in stage.clusters]
        self._tenures: list[dict[tuple[int | MemberId, int], tuple[MemberId, int]]] = [{} for _ in stage.clusters]
        self._captured: dict[tuple[int, str], bytes] = {}
        self._gave_up: set[MemberId] = set()
        self._places: list[dict[int, AnyFrame]] = [{} for _ in stage.clusters]  # of the one sequence, each once taken
        self._counting: dict[tuple[int, MemberId, int], tuple[str, ...]] = {}
        self._acknowledged: list[list[str]] = [[] for _ in stage.clusters]
        self.inversion: Violation | None = None
        """The first at a member that may have it; no violation."""

    def violation(self, kind: str, what: str, instance: Instance | None = None) -> Violation:
        stage = self.stage
        member = f"{instance.id}/{stage.clusters[instance.cluster].name}" if instance is not None else ""
        return Violation(kind, what, at=stage.now, member=member, seed=stage.seed)

    # -- every step ------------------------------------------------------------------------------------------

    def started(self, instance: Instance) -> None:
        """A member starts."""
        self.rings[instance.cluster].started(instance)

    def stopped(self, instance: Instance) -> None:
        """A member stops."""
        self.rings[instance.cluster].stopped(instance)
        self.judges[instance.cluster].left(instance.id)

    def stepped(self, instance: Instance, event: ports.Input, outs: list[ports.Output]) -> None:
        """After all outputs of a step."""
        if outs or type(event) is not ports.Received:  # most messages bring nothing new; the next wake sees the rest
            buffers = instance.member.buffers()
            if buffers != instance.buffers:
                instance.buffers = buffers
                self._bounded(instance)
        broken = self.rings[instance.cluster].stepped(instance, event, outs, self.stage.now)
        if broken is not None:
            raise self.violation("ring", broken, instance)

    def _bounded(self, instance: Instance) -> None:
        high = self.tally.high
        for name, level in instance.buffers.items():
            fill, bound = level
            if fill > bound:
                raise self.violation("buffer", f"{name} holds {fill}, its bound is {bound}", instance)
            if name not in high or fill > high[name][0]:
                high[name] = level

    def published(self, instance: Instance, frame: AnyFrame) -> None:
        tenures = self._tenures[instance.cluster]
        ticket, inc, owner = tenure_of(frame)
        tenure = (owner if ticket < 0 else ticket, inc)
        owner, last = tenures.get(tenure, (instance.id, 0))
        if owner != instance.id or frame.owner != instance.id:
            raise self.violation("id", f"{frame.names()[0]} published under a tenure that is {owner}'s", instance)
        if frame.first != last + 1:
            raise self.violation("id", f"{frame.names()[0]} published after number {last} of its tenure", instance)
        tenures[tenure] = (instance.id, frame.last)
        self.judges[instance.cluster].published(instance.id, frame.key, frame.count)

    def delivered(self, instance: Instance, out: ports.Deliver) -> None:
        frame = out.frame
        judge = self.judges[instance.cluster]
        if instance.order == "total":
            self._in_sequence(instance, out)
        verdict = judge.delivered(instance.id, frame.key)
        if not instance.app.deliver(frame):
            raise self.violation("twice", f"{frame.names()[0]} was in the application's state already", instance)
        if verdict is Verdict.IN_ORDER:
            return
        if verdict in INVERSIONS:
            self.tally.inverted(instance, out)
            if out.alert < 4 and instance.order == "probabilistic":
                raise self.violation("alert", f"{frame.names()[0]} is inverted, and Algorithm 4 says nothing", instance)
            if self.inversion is None:
                what = f"{frame.names()[0]} came after what depends on it, as {instance.order} order allows"
                self.inversion = self.violation(INVERSION, what, instance)
        cut_off = instance.host.name in self.stage.liars[instance.cluster]
        if verdict is Verdict.OVER_GAP and (instance.id in self._gave_up or cut_off):
            return
        finding = judge.explained(instance.id, None, frame.key, verdict)
        if finding is not None:
            raise self.violation("order", f"{instance.order}: {verdict.text}: {finding}", instance)

    def _in_sequence(self, instance: Instance, out: ports.Deliver) -> None:
        """Everybody who ever delivers a place delivers the same there, and has delivered all before it."""
        if out.place != instance.app.count + 1:
            what = f"{out.frame.names()[0]} has place {out.place}, after {instance.app.count} events"
            raise self.violation("total", what, instance)
        first = self._places[instance.cluster].setdefault(out.place, out.frame)
        if first.key != out.frame.key:
            what = f"place {out.place} is {first.names()[0]}'s, and {out.frame.names()[0]} is delivered there"
            raise self.violation("total", what, instance)

    def gave_up(self, instance: Instance, out: ports.GaveUp) -> None:
        """A blocking order may give up only events that no living member has."""
        if instance.order != "reliable" or instance.host.name in self.stage.liars[instance.cluster]:
            return
        self._gave_up.add(instance.id)
        instances = self.stage.instances(instance.cluster)
        for ticket, inc, first, last in out.ranges:
            owner, _ = self._tenures[instance.cluster].get((ticket, inc), ("", 0))
            for seq in range(first, last + 1):
                assert isinstance(ticket, int)
                holder = next((s.id for s in instances if s.app.has((ticket, inc, owner), seq)), None)
                if holder is not None:
                    what = (
                        f"gave up {ticket}:{Incarnation.unpack(inc)}:{seq}@{owner} ({out.reason}), which {holder} has"
                    )
                    raise self.violation("agreement", what, instance)

    def cut_off(self, instance: Instance, out: ports.CutOff) -> None:
        """Whatever a hostile peer sends, no honest member is blamed for it."""
        liars = self.stage.liars[instance.cluster]
        faulty = {OUTSIDER, *liars, *(a.sender for a in self.stage.schedule if isinstance(a, Hostile))}
        if instance.host.name not in faulty and faulty.isdisjoint((out.peer, address_of(out.peer))):
            raise self.violation("blame", f"cut off {out.peer}: {out.error}", instance)

    def counting(self, instance: Instance, token: int, events: tuple[str, ...]) -> None:
        """A publisher waits for copies of these events."""
        self._counting[instance.cluster, instance.id, token] = events

    def copied(self, instance: Instance, out: ports.Copied) -> None:
        """The publisher is told that enough members hold them, or not."""
        events = self._counting.pop((instance.cluster, instance.id, out.token))
        if out.enough:
            self.tally.acknowledged += len(events)
            self._acknowledged[instance.cluster].extend(events)
        else:
            self.tally.too_few_copies += len(events)

    # -- state that travels ----------------------------------------------------------------------------------

    def joined(self, instance: Instance, out: ports.Joined) -> None:
        peer = instance.host.saved.get(instance.cluster) if out.how == "checkpoint" else None
        self.judges[instance.cluster].joined(
            instance.id, out.how, order=instance.order, peer=peer, token=out.token or None
        )

    def snapshot_taken(self, instance: Instance, token: str, state: bytes) -> None:
        self._captured[instance.cluster, token] = state
        self.judges[instance.cluster].snapshot(instance.id, token)

    def snapshot_installed(self, instance: Instance, out: ports.InstallSnapshot) -> None:
        captured = self._captured.get((instance.cluster, out.token))
        if captured is None:
            raise self.violation("snapshot", f"{out.token!r} was never taken", instance)
        if captured != out.state:
            raise self.violation("snapshot", f"{out.token!r} arrived with another state than was captured", instance)

    # -- the end ---------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """The final checks, when everything should have settled."""
        for cluster in range(len(self.stage.clusters)):
            liars = self.stage.liars[cluster]
            instances = [s for s in self.stage.instances(cluster) if s.host.name not in liars]
            dead = self._died(cluster, instances)
            self.tally.died += count(dead)
            names = set(survivors.names(dead))
            self.tally.acknowledged_and_died += sum(name in names for name in self._acknowledged[cluster])
            self._none_lost_quietly(cluster, instances, names)
            waiting = {instance.id: found for instance in instances if (found := survivors.waiting(instance, dead))}
            for instance in instances:
                self._not_stuck(instance, len(waiting.get(instance.id, ())))
            self._agreed(cluster, waiting)
            self._one_sequence(cluster, instances)
            if self.long_quiet and (asking := self.rings[cluster].in_vain(liars, self._asked_in_time)) is not None:
                raise self.violation("ticket", asking)
            if self.harmless():
                self._nothing_lost(cluster, instances)
                if not self.stage.free[cluster] and (broken := self.rings[cluster].quiet()) is not None:
                    raise self.violation("ring", broken)

    def _none_lost_quietly(self, cluster: int, instances: list[Instance], dead: set[str]) -> None:
        """What enough members held (`publish(..., copies=k)`) is delivered at all in causal order, or counted."""
        wanted = [name for name in self._acknowledged[cluster] if name not in dead]
        for instance in instances if wanted else ():
            stats, seen = instance.member.ordering.stats, set(survivors.names(instance.app.seen))
            lacking = next((name for name in wanted if name not in seen), None)
            if lacking and instance.order in ("causal", "reliable") and not stats.skipped + stats.late:
                raise self.violation("quiet", f"{lacking} is acknowledged, and lost here without a word", instance)

    def _agreed(self, cluster: int, waiting: dict[str, list[Any]]) -> None:
        """Find events that a reliable member never got. Wrong deliveries were found when they happened."""
        for finding in report(self.judges[cluster], waiting=waiting).findings:
            if finding.rule == AGREEMENT and address_of(finding.member) not in self.stage.liars[cluster]:
                raise self.violation("agreement", str(finding))

    def _one_sequence(self, cluster: int, instances: list[Instance]) -> None:
        """While the council lives, all members in total order are at the same place, and what owners have published is
        there."""
        inside = [s for s in instances if s.order == "total"]
        rings = {s.id: s.member.ring for s in instances}
        if not inside or not council_lives(rings):
            return
        last = max(inside, key=lambda s: s.app.count)
        for instance in inside:
            lacking = last.app.count - instance.app.count
            if lacking:
                waits = instance.member.waits_for()
                raise self.violation("stuck", f"{lacking} events behind {last.id}, waits for {waits}", instance)
        for instance in instances:
            tenure = instance.member.ring.tenure
            ticket, inc = tenure or (-1, 0)
            owner, seq = self._tenures[cluster].get((ticket, inc), ("", 0))
            if seq and owner == instance.id and not last.app.has((ticket, inc, owner), seq):
                what = f"event {seq} of {tenure} has no place: {last.member.waits_for()}"
                raise self.violation("stuck", what, instance)

    def _died(self, cluster: int, instances: list[Instance]) -> Bits:
        published: dict[TenureKey, int] = {}
        for (of, inc), (owner, last) in self._tenures[cluster].items():
            published[(of, inc, owner) if isinstance(of, int) else (-1, 0, owner)] = last
        return died(published, instances)

    @property
    def long_quiet(self) -> bool:
        """After the last fault there was time to get a ticket, even if an operator had to found the ring again."""
        scenario = self.stage.scenario
        return scenario.settle >= QUIET_ROUNDS * scenario.round

    @property
    def _asked_in_time(self) -> int:
        """Whoever has asked for a ticket since before this moment should have got one. While messages are lost, faults
        do not end with the last planned one: an owner whose answer is late is weakly detected as faulty (CCC11 section
        4.2) and may be excluded at any time, also just before the end; it then has as long as everybody had after the
        last planned fault."""
        scenario = self.stage.scenario
        return self.stage.now - QUIET_ROUNDS * scenario.round if scenario.network.loss else self.stage.now

    def harmless(self) -> bool:
        """Whether nothing in this run can cause the loss of an event."""
        network, faultless = self.stage.scenario.network, PublishAction | MoveAction
        return not network.loss and not network.uplink and all(isinstance(a, faultless) for a in self.stage.schedule)

    def _nothing_lost(self, cluster: int, instances: list[Instance]) -> None:
        """CCC11 Lemma 5.1: without faults every event is delivered, in causal order."""
        total = sum(last for _, last in self._tenures[cluster].values())
        for instance in instances:
            if instance.app.count != total:
                raise self.violation(
                    "lost", f"has {instance.app.count} of {total} events of a run without faults", instance
                )

    def _not_stuck(self, instance: Instance, waiting: int) -> None:
        """`waiting`: frames that it holds back for an event that has died."""
        if not instance.joined:
            raise self.violation("stuck", "is still joining at the end", instance)
        if instance.member.blocked() > waiting:
            raise self.violation("stuck", f"still holds {instance.member.blocked()} frames back at the end", instance)
