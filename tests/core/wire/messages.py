"""Valid messages of every kind: one fixed example each, and Hypothesis strategies for all."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
from hypothesis import strategies as st

from whence.core.cast import messages as cast
from whence.core.clock import (
    NEVER,
    Digest,
    Frame,
    FreeFrame,
    Incarnation,
    Packed,
    StampedFrame,
    TotalFrame,
    logs,
    member_id,
)
from whence.core.clock.cct import MAX_SEQ
from whence.core.clock.event import LAST, LostRange
from whence.core.order import messages as order
from whence.core.ring import messages as ring
from whence.core.ring.messages import Ballot, Council, Holder, Ledger, RingMessage, RingNews, Tenure, TicketRow, Voter

KINDS: list[type] = [*get_args(cast.CastMessage), *get_args(RingMessage), *get_args(order.OrderMessage)]
NEWS_KINDS: list[type] = list(get_args(RingNews))

# ------------------------------------------------------------------------------------------------------ examples

INC = Incarnation(1, 2, 3).packed
FRAME = Frame.of(1, INC, 3, "b:1#2", ((5, 6), (INC, 2), NEVER), [b"x", b"yz"], ((0, 4, 9),), (0, 4, 2))
FIRST = Frame.of(0, 7, 1, "a:1#2", (NEVER,), [b""])
SEAT = Holder("a:1#2", 0, 7)
T0, T1 = Tenure(0, 7), Tenure(1, INC)
ROW = TicketRow(1, "", 7, 3, (7, 0))
VOTERS = (Voter("a:1#2", False), Voter("b:1#2", True))
COUNCIL = Council(3, VOTERS, VOTERS[:1])
BALLOT = Ballot(4, "b:1#2")
LEDGER = Ledger(5, (SEAT,), (ROW,))
CLOCK = order.TicketState(
    ((5, 6), NEVER), (4, 0), ((0, 4, 8),), ((0, 4, 9),), ((5, 6), NEVER), ((0, 5, "a:1#2"),), ((1, 2, 3),)
)

LOG = logs.LogRow(1, INC, 6, (4, "b:1#2"), ((4, "b:1#2"), 6), 6, 70)
LOGS = logs.Logs(70, (LOG,), ((1, INC),), 60, 50)
TOTAL = TotalFrame(*msgspec.structs.astuple(FRAME), 71, (LostRange(0, (4, 9), (5, 6)),))
TOTAL_CLOCK = order.TotalState(
    *msgspec.structs.astuple(CLOCK), 70, 9, 1, (0, 4), ((0, 4, 8),), ((0, 4),), 80, order.LogVote(3, LOGS, LOGS)
)

FREE = FreeFrame(
    "a:1#2", 3, 5, 2, 1 << 32, 2, (0, 2), Packed.of((4, 1, 300)), b"\x92\xc4\x01x\xc4\x01y", ((0, Packed.of((7,))),)
)
FREE_CLOCK = order.FreeState(
    (
        order.GenerationState(0, 1, Packed.of((7,)), past=Packed.of((8,))),
        order.GenerationState(1 << 32, 2, Packed.of((4, 1, 9)), (1, 0, 0), (3, 0, 0)),
    ),
    (order.OwnerState("a:1#2", 2, 1 << 32, 2, (0, 2)),),
    (FREE,),
    (("a:1#2", 0, 5, 6),),
    1,
)

STAMPED = StampedFrame("a:1#2", 3, 5, 2, ("b:1#2", "a:1#2"), b"\x92\x03\x92\x04\x03", b"\x92\xc4\x01x\xc4\x01y")
STAMPED_CLOCK = order.StampedState("vector", ("a:1#2", "b:1#2"), (3, 4), b"\x92\x03\x92\x03\x04")

DIRECT = StampedFrame("a:1#2", 9, 9, 1, ("b:1#2",), b"", msgspec.msgpack.encode([b"x"]))

EXAMPLES: list[Any] = [
    cast.Gossip(
        (FRAME, cast.News("a:1#2", 4, b"n")), (1, 2), Digest(((5, 6),), ((0, 4, 9),)), (("a:1#2", 3),), (("b:1#2", 0),)
    ),
    cast.Subscribe(20),
    cast.Welcome((("a:1#2", 3),)),
    cast.IHave((FRAME.key, ("a:1#2", 0, 5), ("a:1#2", 4)), (1, 2, 3)),
    cast.Graft((FRAME.key, ("a:1#2", 4))),
    cast.Prune(("a:1#2",)),
    cast.Neighbor(True),
    cast.NeighborReply(False),
    cast.Disconnect(),
    ring.CJoin(9),
    ring.Reject(9, "full", True, 5, ((0, "a:1#2"),)),
    ring.AckCJoin(9, 10, T0, T1, SEAT, (SEAT,), ((SEAT,), ()), (ROW,)),
    ring.Decline(9, T1),
    ring.Who(9),
    ring.NewSucc(T0, T1),
    ring.AckSucc(T0, T1),
    ring.CLeave(9, T0, T1, SEAT, 8, ((SEAT,),), (ROW,)),
    ring.AckCLeave(9, T1),
    ring.NackLeave(9, T1),
    ring.Poll(9, T0, T1, 5, 6),
    ring.Alive(9, T0, T1, 5, 8),
    ring.Update(9, T0, T1, 5, (SEAT,), (T1,)),
    ring.AckUpdate(9, T0, T1, 8, False),
    ring.Exclude(9, T0, 2),
    ring.AckExclude(9, T0, T1, 5, (SEAT,)),
    ring.ReqCoord(9, T0, T1, 2, 5),
    ring.AckCoord(9, T1, (ROW,)),
    ring.NackCoord(9, T1, 5),
    ring.Cancel(9, T0),
    ring.Sit(3, 9, T1, 6),
    ring.Vouch(3, 9, "a:1#2"),
    ring.Read(3, 9),
    ring.Seats(3, 9, "a:1#2", LEDGER),
    ring.Claim(3, 9, 5, (1, 2)),
    ring.Agree(3, 9, "a:1#2"),
    ring.Vacate(T1, 6),
    ring.Known(COUNCIL),
    ring.Attend(3, "a:1#2", False),
    ring.Volunteer(VOTERS[1]),
    ring.Missing(3),
    ring.Prepare(3, BALLOT),
    ring.Promise(3, BALLOT, "a:1#2", (BALLOT, VOTERS), LEDGER),
    ring.Higher(3, BALLOT),
    ring.Accept(3, BALLOT, VOTERS),
    ring.Accepted(3, BALLOT, "a:1#2"),
    ring.Begin(COUNCIL, LEDGER),
    ring.CloseLog(3, T1, (4, "b:1#2")),
    ring.ClosedLog(3, "a:1#2", (4, "b:1#2"), LOG),
    ring.EndLog(3, T1, (4, "b:1#2"), 6),
    order.Recover(9, ((0, 7, 1, 4),)),
    order.AckRecover(9, (FRAME, FIRST), ((0, 7, 2, 4),)),
    order.DirectMessage(DIRECT, ((7, 1), (0, 0))),
    order.DirectAck(9),
    order.SnapshotRequest(9, 2, False),
    order.SnapshotRefused(9, "busy"),
    order.Snapshot(9, "a:1#2/1", CLOCK, ((0, "a:1#2"),), b"state"),
    order.StateRequest("a:1#2/1", 5),
    order.StatePart("a:1#2/1", 5, b"abc"),
    logs.Tick(1, INC, 6, 70),
    logs.LogReport(3, "a:1#2", 8, LOGS, b"s"),
    logs.Follow(3, 70),
    logs.LogReports((logs.LogReport(3, "a:1#2", 8, LOGS),)),
]

TOTAL_EXAMPLES: list[Any] = [
    ring.Begin(COUNCIL, LEDGER, LOGS),
    cast.Gossip((TOTAL,), (1,), None, (), ()),
    order.Snapshot(9, "a:1#2/1", TOTAL_CLOCK, ((0, "a:1#2"),), b"state"),
]
"""The same, in a cluster with total order."""

FREE_EXAMPLES: list[Any] = [
    cast.Gossip((FREE,), (1,), None, (("a:1#2", 3),), (), (("a:1#2", 3),)),
    order.Recover(9, (("a:1#2", 0, 1, 4),)),
    order.AckRecover(9, (FREE,), (("a:1#2", 0, 1, 4),)),
    order.Snapshot(9, "a:1#2/1", CLOCK, ((0, "a:1#2"),), b"state", 3),
    order.SnapshotRequest(9, 4, False, "no tickets"),
    order.Snapshot(9, "a:1#2/1", FREE_CLOCK, (), b"state"),
]
"""The same, in a cluster without tickets."""

STAMPED_EXAMPLES: list[Any] = [
    cast.Gossip((STAMPED,), (1,), None, (("a:1#2", 3),), (), (("a:1#2", 3),)),
    order.AckRecover(9, (STAMPED,), (("a:1#2", 0, 1, 4),)),
    order.SnapshotRequest(9, 2, False, "vector"),
    order.Snapshot(9, "a:1#2/1", STAMPED_CLOCK, (), b"state"),
]
"""The same, in a cluster ordered by a mechanism of the survey."""

NEWS_EXAMPLES: list[Any] = [
    ring.JoinedNews(SEAT),
    ring.GoneNews((1, 2), 8, "a:1#2"),
    ring.ReleasedNews(SEAT, 6),
]

# ---------------------------------------------------------------------------------------------------- strategies

u64 = st.one_of(st.integers(0, 200), st.integers(0, (1 << 64) - 1))
incs = st.one_of(st.integers(1, 5), st.integers(1, (1 << 64) - 1))
seqs = st.one_of(st.integers(1, 5), st.integers(1, MAX_SEQ))
tickets = st.one_of(st.integers(0, 5), st.integers(0, 1023))
addresses = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=30)
members = st.builds(member_id, addresses, st.integers(0, 10**20 - 1))
texts = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=40)
entries = st.one_of(st.just(NEVER), st.tuples(incs, seqs))
vectors = st.lists(entries, max_size=6).map(tuple)


def tuples_of(strategy: st.SearchStrategy[Any], most: int = 4) -> st.SearchStrategy[Any]:
    return st.lists(strategy, max_size=most).map(tuple)


def orphans_of(n: int) -> st.SearchStrategy[Any]:
    return tuples_of(st.tuples(st.integers(0, n - 1), incs, seqs)) if n else st.just(())


@st.composite
def frames(draw: st.DrawFn) -> Frame:
    deps = draw(st.lists(entries, min_size=1, max_size=6))
    ticket = draw(st.integers(0, len(deps) - 1))
    bodies = draw(st.lists(st.binary(max_size=40), min_size=1, max_size=20))
    inc = draw(incs)
    first = draw(st.one_of(st.integers(1, 4), st.integers(1, MAX_SEQ + 1 - len(bodies))))
    if first > 1:
        deps[ticket] = (inc, first - 1)
    else:
        before = draw(st.integers(0, inc - 1))
        deps[ticket] = (before, draw(seqs)) if before else NEVER
    prior = draw(st.one_of(st.none(), st.tuples(st.integers(0, len(deps) - 1), incs, seqs)))
    return Frame.of(ticket, inc, first, draw(members), tuple(deps), bodies, draw(orphans_of(len(deps))), prior)


packed = st.lists(st.integers(0, 1 << 40), min_size=1, max_size=6).map(Packed.of)


@st.composite
def free_frames(draw: st.DrawFn) -> FreeFrame:
    vector = draw(packed)
    keys = draw(st.lists(st.integers(0, vector.R - 1), min_size=1, unique=True))
    bodies = draw(st.lists(st.binary(max_size=40), min_size=1, max_size=20))
    number = draw(st.integers(1, 1 << 63))
    generation = draw(st.sampled_from((0, 1 << 32, 2 << 32 | 5)))
    older = ((0, draw(packed)),) if generation and draw(st.booleans()) else ()
    first = draw(st.integers(1, MAX_SEQ + 1 - len(bodies)))
    return FreeFrame(
        draw(members),
        number,
        first,
        len(bodies),
        generation,
        draw(st.integers(1, number)),
        tuple(sorted(keys)),
        vector,
        msgspec.msgpack.encode(bodies),
        older,
        draw(st.binary(max_size=64)),
    )


@st.composite
def stamped_frames(draw: st.DrawFn) -> StampedFrame:
    bodies = draw(st.lists(st.binary(max_size=40), min_size=1, max_size=20))
    return StampedFrame(
        draw(members),
        draw(st.integers(1, 1 << 63)),
        draw(st.integers(1, MAX_SEQ + 1 - len(bodies))),
        len(bodies),
        draw(tuples_of(members)),
        draw(st.binary(max_size=40)),
        msgspec.msgpack.encode(bodies),
        draw(st.booleans()),
        draw(st.binary(max_size=64)),
    )


@st.composite
def stamped_states(draw: st.DrawFn) -> order.StampedState:
    processes = draw(tuples_of(members))
    return order.StampedState(draw(texts), processes, tuple(draw(u64) for _ in processes), draw(st.binary(max_size=40)))


runs = st.tuples(members, seqs, seqs).map(lambda r: (r[0], 0, min(r[1:]), max(r[1:])))
heads = st.lists(st.tuples(members, u64), max_size=4).map(tuple)


@st.composite
def free_states(draw: st.DrawFn) -> order.FreeState:
    def generation(V: Packed) -> st.SearchStrategy[order.GenerationState]:
        owed = st.lists(u64, min_size=V.R, max_size=V.R).map(tuple)
        return st.one_of(
            st.builds(order.GenerationState, u64, st.integers(0, V.R), st.just(V)),
            st.builds(
                order.GenerationState, u64, st.integers(0, V.R), st.just(V), owed, owed, st.one_of(st.none(), packed)
            ),
        )

    keys = st.lists(st.integers(0, 4095), max_size=4, unique=True).map(sorted).map(tuple)
    return order.FreeState(
        tuple(draw(st.lists(packed.flatmap(generation), min_size=1, max_size=4))),
        draw(tuples_of(st.builds(order.OwnerState, members, u64, u64, u64, keys))),
        draw(tuples_of(free_frames())),
        draw(tuples_of(runs)),
        draw(u64),
    )


@st.composite
def digests(draw: st.DrawFn) -> Digest:
    vector = draw(vectors)
    return Digest(vector, draw(orphans_of(len(vector))))


@st.composite
def clocks(draw: st.DrawFn) -> order.TicketState:
    n = draw(st.integers(1, 5))
    vector = st.lists(entries, min_size=n, max_size=n).map(tuple)
    owners = tuples_of(st.tuples(st.integers(0, n - 1), u64, members))
    floor = st.lists(u64, min_size=n, max_size=n).map(tuple)
    rows = orphans_of(n)
    return order.TicketState(draw(vector), draw(floor), draw(rows), draw(rows), draw(vector), draw(owners), draw(rows))


@st.composite
def gossips(draw: st.DrawFn) -> cast.Gossip:
    news = st.builds(cast.News, members, u64, st.binary(max_size=40))
    items = draw(tuples_of(st.one_of(frames(), free_frames(), stamped_frames(), news)))
    ages = tuple(draw(st.integers(1, cast.MAX_AGE)) for _ in items)
    aged = tuples_of(st.tuples(members, st.integers(0, cast.MAX_ROUNDS)))
    return cast.Gossip(items, ages, draw(st.one_of(st.none(), digests())), draw(aged), draw(aged), draw(heads))


keys = st.one_of(st.tuples(tickets, u64, u64), st.tuples(members, u64, u64), st.tuples(members, u64))


@st.composite
def ihaves(draw: st.DrawFn) -> cast.IHave:
    known = draw(tuples_of(keys))
    return cast.IHave(known, tuple(draw(st.integers(1, cast.MAX_AGE)) for _ in known))


ranges = st.tuples(tickets, incs, seqs, seqs).map(lambda r: (*r[:2], min(r[2:]), max(r[2:])))
tenures = st.builds(Tenure, tickets, u64)
seats = st.builds(Holder, members, tickets, u64)
rows = st.builds(TicketRow, tickets, st.one_of(st.just(""), members), u64, u64, st.tuples(u64, st.integers(0, MAX_SEQ)))
coordinators = tuples_of(st.tuples(tickets, members))

voters = st.builds(Voter, members, st.booleans())
ballots = st.builds(Ballot, st.integers(0, (1 << 62) - 1), st.one_of(st.just(""), members))
councils = st.builds(Council, st.integers(0, (1 << 62) - 1), tuples_of(voters), tuples_of(voters))
ledgers = st.builds(Ledger, u64, tuples_of(seats), tuples_of(rows))

moments = st.one_of(st.integers(0, 200), st.integers(0, LAST))
turns = st.tuples(u64, st.one_of(st.just(""), members))
seqs0 = st.integers(0, MAX_SEQ)
log_rows = st.builds(
    logs.LogRow, tickets, u64, seqs0, turns, st.one_of(st.none(), st.tuples(turns, seqs0)), seqs0, moments
)
handed_over = st.builds(logs.Logs, moments, tuples_of(log_rows), tuples_of(st.tuples(tickets, u64)), moments, moments)
reports = st.builds(logs.LogReport, u64, members, u64, handed_over, st.binary(max_size=64))

FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "logs": st.one_of(st.none(), handed_over),
    **dict.fromkeys(("inc", "serial"), u64),
    "turn": turns,
    "row": log_rows,
    "end": seqs0,
    "position": moments,
    "reports": tuples_of(reports),
    **dict.fromkeys(("nonce", "update", "answers", "adopted", "promised", "era", "floor", "rank"), u64),
    **dict.fromkeys(("mine", "yours", "tenure"), tenures),
    **dict.fromkeys(("holder", "succ"), seats),
    **dict.fromkeys(("L", "R"), tuples_of(seats)),
    **dict.fromkeys(("inherited", "held"), tuples_of(tuples_of(seats))),
    **dict.fromkeys(("ticket", "until"), tickets),
    **dict.fromkeys(("reason", "token", "kind"), texts),
    **dict.fromkeys(("owner", "confirmed", "last_resort", "alive"), st.booleans()),
    **dict.fromkeys(("ranges", "lacks"), tuples_of(st.one_of(ranges, runs))),
    **dict.fromkeys(("known", "coordinators"), coordinators),
    "council": st.integers(0, (1 << 62) - 1),
    "now": councils,
    "voter": members,
    "as_voter": voters,
    "voters": tuples_of(voters),
    "ballot": ballots,
    "accepted": st.one_of(st.none(), st.tuples(ballots, tuples_of(voters))),
    "table": ledgers,
    "leaving": st.booleans(),
    "seq": st.integers(0, MAX_SEQ),
    "takeover": tuples_of(tenures),
    "rows": tuples_of(rows),
    "tickets": tuples_of(tickets),
    "wish": st.one_of(st.just(-1), tickets),
    "by": members,
    "frames": tuples_of(st.one_of(frames(), free_frames(), stamped_frames())),
    "clock": st.one_of(clocks(), free_states(), stamped_states()),
    "members": tuples_of(members),
    "state": st.binary(min_size=1, max_size=200),
    "more": st.integers(0, 1 << 28),
    "at": u64,
    "keys": tuples_of(keys),
    "frame": st.builds(
        lambda owner, to, n, body: StampedFrame(owner, n, n, 1, (to,), b"", msgspec.msgpack.encode([body])),
        members,
        members,
        st.integers(1, MAX_SEQ),
        st.binary(max_size=40),
    ),
    "after": tuples_of(st.tuples(u64, seqs0)),
    "number": u64,
    "origins": tuples_of(members),
    **dict.fromkeys(("urgent", "linked"), st.booleans()),
}


def messages_of(kind: type) -> st.SearchStrategy[Any]:
    """Valid messages of one kind."""
    if kind is cast.Gossip:
        return gossips()
    if kind is cast.IHave:
        return ihaves()
    if kind is cast.Subscribe:
        return st.builds(cast.Subscribe, u64)
    if kind is cast.Welcome:
        return st.builds(cast.Welcome, tuples_of(st.tuples(members, st.integers(0, cast.MAX_ROUNDS))))
    if kind is logs.LogReport:
        return reports
    fields = {**FIELDS, "clock": moments} if kind in (ring.Sit, ring.Vouch, logs.Tick) else FIELDS
    return st.builds(kind, **{f: fields[f] for f in kind.__struct_fields__})  # type: ignore[attr-defined]


messages = st.one_of([messages_of(kind) for kind in KINDS])
news = st.one_of([messages_of(kind) for kind in NEWS_KINDS])
