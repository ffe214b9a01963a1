"""The ring's invariants over all members of a cluster at once, after every step that touched a ring."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from whence import ports
from whence.clock import MemberId
from whence.ring import Ring
from whence.ring.interface import BecameOwner, Granted, RingOutput
from whence.ring.invariants import Watch, quiet_violations, violations
from whence.ring.messages import RingMessage

if TYPE_CHECKING:
    from whence.sim.host import Seat

_OF_RINGS = frozenset(get_args(RingMessage))


class Rings:
    """Watches the rings of one cluster."""

    def __init__(self) -> None:
        self._seats: dict[MemberId, Seat] = {}
        self._holders: dict[MemberId, Seat] = {}  # those with a ticket: the only ones that can be wrong
        self._signs: dict[MemberId, tuple[object, ...]] = {}  # what a member's part in the invariants depends on
        self._clean = False
        self._watch = Watch()

    def seated(self, seat: Seat) -> None:
        self._seats[seat.id] = seat

    def unseated(self, seat: Seat) -> None:
        self._seats.pop(seat.id, None)
        self._holders.pop(seat.id, None)
        self._signs.pop(seat.id, None)

    def stepped(self, seat: Seat, event: ports.Input, outs: list[ports.Output], now: int) -> str | None:
        """What is wrong after this step, if anything. A step touches the ring when it takes, sends or decides
        something of it; gossip and deliveries do not."""
        ring = seat.member.ring
        if not isinstance(ring, Ring) or not _touched(event, outs):
            return None
        if ring.ticket is None:
            self._holders.pop(seat.id, None)
        else:
            self._holders[seat.id] = seat
        changes = [o for o in outs if type(o) is ports.Ticket]
        sign = (ring.state, ring.ticket, ring.inc, ring.ctx.pred, tuple(ring.coordinated()))
        if self._clean and not changes and self._signs.get(seat.id) == sign:
            return None
        self._signs[seat.id] = sign
        rings = _rings(self._holders)
        # Without the time everybody counts as owner whose lease has run out, and as steady who is not: what is right
        # then stays right while nobody's seat changes. Only if that fails is the time asked for, at every step.
        self._clean = not violations(rings)
        found = [] if self._clean else violations(rings, {i: s.host.clock.at(now) for i, s in self._holders.items()})
        if changes:
            found += self._watch.step(seat.id, _as_ring_outputs(changes), rings)
        return "; ".join(found) or None

    def quiet(self) -> str | None:
        """What is wrong with a ring that has had all the time it needs."""
        return "; ".join(quiet_violations(_rings(self._seats))) or None


def _rings(seats: dict[MemberId, Seat]) -> dict[MemberId, Ring]:
    return {i: s.member.ring for i, s in seats.items() if isinstance(s.member.ring, Ring)}


def _touched(event: ports.Input, outs: list[ports.Output]) -> bool:
    if isinstance(event, ports.Received):
        if type(event.message) in _OF_RINGS:
            return True
    elif not isinstance(event, ports.Wake | ports.Publish):
        return True
    for out in outs:
        if type(out) is ports.Send:
            if type(out.message) in _OF_RINGS:
                return True
        elif type(out) is ports.Ticket:
            return True
    return False


def _as_ring_outputs(changes: list[ports.Ticket]) -> list[RingOutput]:
    """A member's `Ticket` outputs as the ring said them."""
    out: list[RingOutput] = []
    for change in changes:
        if change.change == "granted":
            out.append(Granted(change.ticket, change.inc, (0, 0)))
        elif change.change == "owner":
            out.append(BecameOwner(change.ticket, change.inc))
    return out
