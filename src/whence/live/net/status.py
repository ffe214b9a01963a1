"""Who is there: one member's view of its cluster, and what each of the others says of itself when it is asked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec

from whence.core.clock import MemberId, address_of
from whence.live.net.council import council_of, owners
from whence.live.net.hello import Answer, Ask

if TYPE_CHECKING:
    from whence.live.net.host import Host
    from whence.live.net.node import Node

MAX_ASKED: Final = 256
"""Members asked at a time; of more, only what is known here is told."""
PATIENCE_S: Final = 1.0
"""Seconds for their answers."""


class MemberStatus(msgspec.Struct, frozen=True):
    """What a member says of itself or, if it does not answer, others of it: seconds since they heard of it (`seen_s`),
    and `why` it cannot be reached from here. `votes`: it is a voter of the council. Its lag: frames that are `held`
    until their causes are there, and events that its application has not read."""

    member: MemberId
    answers: bool
    seen_s: float
    ticket: int | None
    votes: bool
    order: str = ""
    version: str = ""
    held: int = 0
    unread: int = 0
    why: str = ""


class ClusterStatus(msgspec.Struct, frozen=True):
    """A cluster, as the member `me` sees it: all members, how many tickets there are, what the `council` says and how
    many voters it may lose (None: there is no council), who broke the protocol (`cut_off`), which addresses vanished
    without a word (`gone`), and from which IP addresses a connection was `refused`; each with the reason. In total
    order, what its next delivery waits for (`waits`)."""

    cluster: str
    me: MemberId
    members: list[MemberStatus]
    tickets: int
    council: str
    may_lose: int | None
    cut_off: dict[MemberId, str]
    gone: dict[str, str]
    refused: dict[str, str]
    waits: str = ""


async def status_of(host: Host, node: Node, now: int) -> ClusterStatus:
    """Ask all members, and tell what came of it."""
    member, council = node.member, council_of(node, now)
    view, answers = member.cast.view, {node.me: host.answer(Ask(node.cluster, host.address, 0))}
    others, gone = member.members()[1:], node.gone.told()
    age_s = {m: round((view.round - born) * member.config.cast.round / 1e9, 1) for m, born in view.born.items()}
    asked = others[:MAX_ASKED]
    said = await asyncio.gather(
        *(host.ask(address_of(other), node.cluster, PATIENCE_S) for other in asked), return_exceptions=True
    )
    answers |= {m: a for m, a in zip(asked, said, strict=True) if isinstance(a, Answer) and a.member == m}
    tickets = {owner: ticket for ticket, owner in owners(member).items()}
    voters = {address_of(voter.member) for voter in council.voters} if council is not None else set()

    def status(one: MemberId) -> MemberStatus:
        answer, votes = answers.get(one), address_of(one) in voters
        if answer is None:
            why = host.why_unreached(address_of(one))
            return MemberStatus(one, False, age_s.get(one, 0.0), tickets.get(one), votes, why=why)
        ticket = None if answer.ticket < 0 else answer.ticket
        return MemberStatus(one, True, 0.0, ticket, votes, answer.order, answer.version, answer.held, answer.unread)

    return ClusterStatus(
        cluster=node.cluster,
        me=node.me,
        members=[status(one) for one in (node.me, *others)],
        tickets=0 if member.config.free else member.config.tickets,
        council=council.says() if council is not None else "",
        may_lose=council.may_lose if council is not None else None,
        cut_off=dict(member.cut_off),
        gone=gone,
        refused=host.refused(),
        waits=member.waits_for(),
    )
