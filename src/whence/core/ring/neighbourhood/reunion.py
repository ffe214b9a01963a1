"""A dead ring is founded again by those who were its coordinators (docs/ring.md, "A dead ring": the rule, why it is
safe, and why a majority is not enough). The papers have nothing for it: there an empty core stays empty.
"""

from __future__ import annotations

import msgspec

from whence.core.clock import MemberId
from whence.core.ring.applicant import Applicant
from whence.core.ring.config import distance
from whence.core.ring.context import Context, Timer
from whence.core.ring.founding import Founding, agreed_epoch, told_epoch
from whence.core.ring.interface import State
from whence.core.ring.messages import MAX_EPOCH, Holder, Rally, Reject, Witness
from whence.core.ring.neighbourhood.departure import Departure


class Gathering(msgspec.Struct):
    """One attempt to found again: first to find the cycle, then (with an epoch) to be let found."""

    nonce: int
    epoch: int = 0
    cycle: tuple[Holder, ...] = ()
    founders: tuple[MemberId, ...] = ()
    asked: dict[MemberId, None] = {}
    heard: dict[MemberId, Witness] = {}


class Reunion:
    """Both sides of a rally."""

    MAX_ASKED = 8192  # processes asked in one gathering; above twice the tickets there can be
    MAX_FOUNDERS = 64  # whom one process lets found at a time

    def __init__(self, ctx: Context, applicant: Applicant, founding: Founding, departure: Departure) -> None:
        self.ctx = ctx
        self.applicant = applicant
        self.founding = founding
        self.departure = departure
        self._gathering: Gathering | None = None
        self._lets: dict[MemberId, tuple[int, int]] = {}
        """Whom this process has let found again, without hearing since that they did not: epoch and nonce."""
        self._reserved_until = 0
        """Until then a designated founder may be about to found: nobody else may."""
        self._hopeless_since: int | None = None
        """Since when this process looks for a ticket without hearing of a living coordinator."""
        ctx.when_seated.append(self._seated)
        applicant.when_waiting.append(self._waiting)

    # --- when to rally ---

    def _waiting(self) -> None:
        if self._hopeless_since is None:
            self._hopeless_since = self.ctx.now
        if Timer.RALLY not in self.ctx.timers:
            self._rally_in(0.2, 1.2)

    def _seated(self) -> None:
        self._gathering = self._hopeless_since = None

    def _rally_in(self, least: float, most: float) -> None:
        self.ctx.after(int(self.ctx.config.round_ns * self.ctx.rng.uniform(least, most)), Timer.RALLY)

    def on_reject(self, m: Reject) -> None:
        if m.owner:
            self._hopeless_since = self.ctx.now

    def reserve(self) -> None:
        """A designated founder is about to found: do not let anybody else do it meanwhile."""
        self._reserved_until = self.ctx.now + self.ctx.config.on_any_clock(self.ctx.config.quarantine_ns)

    @property
    def _reserved(self) -> bool:
        return self.ctx.now < self._reserved_until

    def rally(self) -> None:
        ctx = self.ctx
        if ctx.state is not State.JOINING:
            return
        self._rally_in(1, 3)
        if self._gathering is not None or self._hopeless_since is None or self._reserved:
            return
        if self._founds_after_all(self._hopeless_since):
            return
        patience = ctx.config.dead_ns  # who never was a coordinator leaves it to those who were, if they want tickets
        if not self.departure.ended:
            patience = 2 * patience + 4 * ctx.config.round_ns
        if ctx.now >= self._hopeless_since + patience:
            known = self.applicant.known()
            self._gather(Gathering(ctx.next_nonce()), [*(known[t] for t in sorted(known)), *self.applicant.members])

    def _founds_after_all(self, hopeless: int) -> bool:
        """Told to found, it heard of a coordinator, which was about to lose its ticket: most processes of the cluster
        may just have been started again. For a while it may still found when nobody is left; not later, for then
        it may be cut off from a ring that lives."""
        ctx, quarantine = self.ctx, self.ctx.config.quarantine_ns
        if ctx.designated_at is None or ctx.now > ctx.designated_at + 6 * quarantine:
            return False
        if ctx.now >= hopeless + quarantine:
            self.founding.found(told_epoch(self.founding.epoch))
        return True  # now or soon

    # --- the founder to be ---

    def _gather(self, gathering: Gathering, members: list[MemberId]) -> None:
        self._gathering = gathering
        for member in members:
            self._ask(member)
        self.ctx.after(self.ctx.config.answer_ns, Timer.GATHERED)
        self.on_witness(self.ctx.me, self.witness(gathering.nonce))

    def _ask(self, member: MemberId) -> None:
        gathering = self._gathering
        if gathering is not None and member not in gathering.asked and len(gathering.asked) < self.MAX_ASKED:
            gathering.asked[member] = None
            if member != self.ctx.me:
                self.ctx.send(member, Rally(gathering.nonce, gathering.epoch, gathering.cycle, gathering.founders))

    def on_witness(self, sender: MemberId, m: Witness) -> None:
        self.ctx.table.saw(m.era)
        gathering = self._gathering
        if gathering is None or m.nonce != gathering.nonce or self.ctx.state is not State.JOINING:
            return
        if m.alive:
            self._hopeless_since = self.ctx.now
            self._gathering = None
            return
        gathering.heard[sender] = m
        if gathering.epoch:
            self._found_if_agreed(gathering)
            return
        for ended in m.ended:
            for holder in ended:
                self._ask(holder.member)
        if all(member in gathering.heard for member in gathering.asked):
            self.gathered()

    def gathered(self) -> None:
        """All have answered, or no more will."""
        ctx, gathering, self._gathering = self.ctx, self._gathering, None
        ctx.stop(Timer.GATHERED)
        if gathering is None or gathering.epoch or ctx.state is not State.JOINING or self._reserved:
            return
        cycle = closed_cycle(gathering.heard, ctx.table.epoch, ctx.config.tickets)
        if not cycle:
            return
        witnesses = list(dict.fromkeys(holder.member for holder in cycle))
        founders = list(dict.fromkeys(sum((gathering.heard[m].to for m in witnesses), ())))
        epoch = self._next_epoch(gathering)
        if epoch >= MAX_EPOCH:
            return
        request = Gathering(ctx.next_nonce(), epoch, cycle, tuple(founders))
        self._let(ctx.me, epoch, request.nonce)
        self._gather(request, [*witnesses, *founders, ctx.me])

    def _next_epoch(self, gathering: Gathering) -> int:
        """Rule 20."""
        return agreed_epoch(max(self.founding.epoch, *(t.pledged for t in gathering.heard.values())))

    def _found_if_agreed(self, gathering: Gathering) -> None:
        for member in gathering.asked:
            heard = gathering.heard.get(member)
            if heard is None or heard.pledged != gathering.epoch or self.ctx.me not in heard.to:
                return
        self._gathering = None
        self.founding.agreed(gathering.epoch)

    # --- the witness ---

    def _let(self, member: MemberId, epoch: int, nonce: int) -> None:
        self.founding.pledged, self._lets[member] = epoch, (epoch, nonce)

    def on_rally(self, sender: MemberId, m: Rally) -> None:
        if m.epoch == 0:
            if m.nonce > self._lets.get(sender, (0, m.nonce))[1]:
                del self._lets[sender]  # what it asked for earlier has come to nothing
        elif m.epoch > self.founding.epoch and self._agrees(sender, m):
            self._let(sender, m.epoch, m.nonce)
            self._gathering = None  # having let another found, it does not itself
        if self.ctx.state is State.JOINING:  # one at a time
            self._rally_in(1, 3)
        self.ctx.send(sender, self.witness(m.nonce))

    def _agrees(self, sender: MemberId, m: Rally) -> bool:
        if self._alive or self._reserved:
            return False
        if any(f not in (self.ctx.me, sender, *m.founders) for f in self._founders()):
            return False  # that one may have founded, and is not asked
        if len(self._lets) >= self.MAX_FOUNDERS:
            return False
        if any(holder.epoch != self.ctx.table.epoch for holder in m.cycle):
            return False  # founded again already
        mine = [holder for holder, *_ in self._testified()]
        return all(holder in mine for holder in m.cycle if holder.member == self.ctx.me)

    def _founders(self) -> tuple[MemberId, ...]:
        """Who may have founded. A founding under an epoch that was founded by now, or passed over, is accounted for."""
        self._lets = {member: let for member, let in self._lets.items() if let[0] > self.ctx.table.epoch}
        return tuple(self._lets)

    @property
    def _alive(self) -> bool:
        return self.ctx.holder is not None or self.ctx.state is State.FOUNDING

    def witness(self, nonce: int = 0, ripe: bool = True) -> Witness:
        founders, never, era = self._founders(), tuple(self.applicant.never), self.ctx.table.era
        return Witness(nonce, self._alive, era, self.founding.pledged, founders, self._testified(ripe), never)

    def _testified(self, ripe: bool = True) -> tuple[tuple[Holder, ...], ...]:
        """The tenures of this epoch that this process lost (`ripe`: long enough ago). Also those that were excluded:
        the excluder may have been excluded by one that then took such a tenure for its successor."""
        return tuple(
            (holder, z.succ) if z.before is None else (holder, z.succ, z.before)
            for holder, z in self.departure.ended.items()
            if (self.ctx.now >= z.at + self.ctx.config.dead_ns or not ripe) and holder.epoch == self.ctx.table.epoch
        )


def closed_cycle(heard: dict[MemberId, Witness], epoch: int, tickets: int) -> tuple[Holder, ...]:
    """The tenures of a cycle that is closed by last successors and goes around once; empty: there is none."""
    never = {holder for member, t in heard.items() for holder in t.never if holder.member == member}
    edges: dict[Holder, Holder] = {}
    for member, t in heard.items():
        for holder, *after in t.ended:
            if holder.member == member and holder.epoch == epoch:
                edges[holder] = after[0] if after[0] not in never else after[-1]
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
