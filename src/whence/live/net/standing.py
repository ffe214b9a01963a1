"""Where a member stands in the ring, as others are told: does it hold a ticket, and who does, as far as it knows."""

from __future__ import annotations

from whence.core.clock import MemberId
from whence.core.member import Member
from whence.core.ring.context import State
from whence.live.net.node import Node


def holds(node: Node, now: int) -> bool:
    """It holds a ticket, or is about to found."""
    return node.ticket is not None or node.member.ring.state is State.FOUNDING or now < node.founds_until


def owners(member: Member) -> dict[int, MemberId]:
    """Ticket -> owner, without those that are gone: a dead owner stays in the ring's table until it is excluded. A
    partial view does not show who is gone."""
    ring, known = member.ring.coordinators(), member.members()
    if member.config.cast.view == "partial":
        return ring
    return {ticket: owner for ticket, owner in ring.items() if owner in known}
