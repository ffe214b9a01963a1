"""Founding again at run time, by a person's decision: the council is lost for good (docs/ring.md, rule C0)."""

from __future__ import annotations

import time

from whence.core.ports import FoundRing
from whence.core.ring import CouncilRing
from whence.errors import UsageError
from whence.live.net.council import council_of
from whence.live.net.node import Node

PATIENCE = 60.0
"""Seconds for the quarantine and the first vouch: far more than they take."""
LOOK = 0.2
"""Seconds between two looks whether it was given up."""


async def force_found(node: Node, now: int) -> None:
    """Found the ring again at this member. Raises UsageError, saying why not: refused while an owner, or enough voters
    to go on, are heard."""
    ring = node.member.ring
    council = council_of(node.member, now)
    if not isinstance(ring, CouncilRing) or council is None:
        raise UsageError(f"{node.cluster!r} has no council: start one member again with --create (docs/operations.md)")
    if node.may_publish:
        raise UsageError(f"{node.me} publishes under ticket {node.ticket}: there is nothing to found again")
    if council.voters and council.has_quorum:
        raise UsageError(f"enough voters answer, so publishing comes back by itself: {council.says()}")
    ring.founding.refused = ""
    node.feed(FoundRing(force=True))
    deadline = time.monotonic() + PATIENCE
    while node.open and not node.may_publish and not ring.founding.refused and time.monotonic() < deadline:
        await node.changed.until(lambda: node.may_publish or not node.open, time.monotonic() + LOOK)
    if not node.may_publish:
        why = ring.founding.refused or f"it did not get a ticket within {PATIENCE:g} s"
        raise UsageError(f"{node.cluster!r} was not founded again: {why}")
