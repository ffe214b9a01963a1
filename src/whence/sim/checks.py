"""The checks that are always on: after every step of every member, and once more at the end.

========== ================================================================================================
kind       what is wrong
========== ================================================================================================
core       a member raised an error of its own
livelock   a member asks to be woken again and again at the same moment
buffer     a buffer is beyond its bound
id         an event id was used twice
twice      an application was handed an event that its state had already
order      a delivery that the member's order forbids (`whence.judge`)
alert      an inversion in probabilistic order that PCO17 Algorithm 4 does not warn of
ring       an invariant of the ticket ring (`whence.ring.invariants`)
snapshot   a state was installed that is not the one that was captured
lost       a run without faults and losses, and yet somebody has not got everything
agreement  at the end, a member of a reliable order lacks what it was promised
stuck      at the end, a member is still joining or holds events back
========== ================================================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from whence import ports
from whence.clock import AnyFrame, Incarnation, MemberId
from whence.judge import Causality, Verdict
from whence.judge.promises import AGREEMENT, INVERSIONS
from whence.judge.report import report
from whence.sim.actions import Move, Publish, Schedule, show
from whence.sim.host import tenure_of
from whence.sim.rings import Rings

if TYPE_CHECKING:
    from whence.sim.host import Seat
    from whence.sim.world import World


class Violation(Exception):
    """Something that must never be, with all that is needed to see it again."""

    def __init__(self, kind: str, what: str, *, at: int, member: str, seed: int, schedule: Schedule) -> None:
        super().__init__(kind, what)
        self.kind = kind
        self.what = what
        self.at = at
        self.member = member
        self.seed = seed
        self.schedule = schedule

    def __str__(self) -> str:
        who = f" at {self.member}" if self.member else ""
        return f"{self.kind}{who}, {self.at / 1e9:.4f} s, seed {self.seed}: {self.what}"

    def story(self) -> str:
        """The violation and everything that was done to the world before it."""
        return f"{show(tuple(a for a in self.schedule if a.at <= self.at))}\n{self}"


class Checks:
    """Watches one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.judges = [Causality() for _ in world.clusters]
        self.rings = [Rings() for _ in world.clusters]
        self._tenures: list[dict[tuple[int | MemberId, int], tuple[MemberId, int]]] = [{} for _ in world.clusters]
        self._captured: dict[tuple[int, str], bytes] = {}
        self._gave_up: set[MemberId] = set()
        self._inversions: dict[tuple[int, str], int] = {}
        self._missed: dict[tuple[int, str], int] = {}

    def violation(self, kind: str, what: str, seat: Seat | None = None) -> Violation:
        world = self.world
        member = f"{seat.id}/{world.clusters[seat.cluster].name}" if seat is not None else ""
        return Violation(kind, what, at=world.now, member=member, seed=world.seed, schedule=world.schedule)

    # -- every step ------------------------------------------------------------------------------------------

    def seated(self, seat: Seat) -> None:
        """A life begins."""
        self.rings[seat.cluster].seated(seat)

    def unseated(self, seat: Seat) -> None:
        """A life ends."""
        self.rings[seat.cluster].unseated(seat)
        self.judges[seat.cluster].left(seat.id)

    def stepped(self, seat: Seat, event: ports.Input, outs: list[ports.Output]) -> None:
        """After all outputs of a step."""
        levels = seat.member.buffers()
        if levels != seat.levels:
            seat.levels = levels
            self._bounded(seat, levels)
        broken = self.rings[seat.cluster].stepped(seat, event, outs, self.world.now)
        if broken is not None:
            raise self.violation("ring", broken, seat)

    def _bounded(self, seat: Seat, levels: dict[str, tuple[int, int]]) -> None:
        high = self.world.tally.high
        for name, level in levels.items():
            fill, bound = level
            if fill > bound:
                raise self.violation("buffer", f"{name} holds {fill}, its bound is {bound}", seat)
            if name not in high or fill > high[name][0]:
                high[name] = level

    def published(self, seat: Seat, frame: AnyFrame) -> None:
        tenures = self._tenures[seat.cluster]
        ticket, inc, owner = tenure_of(frame)
        tenure = (owner if ticket < 0 else ticket, inc)
        owner, last = tenures.get(tenure, (seat.id, 0))
        if owner != seat.id or frame.owner != seat.id:
            raise self.violation("id", f"{frame.ids()[0]} published under a tenure that is {owner}'s", seat)
        if frame.first != last + 1:
            raise self.violation("id", f"{frame.ids()[0]} published after number {last} of its tenure", seat)
        tenures[tenure] = (seat.id, frame.last)
        self.judges[seat.cluster].published(seat.id, frame.key, frame.count)

    def delivered(self, seat: Seat, out: ports.Deliver) -> None:
        frame = out.frame
        judge = self.judges[seat.cluster]
        verdict = judge.delivered(seat.id, frame.key)
        if not seat.app.deliver(frame):
            raise self.violation("twice", f"{frame.ids()[0]} was in the application's state already", seat)
        if verdict is Verdict.IN_ORDER:
            return
        if verdict in INVERSIONS:
            key = (seat.cluster, seat.order)
            self._inversions[key] = self._inversions.get(key, 0) + frame.count
            if out.alert != 5:
                self._missed[key] = self._missed.get(key, 0) + frame.count
            if out.alert < 4 and seat.order == "probabilistic":
                raise self.violation("alert", f"{frame.ids()[0]} is inverted, and Algorithm 4 says nothing", seat)
        if verdict is Verdict.OVER_GAP and seat.id in self._gave_up:
            return
        finding = judge.explained(seat.id, None, frame.key, verdict)
        if finding is not None:
            raise self.violation("order", f"{seat.order}: {verdict.text}: {finding}", seat)

    def gave_up(self, seat: Seat, out: ports.GaveUp) -> None:
        """A blocking order may give up only what has died with its publisher: no living member has it."""
        if seat.order != "reliable":
            return
        self._gave_up.add(seat.id)
        seats = [h.seats[seat.cluster] for h in self.world.hosts.values() if seat.cluster in h.seats]
        for ticket, inc, first, last in out.ranges:
            owner, _ = self._tenures[seat.cluster].get((ticket, inc), ("", 0))
            for seq in range(first, last + 1):
                assert isinstance(ticket, int)
                holder = next((s.id for s in seats if s.app.has((ticket, inc, owner), seq)), None)
                if holder is not None:
                    what = (
                        f"gave up {ticket}:{Incarnation.unpack(inc)}:{seq}@{owner} ({out.reason}), which {holder} has"
                    )
                    raise self.violation("agreement", what, seat)

    def inversions(self, cluster: int, order: str) -> int:
        """Events that members of this order delivered after something that they precede."""
        return self._inversions.get((cluster, order), 0)

    def missed(self, cluster: int, order: str) -> int:
        """Those of them without an alert of Algorithm 5."""
        return self._missed.get((cluster, order), 0)

    # -- state that travels ----------------------------------------------------------------------------------

    def joined(self, seat: Seat, out: ports.Joined) -> None:
        peer = seat.host.saved.get(seat.cluster) if out.how == "checkpoint" else None
        self.judges[seat.cluster].joined(seat.id, out.how, order=seat.order, peer=peer, token=out.token or None)

    def snapshot_taken(self, seat: Seat, token: str, state: bytes) -> None:
        self._captured[seat.cluster, token] = state
        self.judges[seat.cluster].snapshot(seat.id, token)

    def snapshot_installed(self, seat: Seat, out: ports.InstallSnapshot) -> None:
        captured = self._captured.get((seat.cluster, out.token))
        if captured is None:
            raise self.violation("snapshot", f"{out.token!r} was never taken", seat)
        if captured != out.state:
            raise self.violation("snapshot", f"{out.token!r} arrived with another state than was captured", seat)

    # -- the end ---------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """When everything should have settled."""
        for cluster in range(len(self.world.clusters)):
            seats = [h.seats[cluster] for h in self.world.hosts.values() if cluster in h.seats]
            excused = self._waiting_for_the_dead(cluster, seats)
            for seat in seats:
                self._not_stuck(seat, excused)
            if not excused:
                self._agreed(cluster)
            if self.harmless():
                self._nothing_lost(cluster, seats)
                if not self.world.free[cluster] and (broken := self.rings[cluster].quiet()) is not None:
                    raise self.violation("ring", broken)

    def _agreed(self, cluster: int) -> None:
        """What a reliable member never got. What its order forbids of a delivery was found when it was delivered."""
        for finding in report(self.judges[cluster]).findings:
            if finding.rule == AGREEMENT:
                raise self.violation("agreement", str(finding))

    def _waiting_for_the_dead(self, cluster: int, seats: list[Seat]) -> bool:
        """Somebody still waits, as a blocking order may, for an event whose publisher is dead and that no living member
        has delivered. Whoever has not yet given it up (`abandon`) waits with reason, and so do those who wait for what
        it closes over."""
        if self.world.free[cluster]:
            return False  # nothing blocks for ever there
        alive = {seat.id for seat in seats}
        for seat in seats:
            for frame in [h.frame for h in seat.member.ordering.held.values()]:
                for missing in seat.member.why_blocked(str(frame.ids()[0])).missing:
                    assert missing.ticket is not None
                    inc = Incarnation.parse(missing.incarnation).packed
                    owner, _ = self._tenures[cluster].get((missing.ticket, inc), ("", 0))
                    tenure = (missing.ticket, inc, owner)
                    if owner not in alive and not any(s.app.has(tenure, missing.first) for s in seats):
                        return True
        return False

    def harmless(self) -> bool:
        """Nothing that could cost an event is in this run."""
        network = self.world.scenario.network
        return (
            not network.loss and not network.uplink and all(isinstance(a, Publish | Move) for a in self.world.schedule)
        )

    def _nothing_lost(self, cluster: int, seats: list[Seat]) -> None:
        """CCC11 Lemma 5.1: without faults every event is delivered, in causal order."""
        total = sum(last for _, last in self._tenures[cluster].values())
        for seat in seats:
            if seat.app.count != total:
                raise self.violation("lost", f"has {seat.app.count} of {total} events of a run without faults", seat)

    def _not_stuck(self, seat: Seat, excused: bool) -> None:
        if not seat.joined:
            raise self.violation("stuck", "is still joining at the end", seat)
        if seat.member.blocked() and not (excused and seat.order == "reliable"):
            raise self.violation("stuck", f"still holds {seat.member.blocked()} frames back at the end", seat)
