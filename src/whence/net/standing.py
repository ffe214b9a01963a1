"""Where a member stands in the ring, as others are told: does it hold a ticket, and who does, as far as it knows."""

from __future__ import annotations

from whence.clock import MemberId
from whence.member import Member
from whence.net.node import Node
from whence.ring.interface import State


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
