"""What the members of a ring say to each other (CCC11 Algorithms 1-4), and what they tell everybody by PrCast.

Rules 4, 6, 14 and 15: every message between coordinators names the tenure of both ends (`mine`, `yours`) and is
dropped on a mismatch; what is asked carries a nonce, and the answer repeats it. Nonces of one process only ever grow.

Tags are stable: new messages are appended, numbers are never used again. Ring messages have 32..63, those of the
council 96..127.
Incarnations travel packed (`Incarnation.packed`), which compares as the triple does. An **era** is `(epoch, term)`
packed the same way: an incarnation without its count.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import msgspec

from whence.core.clock import Entry, Incarnation, MemberId, address_of
from whence.core.clock.bounds import (
    MAX_TICKETS,
    MAX_VOTERS,
    Count,
    Items,
    MaybeMember,
    PerTicket,
    Seq,
    Text,
    TicketIndex,
)
from whence.core.clock.event import Moment
from whence.core.clock.logs import GENERATION as GENERATION
from whence.core.clock.logs import LogRow, Logs, Turn
from whence.errors import BadMessage

ERA_SHIFT = 24
"""Bits of an incarnation's count: `packed >> ERA_SHIFT` is its era."""
MAX_EPOCH = 1 << 64 - 2 * ERA_SHIFT


def term_of(era: int) -> int:
    return era & (1 << ERA_SHIFT) - 1


class Tenure(NamedTuple):
    """One holding of a ticket, by one life of one process: the ticket and the incarnation."""

    ticket: TicketIndex
    inc: Count


class Holder(NamedTuple):
    """A tenure and who has it. L and R are lists of holders."""

    member: MemberId
    ticket: TicketIndex
    inc: Count

    @property
    def tenure(self) -> Tenure:
        return Tenure(self.ticket, self.inc)

    @property
    def epoch(self) -> int:
        return self.inc >> 2 * ERA_SHIFT

    def __str__(self) -> str:
        return f"{self.ticket}:{Incarnation.unpack(self.inc)}@{self.member}"


class TicketRow(NamedTuple):
    """What is known of one ticket."""

    ticket: TicketIndex
    owner: MaybeMember
    """Who owns it, as far as known; empty: nobody known."""
    top: Count
    """The highest incarnation known to have been granted."""
    floor: Count
    """Incarnations below this one are over: excluded or released."""
    last: Entry
    """The last event known to have been published on it."""


class Voter(NamedTuple):
    """A vote in the council: a life of a process, or its disk, which later lives go on with (rule C1)."""

    member: MemberId
    """The life in which it could vote first; it keeps the name as long as its memory lasts."""
    disk: bool
    """Its memory survives the process."""


Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
"""Of a council or a ballot; leaves room for the next ones."""
Voters = Annotated[tuple[Voter, ...], msgspec.Meta(max_length=MAX_VOTERS)]


class Council(NamedTuple):
    """Who votes (rule C1)."""

    number: Number
    """Generation and number, packed (`GENERATION`). The higher one counts."""
    voters: Voters
    """The first one decides a tie."""
    before: Voters
    """The voters of the council before this one: they know how it begins."""


class Ballot(NamedTuple):
    """A ballot of Paxos: number and proposer."""

    number: Number
    by: MaybeMember


class Ledger(NamedTuple):
    """What a voter knows of the tickets (rule C7)."""

    era: Count
    """The highest era it has agreed to."""
    seats: PerTicket[Holder]
    """Whom it vouches for at the moment."""
    rows: PerTicket[TicketRow]
    """Of each ticket: the highest incarnation vouched for (`top`, in the hands of `owner`) and the floor."""


Holders = PerTicket[Holder]


class _Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    pass


class _Between(_Message, frozen=True):
    """From one tenure to another (rule 4), under a nonce (rule 14)."""

    nonce: Count
    mine: Tenure
    yours: Tenure


class _Answer(_Message, frozen=True):
    """To the tenure that asked under this nonce."""

    nonce: Count
    yours: Tenure


# --- joining (Algorithms 1 and 3) ---


