"""Where a member stands in the ring, and the council as people see it: who votes, who does not answer, what may be
lost, and what would help."""

from __future__ import annotations

import time

import msgspec

from whence.core.clock import MemberId, address_of
from whence.core.member import Member
from whence.core.ring import CouncilRing
from whence.core.ring.context import State
from whence.core.ring.council import quorum
from whence.core.ring.messages import Voter
from whence.errors import UsageError
from whence.live.net.node import Node

FORCE_AFTER_S = 60.0
"""Seconds for which voters have to be missing before operator override is mentioned: most of them come back."""


class CouncilVoter(msgspec.Struct, frozen=True):
    """A voter, as far as this member knows."""

    member: MemberId
    remembers: bool
    """Its memory is kept outside of the process: started again at its address, it is the same voter."""
    missing: bool
    """It does not answer."""
    missing_for: float = 0.0
    """Seconds, while this process ran."""


class CouncilStatus(msgspec.Struct, frozen=True):
    """The voters that decide who may publish (docs/ring.md, the council)."""

    cluster: str
    number: int
    """Which council this is; each change raises it. 0: none is known yet."""
    voters: tuple[CouncilVoter, ...]
    me: MemberId = ""
    """This process as a voter; empty: it is none."""
    decides: str = ""
    """For advice: the address of a member that can create the ring again, the options of the cluster's keys, and the
    directory from which this process remembers a council, if it does."""
    keys: str = ""
    memory: str = ""

    @property
    def missing(self) -> tuple[CouncilVoter, ...]:
        return tuple(voter for voter in self.voters if voter.missing)

    @property
    def has_quorum(self) -> bool:
        """Those that answer can decide: more than half, or half with the first one."""
        return self._enough([v.member for v in self.voters if not v.missing])

    @property
    def may_lose(self) -> int:
        """How many more voters, whichever they are, may be lost at once."""
        return max(0, len(self.voters) - len(self.missing) - len(self.voters) // 2 - 1)

    def _enough(self, have: list[MemberId]) -> bool:
        return quorum([Voter(v.member, v.remembers) for v in self.voters], have)

    # --- in words ---

    def says(self) -> str:
        """What survives, and what would help, in a sentence."""
        if not self.voters:
            return "no council is known yet"
        if not self.has_quorum:
            return f"nobody can get a ticket: {self.lacks()}"
        there = [v for v in self.voters if not v.missing]
        spare = [v for v in there if self._enough([o.member for o in there if o is not v])]
        if self.may_lose:
            said = f"survives the loss of any {self.may_lose} of them"
        elif spare:
            said = f"survives the loss of {_listed([self._name(v) for v in spare], 'or')} alone: {self._help()}"
        else:
            said = f"survives no loss: {self._help()}"
        names = ", ".join(self._name(v) for v in self.voters)
        gone = (
            f"; no answer from {_listed([address_of(v.member) for v in self.missing], 'and')}" if self.missing else ""
        )
        return f"council of {len(self.voters)} ({names}){gone}: publishing {said}"

    def lacks(self) -> str:
        """Who does not answer though its vote is needed, and what would help."""
        who = [
            f"{address_of(v.member)}{f' (for {v.missing_for:.0f} s)' if v.missing_for else ''}" for v in self.missing
        ]
        back = [address_of(v.member) for v in self.missing if v.remembers]
        start = (
            f"Start {_listed(back, 'or')} again, at its address and with its memory; publishing then goes on by itself"
            if back
            else "No memory of their votes is kept, so starting them again does not help"
        )
        if self.memory:
            start += f" (this process remembers them from {self.memory}: if that experiment is over, remove it)"
        one = len(self.missing) == 1
        force = f"whence node --cluster {self.cluster} --force --contact {self.decides} {self.keys}"
        patient = all(voter.missing_for >= FORCE_AFTER_S for voter in self.missing)
        lost = f"If gone for good, a person has to say so: {force}"
        return (
            f"{len(self.missing)} of {len(self.voters)} voters {'does' if one else 'do'} not answer, "
            f"{_listed(who, 'and')}; {'it' if one else 'they'} may live on the other side of a cut. {start}. "
            f'{lost if patient else "If they stay away, see"} docs/operations.md, "A lost ring"'
        )

    def _help(self) -> str:
        third = "a third" if len(self.voters) == 2 else "another"
        ask = next((address_of(v.member) for v in self.voters if not v.missing), self.decides)
        return f"start {third} member: `whence node --cluster {self.cluster} --contact {ask} {self.keys} --stay`"

    def _name(self, voter: CouncilVoter) -> str:
        return "this process" if voter.member == self.me else address_of(voter.member)


def _listed(names: list[str], last: str) -> str:
    """`a, b and c`, where `last` is `and`."""
    return f" {last} ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def council_of(node: Node, now: int) -> CouncilStatus | None:
    """The council as this member sees it; None: this cluster's ring has none. A process that has just stood still has
    heard nobody for as long, which says nothing of them."""
    member, ring = node.member, node.member.ring
    if not isinstance(ring, CouncilRing):
        return None
    silent: dict[MemberId, float] = {}
    if now - node.awake_since > 3 * member.config.ring.round_ns:
        silent = {v: ns / 1e9 for v, ns in ring.silent(now).items()}
        seen, clock = {address_of(m) for m in member.members()}, time.monotonic()
        gone = {v: address_of(v) for v in ring.councils.members() if address_of(v) not in seen}
        if member.config.cast.view != "partial":  # which does not show who is gone
            known = node.gone.last
            silent |= {v: max(silent.get(v, 0.0), clock - known.get(at, (clock, ""))[0]) for v, at in gone.items()}
    voters = tuple(
        CouncilVoter(v.member, v.disk, v.member in silent, silent.get(v.member, 0.0)) for v in ring.councils.now.voters
    )
    me = ring.councils.me.member
    seated = me if me in ring.councils.members() else ""
    may = member.seal is None or member.seal.can_sign
    able = [address_of(member.me)] if may else [address_of(v.member) for v in voters if not v.missing]
    decides = able[0] if able else "HOST:PORT"
    return CouncilStatus(
        member.config.cluster, ring.councils.now.number, voters, seated, decides, node.keys, node.memory
    )


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


PATIENCE = 60.0
"""Seconds for the quarantine and the first vouch: far more than they take."""


async def force_found(node: Node, now: int) -> None:
    """Found the ring again at this member. Raises UsageError, saying why not: refused while an owner, or enough voters
    to go on, are heard."""
    ring = node.member.ring
    council = council_of(node, now)
    if not isinstance(ring, CouncilRing) or council is None:
        raise UsageError(f"{node.cluster!r} has no council: start one member again with --create (docs/operations.md)")
    if node.member.may_publish:
        raise UsageError(f"{node.me} publishes under ticket {node.ticket}: do not create the ring again")
    if council.voters and council.has_quorum:
        raise UsageError(f"enough voters answer, so publishing comes back by itself: {council.says()}")
    node.found(force=True)
    over = time.monotonic() + PATIENCE
    await node.changed.until(lambda: node.member.may_publish or bool(node.unfounded) or not node.open, over)
    if not node.member.may_publish:
        why = node.unfounded or f"it did not get a ticket within {PATIENCE:g} s"
        raise UsageError(f"{node.cluster!r} was not founded again: {why}")
