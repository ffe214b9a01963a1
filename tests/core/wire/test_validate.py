"""What a message must be beyond its types: every rule broken once, and the error that says so."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given

from tests.core.wire.messages import CLOCK, FIRST, FRAME, INC, SEAT, T0, T1, frames
from whence.core.cast.messages import Gossip, Graft, IHave, News, Prune, Subscribe, Welcome
from whence.core.clock import NEVER, Digest, Frame, bounds, is_member_id
from whence.core.clock.bounds import MAX_SEQ, MAX_TICKETS
from whence.core.order.messages import AckRecover, Recover, Snapshot, SnapshotRefused
from whence.core.ring import messages as ring
from whence.core.wire import decode, decode_news, encode, is_name
from whence.errors import BadFrame, BadMessage, RemoteError

replace = msgspec.structs.replace


def refused(message: Any) -> None:
    """By whoever decodes it."""
    with pytest.raises(RemoteError):
        decode(encode(message))


# -------------------------------------------------------------------------------------------------------- frames

BAD_FRAMES = {
    "count is zero": replace(FIRST, count=0),
    "count is negative": replace(FIRST, count=-1),
    "count is not that of the body": replace(FIRST, count=2),
    "body is empty": replace(FIRST, body=b""),
    "body is no list": replace(FIRST, body=b"\xc4\x01x"),
    "ticket is negative": replace(FRAME, ticket=-2),  # deps[-2] would fit
    "ticket is beyond the vector": replace(FRAME, ticket=3),
    "no vector": replace(FIRST, deps=()),
    "incarnation zero": replace(FIRST, inc=0),
    "incarnation negative": replace(FIRST, inc=-5),
    "first is zero": replace(FIRST, first=0),
    "first is negative": replace(FIRST, first=-1),
    "first does not follow its dependency": replace(FRAME, first=4),
    "depends on a later event of its own": replace(FRAME, deps=((5, 6), (INC, 3), NEVER)),
    "depends on another tenure in mid-tenure": replace(FRAME, deps=((5, 6), (INC - 1, 2), NEVER)),
    "closes over its own tenure": replace(FIRST, deps=((7, 1),)),
    "closes over a later tenure": replace(FIRST, deps=((8, 1),)),
    "last is beyond the highest seq": replace(FRAME, first=MAX_SEQ, deps=((5, 6), (INC, MAX_SEQ - 1), NEVER)),
    "a dependency of negative seq": replace(FRAME, deps=((5, -6), (INC, 2), NEVER)),
    "a dependency of negative incarnation": replace(FRAME, deps=((-5, 6), (INC, 2), NEVER)),
    "a dependency beyond the highest seq": replace(FRAME, deps=((5, MAX_SEQ + 1), (INC, 2), NEVER)),
    "a dependency without incarnation": replace(FRAME, deps=((0, 6), (INC, 2), NEVER)),
    "a dependency without event": replace(FRAME, deps=((5, 0), (INC, 2), NEVER)),
    "an orphan of a ticket that is not there": replace(FRAME, orphans=((3, 4, 9),)),
    "an orphan of a negative ticket": replace(FRAME, orphans=((-1, 4, 9),)),
    "an orphan without incarnation": replace(FRAME, orphans=((0, 0, 9),)),
    "an orphan without event": replace(FRAME, orphans=((0, 4, 0),)),
    "an orphan beyond the highest seq": replace(FRAME, orphans=((0, 4, MAX_SEQ + 1),)),
}


@pytest.mark.parametrize("frame", BAD_FRAMES.values(), ids=BAD_FRAMES.keys())
def test_frames_that_contradict_themselves(frame):
    refused(Gossip((frame,), (1,)))
    refused(AckRecover(1, (frame,)))


@pytest.mark.parametrize("owner", ["", "a", "#1", "a#", "a#-1", "a#01", "a#1x", "a b#1", "a\n#1", "ä#1", "a#1 "])
def test_owners_that_are_no_members(owner):
    refused(Gossip((replace(FIRST, owner=owner),), (1,)))


@given(frames())
def test_valid_frames_are_accepted(frame):
    frame.check()
    assert len(frame.payloads()) == frame.count


def test_frames_at_the_very_edge_are_accepted():
    top = Frame.of(0, (1 << 64) - 1, MAX_SEQ, "a#0", (((1 << 64) - 1, MAX_SEQ - 1),), [b"x"])
    many = Frame.of(0, 1, 1, "a#0", (NEVER,), [b""] * bounds.MAX_FRAME_EVENTS)
    wide = replace(FRAME, deps=((5, 6), (INC, 2), (1, MAX_SEQ)))
    for frame in (top, many, wide):
        assert decode(encode(AckRecover(1, (frame,)))).frames == (frame,)


# ------------------------------------------------------------------------------------------------------ payloads


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x91",
        b"\x91\xc4\x05x",
        b"\x91\xc4\x01x\x00",
        b"\x91\x01",
        b"\x91\xa1x",
        b"\x90",
        b"\x92\xc4\x00\xc4\x00",
        b"\x91" * 100_000,
        b"\xdd\xff\xff\xff\xff",
    ],
    ids=lambda body: body[:8].hex() or "empty",
)
def test_bodies_that_are_not_what_the_frame_says(body):
    with pytest.raises(BadFrame):
        replace(FIRST, body=body).payloads()


# ---------------------------------------------------------------------------------------------- the other fields

AGED = ("a#1", 0)
NEWS = News("a#1", 0, b"")

BAD = {
    "fewer ages": Gossip((FIRST,), ()),
    "more ages": Gossip((), (1,)),
    "negative age": Gossip((FIRST,), (-1,)),
    "absurd age": Gossip((FIRST,), (1001,)),
    "news of nobody": Gossip((News("nobody", 0, b""),), (1,)),
    "news of negative number": Gossip((News("a#1", -1, b""),), (1,)),
    "digest": Gossip(digest=Digest(((1, -1),))),
    "digest's orphan": Gossip(digest=Digest(((1, 1),), ((1, 1, 1),))),
    "member": Gossip(members=(("x", 0),)),
    "member's age": Gossip(members=(("a#1", -1),)),
    "left member": Gossip(unsubs=(("a#1", 1 << 40),)),
    "wanted": Subscribe(-1),
    "welcome": Welcome((("", 1),)),
    "announcement without age": IHave(((0, 1, 1),), ()),
    "announcement with an age too many": IHave((), (1,)),
    "announcement's age": IHave(((0, 1, 1),), (0,)),
    "key without parts": Graft(((),)),
    "key of one part": Graft((("a#1",),)),
    "key of four parts": Graft(((0, 1, 1, 1),)),
    "key of a negative number": Graft(((0, 1, -1),)),
    "key of nobody": Graft((("nobody", 1),)),
    "key of news without origin": Graft(((0, 1),)),
    "key with a name for a number": Graft((("a#1", "a#1"),)),
    "origin": Prune(("nobody",)),
    "wish": ring.CJoin(1, -2),
    "wish beyond": ring.CJoin(1, MAX_TICKETS),
    "nonce": ring.CJoin(-1),
    "reason": ring.Reject(1, "new\nline", True, 1, ()),
    "reason in other letters": ring.Reject(1, "nö", True, 1, ()),
    "known ticket": ring.Reject(1, "", True, 1, ((-1, "a#1"),)),
    "known member": ring.Reject(1, "", True, 1, ((0, "a"),)),
    "tenure's ticket": ring.NewSucc(ring.Tenure(MAX_TICKETS, 1), T1),
    "tenure's incarnation": ring.NewSucc(T0, ring.Tenure(0, -1)),
    "holder": ring.CLeave(1, T0, T1, ring.Holder("a", 0, 1), 0, (), ()),
    "list of seats": ring.CLeave(1, T0, T1, ring.Holder("a#1", 0, 1), 0, ((ring.Holder("a", 0, 1),),), ()),
    "row's ticket": ring.CLeave(
        1, T0, T1, ring.Holder("a#1", 0, 1), 0, (), (ring.TicketRow(MAX_TICKETS, "", 0, 0, NEVER),)
    ),
    "row's owner": ring.CLeave(1, T0, T1, ring.Holder("a#1", 0, 1), 0, (), (ring.TicketRow(0, "x", 0, 0, NEVER),)),
    "row's last": ring.CLeave(1, T0, T1, ring.Holder("a#1", 0, 1), 0, (), (ring.TicketRow(0, "", 0, 0, (1, -1)),)),
    "seq": ring.Poll(1, T0, T1, 0, MAX_SEQ + 1),
    "range of ticket": Recover(1, ((-1, 1, 1, 1),)),
    "range without incarnation": Recover(1, ((0, 0, 1, 1),)),
    "range from zero": Recover(1, ((0, 1, 0, 1),)),
    "range backwards": Recover(1, ((0, 1, 2, 1),)),
    "range without end": Recover(1, ((0, 1, 1, MAX_SEQ + 1),)),
    "lacks": AckRecover(1, (), ((0, 1, 2, 1),)),
    "refusal": SnapshotRefused(1, "\x00"),
}


@pytest.mark.parametrize("message", BAD.values(), ids=BAD.keys())
def test_bad_fields(message):
    refused(message)


def snapshot(**changes: Any) -> Snapshot:
    own = {k: v for k, v in changes.items() if k in CLOCK.__struct_fields__}
    rest = {k: v for k, v in changes.items() if k not in own}
    return replace(Snapshot(9, "t", replace(CLOCK, **own), (), b""), **rest)


@pytest.mark.parametrize(
    "changes",
    [
        {"T": ((1, -1), NEVER)},
        {"floor": (0, -1)},
        {"orphans": ((0, 1, 0),)},
        {"owners": ((0, 1, "x"),)},
        {"owners": ((-1, 1, "a#1"),)},
        {"coordinators": ((0, "x"),)},
        {"token": "\t"},
        {"nonce": -1},
    ],
    ids=repr,
)
def test_bad_snapshots(changes):
    assert decode(encode(snapshot())) == snapshot()
    refused(snapshot(**changes))


def more(thing: Any, most: int) -> tuple[Any, ...]:
    return (thing,) * (most + 1)


ROW = ring.TicketRow(0, "", 0, 0, NEVER)
LARGE = {
    "items": Gossip(more(NEWS, bounds.MAX_ITEMS), more(1, bounds.MAX_ITEMS)),
    "news": Gossip((News("a#1", 0, bytes(bounds.MAX_NEWS_BYTES + 1)),), (1,)),
    "vector of a frame": Gossip((replace(FIRST, deps=more(NEVER, MAX_TICKETS)),), (1,)),
    "orphans of a frame": Gossip((replace(FIRST, orphans=more((0, 3, 9), bounds.MAX_TENURES)),), (1,)),
    "events": Gossip((Frame.of(0, 7, 1, "a#1", (NEVER,), [b""] * (bounds.MAX_FRAME_EVENTS + 1)),), (1,)),
    "body": Gossip((replace(FIRST, body=b"\x91" + bytes(bounds.MAX_FRAME_BYTES)),), (1,)),
    "signature": Gossip((replace(FIRST, signature=bytes(129)),), (1,)),
    "digest": Gossip(digest=Digest(more(NEVER, MAX_TICKETS))),
    "digest's orphans": Gossip(digest=Digest((NEVER,), more((0, 1, 1), bounds.MAX_TENURES))),
    "members": Gossip(members=more(AGED, bounds.MAX_MEMBERS)),
    "left members": Gossip(unsubs=more(AGED, bounds.MAX_MEMBERS)),
    "welcome": Welcome(more(AGED, bounds.MAX_MEMBERS)),
    "name": Welcome((("a" * 254 + "#1", 0),)),
    "announcements": IHave(more(("a#1", 1), bounds.MAX_ITEMS), more(1, bounds.MAX_ITEMS)),
    "keys": Graft(more(("a#1", 1), bounds.MAX_ITEMS)),
    "origins": Prune(more("a#1", bounds.MAX_ITEMS)),
    "reason": ring.Reject(1, "x" * 513, True, 1, ()),
    "known": ring.Reject(1, "", True, 1, more((0, "a#1"), MAX_TICKETS)),
    "R": ring.Update(1, T0, T1, 0, more(SEAT, MAX_TICKETS), ()),
    "takeover": ring.Update(1, T0, T1, 0, (), more(T0, MAX_TICKETS)),
    "lists": ring.CLeave(1, T0, T1, SEAT, 0, more((), bounds.MAX_ITEMS), ()),
    "rows": ring.CLeave(1, T0, T1, SEAT, 0, (), more(ROW, MAX_TICKETS)),
    "ranges": Recover(1, more((0, 1, 1, 1), bounds.MAX_ITEMS)),
    "frames": AckRecover(1, more(FIRST, bounds.MAX_ITEMS)),
    "state": snapshot(state=bytes(bounds.MAX_STATE_BYTES + 1)),
    "coordinators": snapshot(coordinators=more((0, "a#1"), MAX_TICKETS)),
    "owners": snapshot(owners=more((0, 1, "a#1"), bounds.MAX_TENURES)),
    "tails": snapshot(tails=more((0, 1, 1), bounds.MAX_TENURES)),
}


@pytest.mark.parametrize("message", LARGE.values(), ids=LARGE.keys())
def test_too_large(message):
    refused(message)


@pytest.mark.parametrize(
    "news",
    [
        ring.GoneNews((0, MAX_TICKETS), 1, "a#1"),
        ring.GoneNews((0,) * (MAX_TICKETS + 1), 1, "a#1"),
        ring.ReleasedNews(SEAT, -1),
    ],
    ids=repr,
)
def test_news_are_checked_alike(news):
    with pytest.raises(BadMessage):
        decode_news(encode(news))


# --------------------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize("name", ["a#0", "10.0.0.1:4000#17", "[::1]:80#1", "a#b#2", "#" * 9 + "1", "a#" + "9" * 20])
def test_member_ids(name):
    assert is_member_id(name)


@pytest.mark.parametrize("name", ["", "#", "a", "a#", "#1", "a#00", "a#1.", "é#1", "a" * 254 + "#1", "a#" + "9" * 21])
def test_no_member_ids(name):
    assert not is_member_id(name)


def test_names():
    assert is_name("a") and is_name("!~") and is_name("x" * 255)
    assert not (is_name("") or is_name("x" * 256) or is_name("a b") or is_name("a\n") or is_name("é"))


# ------------------------------------------------------------------------------------------------------- council


def test_councils_are_bounded():
    voter = ring.Voter("a#1", False)
    most, many = (voter,) * bounds.MAX_VOTERS, (voter,) * (bounds.MAX_VOTERS + 1)
    table = ring.Ledger(1, (), ())
    decode(encode(ring.Begin(ring.Council(1, most, most), table)))
    refused(ring.Begin(ring.Council(1, many, ()), table))
    refused(ring.Begin(ring.Council(1, (voter,), many), table))
    refused(ring.Accept(1, ring.Ballot(1, "a#1"), many))
    refused(ring.Promise(1, ring.Ballot(1, "a#1"), "a#1", (ring.Ballot(1, "a#1"), many), table))
    refused(ring.Begin(ring.Council(1, (ring.Voter("a", False),), ()), table))
    refused(ring.Begin(ring.Council(1 << 62, (voter,), ()), table))
    refused(ring.Prepare(1, ring.Ballot(1 << 62, "a#1")))
    refused(ring.Begin(ring.Council(1, (), ()), ring.Ledger(1, (ring.Holder("a", 0, 1),), ())))
    refused(ring.Begin(ring.Council(1, (), ()), ring.Ledger(1, (), (ring.TicketRow(MAX_TICKETS, "", 1, 1, (1, 1)),))))


def test_nobody_speaks_for_a_voter_elsewhere():
    ring.check_voter("a#2", ring.Vouch(1, 9, "a#1"))
    for message in (ring.Vouch(1, 9, "b#1"), ring.Volunteer(ring.Voter("b#1", True)), ring.Attend(1, "b#1", False)):
        with pytest.raises(BadMessage, match="speaks for b#1"):
            ring.check_voter("a#2", message)


def test_claims_name_tickets_and_eras_that_exist():
    ring.check_message(ring.Claim(1, 9, 5, (0, 2)), 3)
    with pytest.raises(BadMessage, match="ticket 3"):
        ring.check_message(ring.Claim(1, 9, 5, (3,)), 3)
    assert ring.check_message(ring.Claim(1, 9, 1 << 40, (0,)), 3) == 1 << 40
    assert ring.check_message(ring.Begin(ring.Council(1, (), ()), ring.Ledger(1 << 40, (), ())), 3) == 1 << 40
