"""Which councils a process knows of, and how it talks to their voters. Rules C1 and C8."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from whence.clock import MemberId, any_life
from whence.ring.context import Context
from whence.ring.interface import Remember
from whence.ring.messages import Council, RingMessage, Voter

NONE = Council(0, (), ())
"""No council is known."""
REMEMBERED = 3
"""Councils whose vouches still count: the newest and those just before it (rule C2)."""


def quorum(voters: Sequence[Voter], have: Collection[MemberId]) -> bool:
    """More than half of the voters, or half with the first one (rule C1): two quorums always share a voter."""
    got = sum(voter.member in have for voter in voters)
    return 2 * got > len(voters) or (0 < 2 * got == len(voters) and voters[0].member in have)


class Councils:
    """The newest council known, and who this process is as a voter."""

    def __init__(self, ctx: Context, voter: MemberId, disk: bool) -> None:
        self.ctx = ctx
        self.me = Voter(voter, disk)
        self.now = NONE
        self.recent: dict[int, tuple[Voter, ...]] = {}
        self.inbox: list[RingMessage] = []
        """Messages of this process to its own vote."""
        self.when_new: list[Callable[[], None]] = []

    def learn(self, council: Council) -> None:
        """Somebody knows of this council; the higher number counts."""
        if council.number <= self.now.number:
            return
        self.now = council
        self.recent = {n: v for n, v in self.recent.items() if n > council.number - REMEMBERED}
        self.recent[council.number] = council.voters
        self.ctx.say(Remember())
        for act in self.when_new:
            act()

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
