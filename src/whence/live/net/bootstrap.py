"""The same list of peers at every node: who founds the cluster, and who joins it.

Rules of this file:

1. A node that finds a member of the cluster among the listed peers joins it.
2. A node founds only if **every** listed peer has answered and none of them holds a ticket or is about to found. A peer
   that does not answer may be on the other side of a partition, with a ring: then only an operator may decide.
3. Of the peers that are not in the cluster yet, the one founds whose disk remembers the highest epoch; of equals the
   first in the list. So no epoch, and no event id, is used twice, even where some disks were lost.
4. Otherwise a node waits, and says for whom.
5. A council that is remembered decides (docs/ring.md, rule C0). It is lost when all its voters are listed, so each of
   them has answered, and those that still have their disk or their life are no quorum. Only then is it replaced.

Coordinators belong in the list: a coordinator that is not listed is not asked. If there is one, the founder gives way
as soon as it hears of it (docs/ring.md).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import NamedTuple

from whence.core.clock import address_of
from whence.core.ring.council import quorum
from whence.core.ring.messages import Voter
from whence.errors import NotJoined, UsageError
from whence.live.net.hello import Answer
from whence.live.net.host import Host

log = logging.getLogger("whence.live.net")

ASK_EVERY = 0.5
"""Seconds between two rounds of questions."""
COMPLAIN_EVERY = 10.0
"""Seconds after which a node that waits logs the reason, and then again."""


class Met(NamedTuple):
    """What came of asking the peers."""

    members: list[Answer]
    """Answers of members, to join through."""
    founds: bool
    """This node is the one to found."""
    remember: set[str]
    """Peers, by address, that are in the cluster or have a disk that was."""

    def lost(self, voters: Sequence[Voter]) -> bool:
        """This council never comes back (rule 5). Asked by the node that founds, so every listed peer has answered."""
        have = [voter.member for voter in voters if address_of(voter.member) in self.remember]
        return not quorum(voters, have)


async def meet(host: Host, cluster: str, peers: Sequence[str], epoch: int, timeout: float | None) -> Met:
    """Who of the peers is there, and whether to found. `epoch`: the highest that this node's disk remembers, -1: none.
    Raises NotJoined after `timeout` seconds; None: it waits as long as it takes."""
    if host.address not in peers:
        raise UsageError(
            f"the list of peers ({', '.join(peers)}) lacks this node, {host.address}: listen on (or advertise) the "
            "address that stands in the list"
        )
    others = [peer for peer in peers if peer != host.address]
    began = said_at = time.monotonic()
    while True:
        round_began = time.monotonic()
        answers = dict(
            zip(others, await asyncio.gather(*(host.ask(p, cluster, ASK_EVERY) for p in others)), strict=True)
        )
        members = [answer for answer in answers.values() if answer is not None and answer.member]
        why = _why_not_found(host, peers, answers, epoch)
        if members or not why:
            remember = {
                p for p, answer in answers.items() if answer is not None and (answer.member or answer.epoch >= 0)
            }
            return Met(members, not why, remember | ({host.address} if epoch >= 0 else set()))
        now = time.monotonic()
        if timeout is not None and now - began > timeout:
            raise NotJoined(f"{cluster!r} was neither joined nor founded within {timeout:g} s: {why}")
        if now - said_at > COMPLAIN_EVERY:
            said_at = now
            log.warning("%s: waiting: %s", cluster, why)
        await asyncio.sleep(max(0.05, round_began + ASK_EVERY - time.monotonic()))


def _why_not_found(host: Host, peers: Sequence[str], answers: dict[str, Answer | None], epoch: int) -> str:
    """Why this node does not found (rules 2 and 3); empty: it does."""
    reasons = {peer: host.why_unreached(peer) for peer, answer in answers.items() if answer is None}
    silent = [f"{peer} ({why})" if why else peer for peer, why in reasons.items()]
    if silent:
        return (
            f"no answer from {', '.join(silent)}. The cluster is founded when all peers are there; if one is gone for "
            "good, take it out of every list, or start one node with --create instead"
        )
    holding = [peer for peer, answer in answers.items() if answer is not None and answer.holds]
    if holding:
        return f"{', '.join(holding)} holds a ticket or is founding"
    ranks = {host.address: epoch}
    ranks |= {peer: answer.epoch for peer, answer in answers.items() if answer is not None and not answer.member}
    first = max(ranks, key=lambda peer: (ranks[peer], -peers.index(peer)))
    return "" if first == host.address else f"{first} founds it"
