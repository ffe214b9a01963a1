"""A dead ring is founded again by those who were its coordinators. The papers have nothing for it: there an empty core
stays empty.

A lease may run out for everybody: in a partition that leaves no quorum anywhere, or on machines that stand still.
Nobody has a ticket then, and since a loss is for good, nobody can grant one. What is left is memory: whoever lost a
seat knows who its last successor was. The rule:

    Let every seat of a **closed cycle** (s0's last successor is s1, ..., sn's is s0, once around the circle) have been
    lost, by processes that still live and say so, at least `dead_ns` ago. Then the ring has no owner and never will.
    When each of these processes, and each that one of them has let found before, lets p found under a higher epoch
    than any of them knows, p founds at once.

Why the ring is dead: the tickets from a seat to its last successor were that seat's to grant. If somebody else owned
one of them later, the seat had been excluded, by an owner whose own ticket lies within another arc of the cycle; that
arc's seat then excluded this owner in turn, for else it would not have the last successor that it has. So the last
vouchers of any such owner are in the cycle or were excluded by it; `dead_ns` later its leases have run out, one after
the other. Why there is one founder: every closed cycle of an epoch consists of the same seats, only their own process
can speak for them (a restarted one has forgotten, and cannot), and it lets one found at a time; who asks with a higher
epoch is told of the one before, and needs its word, too, that it has not founded and will not.

No majority is asked for because none is enough: a minority that stood still may not have noticed that it was
excluded. If a process of the cycle is gone for good, an operator or the restart of the designated founder is needed.
"""

from __future__ import annotations

import random

import msgspec

from whence.clock import MemberId
from whence.ring.config import RingConfig, distance
from whence.ring.departure import Departure
from whence.ring.interface import State
from whence.ring.messages import ERA_SHIFT, Rally, Reject, Seat, Who, Witness


class Gathering(msgspec.Struct):
    """One attempt to found again: first to find the cycle, then (with an epoch) to be let found."""

    nonce: int
    epoch: int = 0
    cycle: tuple[Seat, ...] = ()
    founders: tuple[MemberId, ...] = ()
    asked: dict[MemberId, None] = {}
    heard: dict[MemberId, Witness] = {}