class CJoin(_Message, frozen=True, tag=32):
    """I want a ticket; `wish` if you have the choice (-1: any)."""

    nonce: Count
    wish: Annotated[int, msgspec.Meta(ge=-1, lt=MAX_TICKETS)] = -1


class Reject(_Message, frozen=True, tag=33):
    """No (to CJOIN or WHO). `owner`: the sender is a living coordinator. `known`: coordinators to try instead."""

    nonce: Count
    reason: Text
    owner: bool
    era: Count
    known: PerTicket[tuple[TicketIndex, MemberId]]


class AckCJoin(_Message, frozen=True, tag=34):
    """The ticket is yours, on probation (rule 10). It is also the first UPDATE of the new edge."""

    nonce: Count
    update: Count
    """The nonce of the UPDATE that this message is."""
    mine: Tenure
    yours: Tenure
    succ: Holder
    L: Holders
    inherited: Items[Holders]
    """What `succ` may hold as its L (rule 13, for an edge that changes hands)."""
    rows: PerTicket[TicketRow]


class Decline(_Message, frozen=True, tag=50):
    """I do not have, and shall never have, the tenure that you granted, or released, under this nonce."""

    nonce: Count
    tenure: Tenure


class Who(_Message, frozen=True, tag=51):
    """Is there a coordinator? Answered by REJECT. Asked by a founder in quarantine."""

    nonce: Count


# --- the edge between neighbours in the fault-free protocol (Algorithm 1) ---


class NewSucc(_Message, frozen=True, tag=35):
    """You are my successor now."""

    mine: Tenure
    yours: Tenure


class AckSucc(_Message, frozen=True, tag=36):
    """You are my predecessor now."""

    mine: Tenure
    yours: Tenure


# --- leaving (Algorithm 1; rules 2-6, 19) ---


class CLeave(_Between, frozen=True, tag=37):
    """I have stopped publishing and want to leave; take over what I coordinate."""

    succ: Holder
    answers: Count
    """The nonce of the last UPDATE accepted from the receiver: which edge this CLEAVE belongs to (0: fault-free)."""
    held: Items[Holders]
    """What `succ` may hold as its L (rule 13)."""
    rows: PerTicket[TicketRow]


class AckCLeave(_Answer, frozen=True, tag=38):
    """You are out."""


class NackLeave(_Answer, frozen=True, tag=39):
    """Not now: go on as coordinator (rule 5)."""


# --- the lease and the edge between neighbours in the fault-tolerant protocol (Algorithm 2) ---


class Poll(_Between, frozen=True, tag=40):
    """Do you vouch for me? Sent to every member of L in every round."""

    era: Count
    seq: Seq
    """The last event published under `mine`."""


class Alive(_Between, frozen=True, tag=41):
    """I vouch for you, from when you sent the poll (rule 14). `promised`: the nonce of the REQCOORD of yours that I
    keep a promise for (0: none); if nothing came of it and your CANCEL was lost, send it again."""

    era: Count
    promised: Count = 0


class Update(_Between, frozen=True, tag=42):
    """You are my successor; let R be your L. `takeover`: tenures below these are over (rule 15)."""

    era: Count
    R: Holders
    takeover: PerTicket[Tenure]


class AckUpdate(_Between, frozen=True, tag=43):
    """You are my predecessor. `adopted`: the nonce of the UPDATE whose R is my L (0: none of yours yet)."""

    adopted: Count
    confirmed: bool
    """False: on probation (rule 10)."""


# --- exclusion (Algorithm 4) ---


class Exclude(_Message, frozen=True, tag=44):
    """My successor does not answer; what is your L? Addressed to the owner of `ticket`."""

    nonce: Count
    mine: Tenure
    ticket: TicketIndex


class AckExclude(_Between, frozen=True, tag=45):
    """My L."""

    era: Count
    L: Holders


class ReqCoord(_Between, frozen=True, tag=46):
    """I take over the tickets strictly between mine and `until`, under `era`."""

    until: TicketIndex
    era: Count


class AckCoord(_Answer, frozen=True, tag=47):
    """I shall vouch for nobody there below that era; `rows`: what I know of these tickets."""

    rows: PerTicket[TicketRow]


