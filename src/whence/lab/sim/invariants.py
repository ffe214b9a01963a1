"""The safety of a ring, judged from outside by one who sees all members at once (docs/ring.md, "Invariants").

`violations` judges one moment (invariants 1, 2 and 6), `quiet_violations` a ring without faults in which nothing is
under way (4), `Watch` a whole run (5 and 7). Invariant 3 speaks of messages in flight, which only a network can see: it
is checked where there is one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from whence.core.clock import Incarnation, MemberId, address_of
from whence.core.ring.base import Ring
from whence.core.ring.config import need_alive
from whence.core.ring.context import BecameOwner, Excluded, Granted, RingOutput, State
from whence.core.ring.council import NONE, CouncilRing, quorum
from whence.core.ring.messages import Holder
from whence.core.ring.neighbours import TolerantRing


def violations(rings: Mapping[MemberId, Ring], nows: Mapping[MemberId, int] | None = None) -> list[str]:
    """What is wrong among the live members. `nows`: the local clock of each; without it, the time each was last told,
    which is as good when all are woken in time."""
    found: list[str] = []
    owner: dict[int, MemberId] = {}
    seated = [(member, ring) for member, ring in rings.items() if ring.ticket is not None]
    clock = nows if nows is not None else {member: ring.ctx.now for member, ring in rings.items()}
    active = [(member, ring) for member, ring in seated if ring.owns_at(clock[member])]
    for member, ring in active:
        assert ring.ticket is not None
        if ring.ticket in owner:
            found.append(f"I1: ticket {ring.ticket} is owned by {owner[ring.ticket]} and {member}")
        owner[ring.ticket] = member
    coordinator: dict[int, MemberId] = {}
    for member, ring in active:
        if not ring.steady_at(clock[member]):
            continue
        for ticket in ring.coordinated():
            if ticket in coordinator:
                found.append(f"I2: ticket {ticket} is coordinated by {coordinator[ticket]} and {member}")
            elif owner.get(ticket, member) != member:
                found.append(f"I2: ticket {ticket} is coordinated by {member} and owned by {owner[ticket]}")
            coordinator[ticket] = member
    found.extend(_newcomers(rings, seated))
    return found


def _newcomers(rings: Mapping[MemberId, Ring], seated: list[tuple[MemberId, Ring]]) -> Iterable[str]:
    """I6 (fault-tolerant): nobody has two newcomers on probation that it counts on."""
    parents: dict[MemberId, MemberId] = {}
    for member, ring in seated:
        if not isinstance(ring, TolerantRing) or ring.state is not State.PROBATION:
            continue
        holder, pred = ring.ctx.holder, ring.ctx.pred
        assert holder is not None and pred is not None
        parent = rings.get(pred.member)
        if not isinstance(parent, TolerantRing) or parent.ctx.holder != pred or parent.ctx.table.over(holder):
            continue
        if pred.member in parents:
            yield f"I6: {pred.member} has two newcomers, {parents[pred.member]} and {member}"
        parents[pred.member] = member


def quiet_violations(rings: Mapping[MemberId, Ring]) -> list[str]:
    """I4, for a ring that has had time to settle: the S cover 0..n-1, pred(succ(p)) = p, nobody is under way."""
    found: list[str] = []
    covered: list[int] = []
    tickets = 0
    for member, ring in rings.items():
        ctx = ring.ctx
        tickets = ctx.config.tickets
        if ctx.state in (State.PROBATION, State.LEAVING):
            found.append(f"I4: {member} is {ctx.state.value}")
        if ctx.state is not State.OWNER or ctx.edge is None:
            continue
        covered += ring.coordinated()
        if ctx.alone:
            continue
        succ = rings.get(ctx.edge.succ.member)
        if succ is None or succ.ctx.holder != ctx.edge.succ:
            found.append(f"I4: the successor of {member}, {ctx.edge.succ}, is gone")
        elif succ.ctx.pred != ctx.holder:
            found.append(f"I4: pred(succ({member})) is {succ.ctx.pred}")
    if covered and sorted(covered) != list(range(tickets)):
        found.append(f"I4: the coordinated sets are {sorted(covered)} of 0..{tickets - 1}")
    return found


def council_lives(rings: Mapping[MemberId, Ring], away: Collection[str] = ()) -> bool:
    """Whether the newest council known to anybody can still act: a quorum of it is there, or may come back with its
    disk (`away`: addresses of processes that are down), and knows, or can find out, how it begins."""
    there = {ring.councils.me.member: ring for ring in rings.values() if isinstance(ring, CouncilRing)}
    newest = max((ring.councils.now for ring in there.values()), default=NONE)
    for voters in (newest.voters, newest.before):
        have = [v.member for v in voters if v.member in there or address_of(v.member) in away]
        if not quorum(voters, have):
            return False
        if any(m not in there or _knows(there[m], newest.number) for m in have):
            return True
        newest = newest._replace(number=newest.number - 1)
    return False


def _knows(ring: CouncilRing, number: int) -> bool:
    return ring.voting.book is not None and ring.voting.book.number >= number


class Watch:
    """What needs the history of a run: feed it the outputs of every step, before time goes on."""

    def __init__(self) -> None:
        self._owner: dict[tuple[int, Incarnation], MemberId] = {}
        self._granted: dict[tuple[int, Incarnation], MemberId] = {}
        self._top: dict[int, Incarnation] = {}

    def step(self, member: MemberId, outputs: Iterable[RingOutput], rings: Mapping[MemberId, Ring]) -> list[str]:
        """The violations that this step of `member` shows."""
        found: list[str] = []
        for output in outputs:
            match output:
                case Granted(ticket, inc):
                    if (ticket, inc) in self._granted:
                        found.append(f"I5: {ticket}:{inc} granted to {self._granted[ticket, inc]} and {member}")
                    self._granted[ticket, inc] = member
                case BecameOwner(ticket, inc):
                    if inc <= self._top.get(ticket, Incarnation(0, 0, 0)):
                        found.append(f"I5: {member} owns {ticket}:{inc} after {self._top[ticket]}")
                    self._top[ticket] = max(inc, self._top.get(ticket, inc))
                case Excluded():
                    found.extend(self._quorum_left(output, rings))
                case _:
                    pass
        return found

    def _quorum_left(self, output: Excluded, rings: Mapping[MemberId, Ring]) -> Iterable[str]:
        """I7: of each excluded z, the members of L_z that did not ack (and are there, and not excluded with it) are
        too few."""

        def there(s: Holder) -> bool:
            ring = rings.get(s.member)
            return ring is not None and ring.ctx.holder == s

        for z, ring in rings.items():
            if not isinstance(ring, TolerantRing) or ring.state is not State.OWNER or ring.ticket not in output.tickets:
                continue
            L = ring.neighbours.L
            left = [s for s in L if there(s) and s.member not in output.ackers and s.ticket not in output.tickets]
            if len(left) >= need_alive(len(L)):
                yield f"I7: {z} of {output.tickets} still has {len(left)} of {len(L)} after {output.ackers} agreed"