class Reunion(Departure):
    """Both sides of a rally."""

    MAX_ASKED = 8192  # processes asked in one gathering; above twice the tickets there can be
    MAX_FOUNDERS = 64  # whom one process lets found at a time

    def __init__(self, me: MemberId, config: RingConfig, rng: random.Random) -> None:
        super().__init__(me, config, rng)
        self._gathering: Gathering | None = None
        self._lets: dict[MemberId, tuple[int, int]] = {}
        """Whom this process has let found again, without hearing since that they did not: epoch and nonce."""
        self._reserved_until = 0
        """Until then a designated founder may be about to found: nobody else may."""
        self._hopeless_since: int | None = None
        """Since when this process looks for a ticket without hearing of a living coordinator."""

    # --- when to rally ---

    def _apply_later(self, swept: bool = False) -> None:
        super()._apply_later(swept)
        if self.state is State.JOINING:
            if self._hopeless_since is None:
                self._hopeless_since = self._now
            if "rally" not in self._timers:
                self._after(int(self.config.round_ns * self.rng.uniform(0.2, 1.2)), "rally")

    def _sit(self, seat: Seat) -> None:
        super()._sit(seat)
        self._gathering = self._hopeless_since = None

    def _on_reject(self, sender: MemberId, m: Reject) -> None:
        if m.owner:
            self._hopeless_since = self._now
        super()._on_reject(sender, m)

    def _rally(self) -> None:
        if self.state is not State.JOINING:
            return
        self._after(int(self.config.round_ns * self.rng.uniform(1, 3)), "rally")
        if self._gathering is not None or self._hopeless_since is None or self._now < self._reserved_until:
            return
        if self._founds_after_all():
            return
        patience = self.config.dead_ns  # who never was a coordinator leaves it to those who were, if they want tickets
        if self._now < self._hopeless_since + (patience if self._ended else 2 * patience + 4 * self.config.round_ns):
            return
        self._gathering = Gathering(self._next_nonce())
        known = {**self.applicant.hints, **self.table.coordinators()}
        for member in dict.fromkeys([*(known[t] for t in sorted(known)), *self.applicant.members]):
            self._ask(member)
        self._after(self.config.answer_ns, "gathered")
        self._on_witness(self.me, self.witness(self._gathering.nonce))

    def _founds_after_all(self) -> bool:
        """Told to found, it heard of a coordinator, which was about to lose its ticket: most processes of the cluster
        may just have been started again. For a while it may still found when nobody is left; not later, for then
        it may be cut off from a ring that lives."""
        since, hopeless, quarantine = self._designated_at, self._hopeless_since, self.config.quarantine_ns
        if since is None or hopeless is None or self._now > since + 6 * quarantine:
            return False
        if self._now < hopeless + quarantine:
            return True  # soon
        self._found(self.epoch + 1)
        return True

    # --- the founder to be ---

    def _ask(self, member: MemberId) -> None:
        gathering = self._gathering
        if gathering is not None and member not in gathering.asked and len(gathering.asked) < self.MAX_ASKED:
            gathering.asked[member] = None
            if member != self.me:
                self._send(member, Rally(gathering.nonce, gathering.epoch, gathering.cycle, gathering.founders))

    def _on_witness(self, sender: MemberId, m: Witness) -> None:
        self.table.saw(m.era)
        gathering = self._gathering
        if gathering is None or m.nonce != gathering.nonce or self.state is not State.JOINING:
            return
        if m.alive:
            self._hopeless_since = self._now
            self._gathering = None
            return
        gathering.heard[sender] = m
        if gathering.epoch:
            self._found_if_agreed()
            return
        for ended in m.ended:
            for seat in ended:
                self._ask(seat.member)
        if all(member in gathering.heard for member in gathering.asked):
            self._gathered()

    def _gathered(self) -> None:
        """All have answered, or no more will."""
        gathering, self._gathering = self._gathering, None
        self._timers.pop("gathered", None)
        if gathering is None or gathering.epoch or self.state is not State.JOINING or self._now < self._reserved_until:
            return
        cycle = closed_cycle(gathering.heard, self.table.era >> ERA_SHIFT, self.config.tickets)
        if not cycle:
            return
        witnesses = list(dict.fromkeys(seat.member for seat in cycle))
        founders = list(dict.fromkeys(sum((gathering.heard[m].to for m in witnesses), ())))
        epoch = max(self.epoch, *(t.pledged for t in gathering.heard.values())) + 1
        self._gathering = Gathering(self._next_nonce(), epoch, cycle, tuple(founders))
        self._pledged, self._lets[self.me] = epoch, (epoch, self._gathering.nonce)
        for member in [*witnesses, *founders, self.me]:
            self._ask(member)
        self._after(self.config.answer_ns, "gathered")
        self._on_witness(self.me, self.witness(self._gathering.nonce))

    def _found_if_agreed(self) -> None:
        gathering = self._gathering
        assert gathering is not None
        for member in gathering.asked:
            heard = gathering.heard.get(member)
            if heard is None or heard.pledged != gathering.epoch or self.me not in heard.to:
                return
        self._gathering = None
        self.state = State.FOUNDING
        self._epoch = gathering.epoch
        self._founded()

    # --- the witness ---

    def _on_rally(self, sender: MemberId, m: Rally) -> None:
        if m.epoch == 0:
            if m.nonce > self._lets.get(sender, (0, m.nonce))[1]:
                del self._lets[sender]  # what it asked for earlier has come to nothing
        elif m.epoch > self.epoch and self._agrees(sender, m):
            self._pledged, self._lets[sender] = m.epoch, (m.epoch, m.nonce)
            self._gathering = None  # having let another found, it does not itself
        if self.state is State.JOINING:  # one at a time
            self._after(int(self.config.round_ns * self.rng.uniform(1, 3)), "rally")
        self._send(sender, self.witness(m.nonce))

    def _agrees(self, sender: MemberId, m: Rally) -> bool:
        if self._alive or self._now < self._reserved_until:
            return False
        if any(f not in (self.me, sender, *m.founders) for f in self._founders()):
            return False  # that one may have founded, and is not asked
        if len(self._lets) >= self.MAX_FOUNDERS:
            return False
        if any(seat.inc >> 2 * ERA_SHIFT != self.table.era >> ERA_SHIFT for seat in m.cycle):
            return False  # founded again already
        mine = [seat for seat, *_ in self._testified()]
        return all(seat in mine for seat in m.cycle if seat.member == self.me)

    def _founders(self) -> tuple[MemberId, ...]:
        """Who may have founded. A founding under an epoch that was founded by now, or passed over, is accounted for."""
        founded = self.table.era >> ERA_SHIFT
        self._lets = {member: let for member, let in self._lets.items() if let[0] > founded}
        return tuple(self._lets)

    @property
    def _alive(self) -> bool:
        return self.seat is not None or self.state is State.FOUNDING

    def witness(self, nonce: int = 0, ripe: bool = True) -> Witness:
        founders, never = self._founders(), tuple(self._never)
        return Witness(nonce, self._alive, self.table.era, self._pledged, founders, self._testified(ripe), never)

    def _testified(self, ripe: bool = True) -> tuple[tuple[Seat, ...], ...]:
        """The seats of this epoch that this process lost (`ripe`: long enough ago). Also those that were excluded: the
        excluder may have been excluded by one who then took such a seat for its successor."""
        return tuple(
            (seat, z.succ) if z.before is None else (seat, z.succ, z.before)
            for seat, z in self._ended.items()
            if (self._now >= z.at + self.config.dead_ns or not ripe)
            and seat.inc >> 2 * ERA_SHIFT == self.table.era >> ERA_SHIFT
        )

    def _on_who(self, sender: MemberId, m: Who) -> None:
        """A designated founder is about to found: do not let anybody else do it meanwhile."""
        self._reserved_until = self._now + self.config.on_any_clock(self.config.quarantine_ns)
        super()._on_who(sender, m)


def closed_cycle(heard: dict[MemberId, Witness], epoch: int, tickets: int) -> tuple[Seat, ...]:
    """The seats of a cycle that is closed by last successors and goes around once; empty: there is none."""
    never = {seat for member, t in heard.items() for seat in t.never if seat.member == member}
    edges: dict[Seat, Seat] = {}
    for member, t in heard.items():
        for seat, *after in t.ended:
            if seat.member == member and seat.inc >> 2 * ERA_SHIFT == epoch:
                edges[seat] = after[0] if after[0] not in never else after[-1]
    for start in edges:
        cycle, turn, at = [start], 0, start
        while at in edges and turn < tickets:
            turn += distance(at.ticket, edges[at].ticket, tickets)
            at = edges[at]
            if at == start:
                break
            cycle.append(at)
        if at == start and turn == tickets:
            return tuple(cycle)
    return ()
