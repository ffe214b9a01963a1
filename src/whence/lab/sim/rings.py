"""Checks the ring's invariants over all members of a cluster, after every step that touched a ring."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, get_args

from whence.core import ports
from whence.core.clock import MemberId, address_of
from whence.core.ring import NoRing, Ring
from whence.core.ring.context import BecameOwner, Granted, RingOutput, State
from whence.core.ring.messages import RingMessage
from whence.lab.sim.invariants import Watch, council_lives, quiet_violations, violations

if TYPE_CHECKING:
    from whence.lab.sim.host import Instance

_OF_RINGS = frozenset(get_args(RingMessage))
_NOT_OF_RINGS = frozenset((ports.Wake, ports.Publish))


class Rings:
    """The invariants of one cluster's rings."""

    def __init__(self) -> None:
        self._instances: dict[MemberId, Instance] = {}
        self._holders: dict[MemberId, Instance] = {}  # members with a ticket: only they can violate
        self._signs: dict[MemberId, tuple[object, ...]] = {}  # the state that the invariants depend on
        self._asking: dict[MemberId, int] = {}  # since when it wants a ticket and has none
        self._free_since: int | None = None
        """Since when some ticket has no owner; None: all have one."""
        self._clean = False
        self._watch = Watch()

    def started(self, instance: Instance) -> None:
        self._instances[instance.id] = instance

    def stopped(self, instance: Instance) -> None:
        self._instances.pop(instance.id, None)
        self._holders.pop(instance.id, None)
        self._signs.pop(instance.id, None)
        self._asking.pop(instance.id, None)

    def stepped(self, instance: Instance, event: ports.Input, outs: list[ports.Output], now: int) -> str | None:
        """The violations after this step, if any. A step touches the ring if it receives or sends a ring message or
        changes a ticket; gossip and deliveries do not."""
        if not _touched(event, outs):
            return None
        ring = instance.member.ring
        if isinstance(ring, NoRing):
            return None
        if ring.ticket is None:
            self._holders.pop(instance.id, None)
        else:
            self._holders[instance.id] = instance
        owners = sum(holder.member.ring.state is State.OWNER for holder in self._holders.values())
        if owners >= ring.ctx.config.tickets:
            self._free_since = None
        elif self._free_since is None:
            self._free_since = now
        if ring.ctx.wanted and ring.state is not State.OWNER:
            self._asking.setdefault(instance.id, now)
        else:
            self._asking.pop(instance.id, None)
        changes = [o for o in outs if type(o) is ports.Ticket]
        sign = (ring.state, ring.ticket, ring.inc, ring.ctx.pred, tuple(ring.coordinated()))
        if self._clean and not changes and self._signs.get(instance.id) == sign:
            return None
        self._signs[instance.id] = sign
        rings = _rings(self._holders)
        # Without times, members with an expired lease count as owners and unsteady ones as steady. If the invariants
        # hold even then, they hold until some member's state changes. Only otherwise are times needed, at every step.
        self._clean = not violations(rings)
        found = [] if self._clean else violations(rings, {i: s.host.clock.at(now) for i, s in self._holders.items()})
        if changes:
            found += self._watch.step(instance.id, _as_ring_outputs(changes), rings)
        return "; ".join(found) or None

    def quiet(self) -> str | None:
        """The violations of a ring that has had time to settle."""
        return "; ".join(quiet_violations(_rings(self._instances))) or None

    def in_vain(self, liars: Collection[str], since: int) -> str | None:
        """Who has asked for a ticket since then, though some have been free and there is somebody to grant one."""
        if self._free_since is None or self._free_since >= since:
            return None
        rings = {member: ring for member, ring in _rings(self._instances).items() if address_of(member) not in liars}
        owners = [member for member, ring in rings.items() if ring.state is State.OWNER]
        asking = [member for member in rings if self._asking.get(member, since) < since]
        tickets = max((ring.ctx.config.tickets for ring in rings.values()), default=0)
        if not asking or not (owners or council_lives(rings)):
            return None
        return f"{', '.join(asking)} still asked for a ticket at the end; {len(owners)} of {tickets} are taken"


def _rings(instances: dict[MemberId, Instance]) -> dict[MemberId, Ring]:
    return {i: s.member.ring for i, s in instances.items() if not isinstance(s.member.ring, NoRing)}


def _touched(event: ports.Input, outs: list[ports.Output]) -> bool:
    if type(event) is ports.Received:
        if type(event.message) in _OF_RINGS:
            return True
    elif type(event) not in _NOT_OF_RINGS:
        return True
    for out in outs:
        if type(out) is ports.Send:
            if type(out.message) in _OF_RINGS:
                return True
        elif type(out) is ports.Ticket:
            return True
    return False


def _as_ring_outputs(changes: list[ports.Ticket]) -> list[RingOutput]:
    """A member's `Ticket` outputs as outputs of its ring."""
    granted: list[RingOutput] = [Granted(c.ticket, c.inc, (0, 0)) for c in changes if c.change == "granted"]
    return granted + [BecameOwner(c.ticket, c.inc) for c in changes if c.change == "owner"]
