"""Which councils a process knows of, and how it talks to their voters. Rules C1 and C8."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from whence.core.clock import MemberId, address_of, any_life
from whence.core.ring.context import Context
from whence.core.ring.interface import Remember
from whence.core.ring.messages import GENERATION, Council, Read, RingMessage, Voter

NONE = Council(0, (), ())
"""No council is known."""
REMEMBERED = 3
"""Councils whose vouches still count: the newest and those just before it (rule C2)."""
HINT_ROUNDS = 3
"""Rounds of silence of all voters after which others are believed about the council."""


def quorum(voters: Sequence[Voter], have: Collection[MemberId]) -> bool:
    """More than half of the voters, or half with the first one (rule C1): two quorums always share a voter."""
    got = sum([voter.member in have for voter in voters])
    return 2 * got > len(voters) or (0 < 2 * got == len(voters) and voters[0].member in have)


def votes(sender: MemberId, voters: Sequence[Voter]) -> bool:
    """One of them, in whichever life, is at the sender's address."""
    return address_of(sender) in [address_of(voter.member) for voter in voters]


class Councils:
    """The newest council known, and who this process is as a voter."""

    def __init__(self, ctx: Context, voter: MemberId, disk: bool) -> None:
        self.ctx = ctx
        self.me = Voter(voter, disk)
        self.moved = None if address_of(voter) == address_of(ctx.me) else Voter(ctx.me, disk)
        """This process is back with its disk at another address, where others do not look for its vote: as whom it asks
        to be elected instead (rule C9)."""
        self.now = NONE
        self.recent: dict[int, tuple[Voter, ...]] = {}
        self.inbox: list[RingMessage] = []
        """Messages of this process to its own vote."""
        self.when_new: list[Callable[[], None]] = []
        self.heard_at: int | None = None
        """When a voter of the newest council last spoke; None: none ever did."""
        self.spoke: dict[MemberId, int] = {}
        """Voter of the newest council -> when it last spoke."""
        self.learned_at = 0
        self.hint: Council | None = None
        """A council that somebody told of who is no voter."""

    # --- hearsay (rule C1) ---

    def heard(self, sender: MemberId) -> None:
        if sender != self.ctx.me and votes(sender, self.now.voters):
            self.heard_at, self.hint = self.ctx.now, None
            self.spoke |= {v: self.ctx.now for v in self.members() if address_of(v) == address_of(sender)}

    def told(self, sender: MemberId, council: Council) -> bool:
        """Somebody tells of a council; returns whether it is believed now. A voter of the newest council known is
        believed, a voter of a higher generation (rule C0), and anybody while no council is known. Otherwise it is a
        hint: ask the voters, and believe it only if none of them speaks for some rounds. So one lie about the council,
        told to whomever, stops nobody."""
        if not council.number:
            return False  # whoever may only receive cannot tell
        known = self.now
        higher = council.number >> GENERATION > known.number >> GENERATION and votes(sender, council.voters)
        same = council.number == known.number and votes(sender, known.before)
        if not known.number or sender == self.ctx.me or votes(sender, known.voters) or higher or same:
            self.learn(council)
            return True
        if council.number > known.number or (self.heard_at is None and council.number != known.number):
            if self.hint is None:
                self.tell_all(Read(known.number, 0))
            self.hint = council
        return False

    def consider_hint(self) -> None:
        """Once a round."""
        hint, now = self.hint, self.ctx.now
        if hint is None or self.members() == [self.me.member]:
            self.hint = None  # a voter alone decides which council is next
        elif now - max(self.learned_at, self.heard_at or 0) < HINT_ROUNDS * self.ctx.config.round_ns:
            self.tell_all(Read(self.now.number, 0))
        else:
            if self.heard_at is None and not self.seated:
                self.now = NONE  # no voter has ever confirmed it: it may have been a lie
            self.hint = None
            self.learn(hint)

    def learn(self, council: Council) -> None:
        """Somebody knows of this council; the higher number counts."""
        if council.number <= self.now.number:
            return
        self.settle(council)
        self.now, self.learned_at, self.heard_at = council, self.ctx.now, None
        self.spoke = {voter: self.spoke.get(voter, self.ctx.now) for voter in self.members()}
        self.recent = {n: v for n, v in self.recent.items() if n > council.number - REMEMBERED}
        self.recent[council.number] = council.voters
        self.ctx.say(Remember())
        for act in self.when_new:
            act()

    def settle(self, council: Council) -> None:
        """Elected at the new address: the vote at the old one is over."""
        if self.moved in council.voters:
            self.me, self.moved = self.moved, None

    @property
    def seated(self) -> bool:
        """This process is a voter of the newest council."""
        return self.me.member in self.members()

    def members(self) -> list[MemberId]:
        return [voter.member for voter in self.now.voters]

    def quorum(self, number: int, have: Collection[MemberId]) -> bool:
        """Of a council that is remembered."""
        return self.enough(self.recent.get(number, ()), have)

    def enough(self, voters: Sequence[Voter], have: Collection[MemberId]) -> bool:
        return quorum(voters, have)

    def tell(self, voter: MemberId, message: RingMessage) -> None:
        """To a voter, in whichever life it is."""
        if voter == self.me.member:
            self.inbox.append(message)
        else:
            self.ctx.send(any_life(voter), message)

    def answer(self, sender: MemberId, message: RingMessage) -> None:
        """To the very life that asked."""
        if sender == self.ctx.me:
            self.inbox.append(message)
        else:
            self.ctx.send(sender, message)

    def tell_all(self, message: RingMessage) -> None:
        for voter in self.members():
            self.tell(voter, message)