class NackCoord(_Answer, frozen=True, tag=48):
    """No: I have seen this era (ask again with a higher one), or you are excluded yourself."""

    era: Count


class Cancel(_Message, frozen=True, tag=49):
    """The exclusion failed; forget your promise. (Its acks will never be used, rule 18.)"""

    nonce: Count
    mine: Tenure


# --- the council (rules C0 to C12) ---


class _InCouncil(_Message, frozen=True):
    council: Number
    """The number of the council that is meant."""


class _FromVoter(_InCouncil, frozen=True):
    nonce: Count
    voter: MemberId


class Sit(_InCouncil, frozen=True, tag=96):
    """Do you vouch for my seat? To every voter, in every round (rule C2)."""

    nonce: Count
    mine: Tenure
    seq: Seq
    """The last event published under `mine`."""
    clock: Moment = 0
    """Where there is total order: with `seq`, a tick (docs/total.md, rule T4)."""


class Vouch(_FromVoter, frozen=True, tag=97):
    """I vouch for you, from when you sent the question (rule C3)."""

    clock: Moment = 0
    """Where there is total order: the owner's begins above it (rule T2)."""


class Read(_InCouncil, frozen=True, tag=98):
    """Whom do you vouch for? (Rules C5 and C6.)"""

    nonce: Count


class Seats(_FromVoter, frozen=True, tag=99):
    """The answer to READ."""

    table: Ledger


class Claim(_InCouncil, frozen=True, tag=100):
    """Let me take these tickets under this era (rule C4)."""

    nonce: Count
    era: Count
    tickets: PerTicket[TicketIndex]


class Agree(_FromVoter, frozen=True, tag=101):
    """I vouch for nobody on these tickets, and shall for nobody below that era."""


class Vacate(_Message, frozen=True, tag=102):
    """I have given up this seat (rule C12)."""

    tenure: Tenure
    seq: Seq


class Known(_Message, frozen=True, tag=103):
    """The newest council that I know of."""

    now: Council


class Attend(_InCouncil, frozen=True, tag=104):
    """From voter to voter, in every round: I am here, and know how this council began (0: none)."""

    voter: MemberId
    leaving: bool
    """Choose the next council without me."""


class Volunteer(_Message, frozen=True, tag=105):
    """I could be a voter (rule C10)."""

    as_voter: Voter


class Missing(_InCouncil, frozen=True, tag=106):
    """I am a voter of this council and do not know how it begins (rule C8)."""


class _InBallot(_InCouncil, frozen=True):
    ballot: Ballot


class Prepare(_InBallot, frozen=True, tag=107):
    """Stand still and tell me what you know: I want to propose the next council (rule C8)."""


class Promise(_InBallot, frozen=True, tag=108):
    """I stand still. `accepted`: the ballot in which I have accepted a next council, and who is in it."""

    voter: MemberId
    accepted: tuple[Ballot, Voters] | None
    table: Ledger
    logs: Logs | None = None


class Higher(_InBallot, frozen=True, tag=109):
    """No: I have promised this ballot."""


class Accept(_InBallot, frozen=True, tag=110):
    """Let these be the voters of the next council. `logs`: what it begins with; a quorum must hold it (rule T10)."""

    voters: Voters
    logs: Logs | None = None


class Accepted(_InBallot, frozen=True, tag=111):
    """I have accepted these voters."""

    voter: MemberId


class Begin(_Message, frozen=True, tag=112):
    """This council is decided, and begins with this table (rule C7)."""

    now: Council
    table: Ledger
    logs: Logs | None = None


# --- closing a log (docs/total.md, rule T8) ---


class CloseLog(_InCouncil, frozen=True, tag=113):
    """Nobody vouches for this tenure: I want to close its log. What do you hold of it?"""

    tenure: Tenure
    turn: Turn


class ClosedLog(_InCouncil, frozen=True, tag=114):
    """This is what I hold of it, and the closing that I have promised: `turn`, or a higher one."""

    voter: MemberId
    turn: Turn
    row: LogRow


class EndLog(_InCouncil, frozen=True, tag=115):
    """Let the log end here."""

    tenure: Tenure
    turn: Turn
    end: Seq


_Applying = CJoin | Reject | AckCJoin | Decline | Who
_Edges = NewSucc | AckSucc
_Leaving = CLeave | AckCLeave | NackLeave
_Lease = Poll | Alive | Update | AckUpdate
_Excluding = Exclude | AckExclude | ReqCoord | AckCoord | NackCoord | Cancel
_Seats = Sit | Vouch | Read | Seats | Claim | Agree | Vacate | Known
_Reform = Attend | Volunteer | Missing | Prepare | Promise | Higher | Accept | Accepted | Begin
_Closings = CloseLog | ClosedLog | EndLog
CouncilMessage = _Seats | _Reform | _Closings
RingMessage = _Applying | _Edges | _Leaving | _Lease | _Excluding | CouncilMessage


# --- news, carried by PrCast; tags of their own ---


class JoinedNews(_Message, frozen=True, tag=1):
    """`holder` is an owner now (CCC11: "PrCast: p owns t")."""

    holder: Holder


class GoneNews(_Message, frozen=True, tag=2):
    """The tickets, nearest first, were taken over by an exclusion: what is below `floor` on them is over (rule 15)."""

    tickets: PerTicket[TicketIndex]
    floor: Count
    by: MemberId


class ReleasedNews(_Message, frozen=True, tag=3):
    """`holder` left gracefully; `seq` is its last event."""

    holder: Holder
    seq: Seq


RingNews = JoinedNews | GoneNews | ReleasedNews


def check_message(message: RingMessage | RingNews, tickets: int) -> int:
    """Raise BadMessage for what no member of a ring of that many tickets can have sent, or told everybody. Returns the
    highest era that it names. (Tickets in hints, CJOIN's wish and REJECT's list, are ignored where they do not
    exist.)"""
    named: list[int] = []
    era = max(_name(msgspec.structs.astuple(message), named) >> ERA_SHIFT, getattr(message, "era", 0))
    match message:
        case Exclude(ticket=ticket) | ReqCoord(until=ticket):
            named.append(ticket)
        case Claim(tickets=claimed):
            named.extend(claimed)
        case Seats(table=table) | Promise(table=table) | Begin(table=table):
            era = max(era, table.era)
        case GoneNews(tickets=gone, floor=floor):
            named.extend(gone)
            era = floor >> ERA_SHIFT
        case _:
            pass
    for ticket in named:
        if not 0 <= ticket < tickets:
            raise BadMessage(f"{type(message).__name__} names ticket {ticket}; there are 0..{tickets - 1}")
    return era


def check_voter(sender: MemberId, message: RingMessage) -> None:
    """Raise BadMessage when somebody speaks for a voter at another address."""
    if isinstance(message, Volunteer):
        voter = message.as_voter.member
    elif isinstance(message, _FromVoter | Attend | Promise | Accepted | ClosedLog):
        voter = message.voter
    else:
        return
    if address_of(voter) != address_of(sender):
        raise BadMessage(f"{type(message).__name__} of {sender} speaks for {voter}")


def by_receiver(message: RingMessage) -> RingMessage:
    """What counts of a message by a member that may only receive. It answers when asked for coordinators, and its
    answer can be a hint but no claim; it asks voters for their tables, to know which council is the newest. Raises
    BadMessage for any other message: such a member never has a ticket, and never votes (rule C10)."""
    match message:
        case Reject(nonce, reason, _, _, known):
            return Reject(nonce, reason, False, 0, known)
        case Who() | Read():
            return message
        case Known():
            return Known(Council(0, (), ()))
        case _:
            raise BadMessage(f"{type(message).__name__} from a member that may only receive")


def _name(fields: tuple[Any, ...], named: list[int]) -> int:
    """Add the tickets of all tenures, holders and rows among these. Returns the highest of their incarnations."""
    highest = 0
    for value in fields:
        if isinstance(value, (Tenure, Holder, LogRow)):  # a union would be made anew at each call
            inc = value.inc
        elif isinstance(value, TicketRow):
            inc = max(value.top, value.floor, value.last[0])
        elif isinstance(value, tuple):
            highest = max(highest, _name(value, named))
            continue
        else:
            continue
        named.append(value.ticket)
        if inc > highest:
            highest = inc
    return highest
