"""What a message must be beyond its types, as far as no state is needed: lengths, ranges, names, frames.

msgspec has checked the types before. First come the checks of single things, then, room by room, which field of which
message is which thing; a message or a field without a rule fails at import. Loops over vectors are written out: they
run for every frame received, duplicates included, and nothing built from `min`, `map` and `zip` was faster.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, get_args

from whence.core.cast.messages import MAX_AGE, MAX_ROUNDS, Aged, CastMessage, Gossip, IHave, Key, News
from whence.core.clock import AnyFrame, Digest, Frame, FrameRange, FreeFrame, MemberId, Packed, StampedFrame, are_keys
from whence.core.clock.cct import MAX_SEQ, Entry, Orphan, Range
from whence.core.clock.event import is_member_id
from whence.core.order.messages import FreeState, OrderMessage, SavedState, StampedState
from whence.core.ring.messages import Ballot, Council, Holder, Ledger, RingMessage, RingNews, Row, Tenure, Voter
from whence.core.wire.limits import DEFAULT, Limits
from whence.errors import BadFrame, BadMessage, RemoteError, TooLarge

Message = CastMessage | RingMessage | OrderMessage
"""Everything one member can say to another."""

MAX_INT = (1 << 64) - 1

MAX_OLDER = 8
"""Generations that a frame without a ticket may depend on (`order.generations` keeps 4)."""

MAX_SIGNATURE = 128
"""Bytes of a frame's signature (Ed25519: 64)."""

_NAME = re.compile(r"[!-~]{1,255}")

Check = Callable[[Any, Limits], None]
"""Raises a `RemoteError` if a field is not what it should be."""


def is_name(text: str) -> bool:
    """1 to 255 visible ASCII characters: safe in a log line, one byte each."""
    return _NAME.fullmatch(text) is not None


def too_many(what: str, length: int, cap: int) -> NoReturn:
    raise TooLarge(f"{length} {what}, allowed are {cap}")


def at_most(cap: str, what: str) -> Check:
    """A length of at most the limit named `cap`."""

    def check(things: Sequence[Any], limits: Limits) -> None:
        if len(things) > getattr(limits, cap):
            too_many(what, len(things), getattr(limits, cap))

    return check


def each(one: Check, cap: str, what: str) -> Check:
    """A sequence of things that pass `one`, no longer than the limit named `cap`."""

    def check(things: Sequence[Any], limits: Limits) -> None:
        if len(things) > getattr(limits, cap):
            too_many(what, len(things), getattr(limits, cap))
        for thing in things:
            one(thing, limits)

    return check


def check_int(value: int, limits: Limits) -> None:
    """A nonce, an era, an incarnation: a count that is never negative."""
    if not 0 <= value <= MAX_INT:
        raise BadMessage(f"a number is {value}, not within 0 .. 2**64-1")


def check_seq(seq: int, limits: Limits) -> None:
    if not 0 <= seq <= MAX_SEQ:
        raise BadMessage(f"seq {seq} is not within 0 .. {MAX_SEQ}")


def check_text(text: str, limits: Limits) -> None:
    """A token or a reason: short, and safe in a log line; it may be empty."""
    if len(text) > limits.max_text_bytes:
        too_many("characters of text", len(text), limits.max_text_bytes)
    if not (text.isascii() and text.isprintable()):
        raise BadMessage(f"not printable ASCII: {text[:80]!r}")


def check_member(member: MemberId, limits: Limits) -> None:
    if len(member) > limits.max_name_bytes:
        too_many("characters of a member id", len(member), limits.max_name_bytes)
    if not is_member_id(member):
        raise BadMessage(f"not a member id: {member[:80]!r} (want address#boot)")


def check_ticket(ticket: int, limits: Limits) -> None:
    if not 0 <= ticket < limits.max_tickets:
        raise BadMessage(f"ticket {ticket} is not within 0 .. {limits.max_tickets - 1}")


def check_vector(vector: Sequence[Entry], limits: Limits, fault: type[RemoteError] = BadMessage) -> None:
    """Entries `(incarnation, seq)`: either NEVER, or both at least 1. (An incarnation without an event would be neither
    missing nor ready for a `CctClock`. More than 64 bits msgpack cannot say.)"""
    if len(vector) > limits.max_tickets:
        too_many("entries of a vector", len(vector), limits.max_tickets)
    for inc, seq in vector:
        if (seq < 1 or inc < 1 or seq > MAX_SEQ) and (inc or seq):
            raise fault(f"no clock entry: ({inc}, {seq})")


def check_orphans(
    orphans: Sequence[Orphan], tickets: int, limits: Limits, fault: type[RemoteError] = BadMessage
) -> None:
    """`(ticket, incarnation, last)` beside a vector of so many tickets."""
    if len(orphans) > limits.max_tenures:
        too_many("orphans", len(orphans), limits.max_tenures)
    for ticket, inc, last in orphans:
        if not (0 <= ticket < tickets and inc > 0 and 0 < last <= MAX_SEQ):
            raise fault(f"no orphan of {tickets} tickets: ({ticket}, {inc}, {last})")


def check_digest(digest: Digest, limits: Limits) -> None:
    check_vector(digest.T, limits)
    check_orphans(digest.orphans, len(digest.T), limits)


def check_range(wanted: Range, limits: Limits) -> None:
    ticket, inc, first, last = wanted
    if not (0 <= ticket < limits.max_tickets and 1 <= inc <= MAX_INT and 1 <= first <= last <= MAX_SEQ):
        raise BadMessage(f"no range of events: {wanted}")


def check_run(run: FrameRange, limits: Limits) -> None:
    owner, first, last = run
    check_member(owner, limits)
    if not 1 <= first <= last <= MAX_INT:
        raise BadMessage(f"no run of frames: {run}")


def check_head(head: tuple[MemberId, int], limits: Limits) -> None:
    check_member(head[0], limits)
    check_int(head[1], limits)


def check_packed(packed: Packed, limits: Limits, fault: type[RemoteError] = BadMessage) -> None:
    if limits.max_entries < packed.R:
        too_many("entries of a vector", packed.R, limits.max_entries)
    if not packed.well_formed:
        raise fault(f"a vector of {len(packed.offsets)} bytes for {packed.R} entries")


def check_frame(frame: AnyFrame, limits: Limits) -> None:
    """A frame of any kind of cluster is within the limits and agrees with itself. What it says of its past is checked
    where that is known (`order`)."""
    if len(frame.body) > limits.max_frame_bytes:
        too_many("bytes of a frame's body", len(frame.body), limits.max_frame_bytes)
    if frame.count > limits.max_frame_events:
        too_many("events in a frame", frame.count, limits.max_frame_events)
    if not is_member_id(frame.owner) or len(frame.owner) > limits.max_name_bytes:
        check_member(frame.owner, limits)
    if len(frame.signature) > MAX_SIGNATURE:
        raise BadFrame(f"a signature of {len(frame.signature)} bytes")
    if type(frame) is Frame:
        check_vector(frame.deps, limits, BadFrame)
        frame.check()
        if frame.orphans:
            check_orphans(frame.orphans, len(frame.deps), limits, BadFrame)
        if frame.prior is not None:
            check_orphans((frame.prior,), len(frame.deps), limits, BadFrame)
        return
    if type(frame) is FreeFrame:
        if len(frame.older) > MAX_OLDER:
            too_many("older generations", len(frame.older), MAX_OLDER)
        for packed in (frame.vector, *(older for _, older in frame.older)):
            check_packed(packed, limits, BadFrame)
    else:
        assert type(frame) is StampedFrame
        check_processes(frame.processes, limits)
        check_stamp(frame.stamp, limits)
    frame.check()


check_processes = each(check_member, "max_owners", "processes")
"""Whom the numbers of a stamp or a state mean."""
check_stamp = at_most("max_stamp_bytes", "bytes of a stamp or a mechanism's state")


def validate(message: Any, limits: Limits = DEFAULT) -> None:
    """Raises a RemoteError (BadMessage, TooLarge, BadFrame) unless the `Message` or `RingNews` is one that a member
    could have sent."""
    gossip = type(message) is Gossip
    for field, check in _RULES[type(message)]:
        value = getattr(message, field)
        if value or not gossip:  # most fields of most gossip are empty
            check(value, limits)
    if gossip and len(message.items) != len(message.ages):
        raise BadMessage(f"gossip with {len(message.items)} items and {len(message.ages)} ages")
    if type(message) is IHave and len(message.keys) != len(message.ages):
        raise BadMessage(f"an announcement of {len(message.keys)} items and {len(message.ages)} ages")


def _typed(value: object, limits: Limits) -> None:
    """A bool: its type is all there is to check."""


# ---------------------------------------------------------------------------------------------------------- cast


_news_body = at_most("max_news_bytes", "bytes of news")


def _items(items: Sequence[AnyFrame | News], limits: Limits) -> None:
    if len(items) > limits.max_items:
        too_many("items of gossip", len(items), limits.max_items)
    for item in items:
        if isinstance(item, News):
            _news(item, limits)
        else:
            check_frame(item, limits)


def _news(news: News, limits: Limits) -> None:
    check_member(news.origin, limits)
    check_int(news.number, limits)
    _news_body(news.body, limits)
    if len(news.signature) > MAX_SIGNATURE:
        raise BadMessage(f"a signature of {len(news.signature)} bytes")


def _ages(ages: Sequence[int], limits: Limits) -> None:
    if ages and not (min(ages) >= 1 and max(ages) <= MAX_AGE):
        raise BadMessage(f"an age is not within 1 .. {MAX_AGE}")


def _aged(what: str) -> Check:
    """Members with their ages: ten in the message of every round."""

    def check(entries: Sequence[Aged], limits: Limits) -> None:
        if len(entries) > limits.max_members:
            too_many(what, len(entries), limits.max_members)
        for member, age in entries:
            if not is_member_id(member) or len(member) > limits.max_name_bytes:
                check_member(member, limits)
            if not 0 <= age <= MAX_ROUNDS:
                raise BadMessage(f"a member's age is {age}, not within 0 .. {MAX_ROUNDS}")

    return check


def _key(key: Key, limits: Limits) -> None:
    """Of a frame (three parts, the first a ticket or an owner) or of news (its origin and a number)."""
    if not 2 <= len(key) <= 3:
        raise BadMessage(f"a key of {len(key)} parts")
    first, *rest = key
    if isinstance(first, str):
        check_member(first, limits)
    else:
        check_ticket(first, limits)
    for part in rest:
        if isinstance(part, str):
            raise BadMessage(f"a key with {part[:80]!r} for a number")
        check_int(part, limits)
    if len(key) == 2 and not isinstance(first, str):
        raise BadMessage("a key of news without an origin")


def _origin(origin: MemberId, limits: Limits) -> None:
    if origin:  # empty: of the one tree that all share
        check_member(origin, limits)


def _digest(digest: Any, limits: Limits) -> None:
    if digest is not None:
        check_digest(digest, limits)


_CAST: dict[str, Check] = {
    "items": _items,
    "ages": _ages,
    "digest": _digest,
    "members": _aged("members"),
    "unsubs": _aged("members that left"),
    "heads": each(check_head, "max_owners", "owners"),
    "wanted": check_int,
    "keys": each(_key, "max_items", "keys"),
    "origins": each(_origin, "max_items", "origins"),
    "urgent": _typed,
    "linked": _typed,
}


# ---------------------------------------------------------------------------------------------------------- ring


def _tenure(tenure: Tenure, limits: Limits) -> None:
    check_ticket(tenure.ticket, limits)
    check_int(tenure.inc, limits)


def _holder(holder: Holder, limits: Limits) -> None:
    check_member(holder.member, limits)
    check_ticket(holder.ticket, limits)
    check_int(holder.inc, limits)


def _row(row: Row, limits: Limits) -> None:
    check_ticket(row.ticket, limits)
    if row.owner:  # empty: nobody known
        check_member(row.owner, limits)
    check_int(row.top, limits)
    check_int(row.floor, limits)
    check_int(row.last[0], limits)
    check_seq(row.last[1], limits)


def _coordinator(known: tuple[int, MemberId], limits: Limits) -> None:
    check_ticket(known[0], limits)
    check_member(known[1], limits)


def _per_ticket(check: Check) -> Check:
    return each(check, "max_tickets", "things that are one per ticket")


_holders = _per_ticket(_holder)
_lists = each(_holders, "max_ranges", "lists of holders")
_founders = each(check_member, "max_ranges", "founders")


def _holder_lists(lists: Sequence[Sequence[Holder]], limits: Limits) -> None:
    total = sum(map(len, lists))
    if total > limits.max_tenures:
        too_many("holders", total, limits.max_tenures)
    _lists(lists, limits)


def _wish(ticket: int, limits: Limits) -> None:
    if ticket != -1:  # any
        check_ticket(ticket, limits)


def _voter(voter: Voter, limits: Limits) -> None:
    check_member(voter.member, limits)


_voters = each(_voter, "max_voters", "voters")


def _council(council: Council, limits: Limits) -> None:
    _number(council.number, limits)
    _voters(council.voters, limits)
    _voters(council.before, limits)


def _number(number: int, limits: Limits) -> None:
    """A number of councils or ballots, which has to leave room for the next ones."""
    if not 0 <= number < 1 << 62:
        raise BadMessage(f"number {number} of a council or a ballot is not within 0 .. 2^62")


def _ballot(ballot: Ballot, limits: Limits) -> None:
    _number(ballot.number, limits)
    if ballot.by:  # empty: no ballot yet
        check_member(ballot.by, limits)


def _accepted(accepted: tuple[Ballot, tuple[Voter, ...]] | None, limits: Limits) -> None:
    if accepted is not None:
        _ballot(accepted[0], limits)
        _voters(accepted[1], limits)


def _table(table: Ledger, limits: Limits) -> None:
    check_int(table.era, limits)
    _holders(table.seats, limits)
    _per_ticket(_row)(table.rows, limits)


_RING: dict[str, Check] = {
    "nonce": check_int,
    "update": check_int,
    "answers": check_int,
    "adopted": check_int,
    "promised": check_int,
    "era": check_int,
    "floor": check_int,
    "seq": check_seq,
    "mine": _tenure,
    "yours": _tenure,
    "tenure": _tenure,
    "takeover": _per_ticket(_tenure),
    "holder": _holder,
    "succ": _holder,
    "L": _holders,
    "R": _holders,
    "inherited": _holder_lists,
    "held": _holder_lists,
    "ended": _holder_lists,
    "cycle": _holders,
    "never": _holders,
    "epoch": check_int,
    "pledged": check_int,
    "founders": _founders,
    "to": _founders,
    "alive": _typed,
    "rows": _per_ticket(_row),
    "known": _per_ticket(_coordinator),
    "tickets": _per_ticket(check_ticket),
    "ticket": check_ticket,
    "until": check_ticket,
    "wish": _wish,
    "by": check_member,
    "reason": check_text,
    "owner": _typed,
    "confirmed": _typed,
    "council": _number,
    "now": _council,
    "voter": check_member,
    "as_voter": _voter,
    "voters": _voters,
    "ballot": _ballot,
    "accepted": _accepted,
    "table": _table,
    "leaving": _typed,
}


# --------------------------------------------------------------------------------------------------------- order


_frames = each(check_frame, "max_items", "frames")
_owners = at_most("max_tenures", "owners")
_runs = each(check_run, "max_ranges", "runs of frames")


def _clock(clock: SavedState, limits: Limits) -> None:
    tickets = len(clock.T)
    check_vector(clock.T, limits)
    check_vector(clock.past, limits)
    if len(clock.floor) != tickets or len(clock.past) != tickets:
        raise BadMessage(f"a clock of {tickets}, {len(clock.floor)} and {len(clock.past)} tickets")
    for inc in clock.floor:
        check_int(inc, limits)
    for rows in (clock.tails, clock.orphans, clock.ahead):  # (ticket, incarnation, seq), all with the same bounds
        check_orphans(rows, tickets, limits)
    _owners(clock.owners, limits)
    for ticket, inc, owner in clock.owners:
        _holder(Holder(owner, ticket, inc), limits)
    if clock.free is not None:
        _free(clock.free, limits)
    if clock.stamped is not None:
        _stamped(clock.stamped, limits)


def _stamped(stamped: StampedState, limits: Limits) -> None:
    check_text(stamped.mechanism, limits)
    check_processes(stamped.processes, limits)
    if len(stamped.taken) != len(stamped.processes):
        raise BadMessage(f"a state of {len(stamped.taken)} counts for {len(stamped.processes)} processes")
    for number in stamped.taken:
        check_int(number, limits)
    check_stamp(stamped.state, limits)


def _free(free: FreeState, limits: Limits) -> None:
    if not 1 <= len(free.generations) <= MAX_OLDER:
        too_many("generations", len(free.generations), MAX_OLDER)
    for state in free.generations:
        check_int(state.generation, limits)
        check_packed(state.V, limits)
        if state.past is not None:
            check_packed(state.past, limits)
        check_int(state.K, limits)
        if state.K > state.V.R or len(state.owed) not in (0, state.V.R) or len(state.level) != len(state.owed):
            raise BadMessage(f"a generation of {state.V.R} entries, {state.K} keys and {len(state.owed)} owed")
        for number in (*state.owed, *state.level):
            check_int(number, limits)
    if len(free.owners) > limits.max_owners:
        too_many("owners", len(free.owners), limits.max_owners)
    for row in free.owners:
        check_member(row.owner, limits)
        for number in (row.taken, row.generation, row.opened):
            check_int(number, limits)
        if not are_keys(row.keys, limits.max_entries):
            raise BadMessage(f"keys {row.keys[:8]} of {row.owner} are not ascending entries of a vector")
    _frames(free.waiting, limits)
    _runs(free.ahead, limits)
    check_int(free.forgotten, limits)


_ORDER: dict[str, Check] = {
    "nonce": check_int,
    "ranges": each(check_range, "max_ranges", "ranges"),
    "lacks": each(check_range, "max_ranges", "ranges"),
    "runs": _runs,
    "lacks_runs": _runs,
    "frames": _frames,
    "rank": check_int,
    "last_resort": _typed,
    "free": _typed,
    "mechanism": check_text,
    "reason": check_text,
    "token": check_text,
    "clock": _clock,
    "coordinators": _per_ticket(_coordinator),
    "members": each(check_member, "max_members", "members"),
    "state": at_most("max_state_bytes", "bytes of state"),
}


# ----------------------------------------------------------------------------------------------------------- all


def _rules(vocabulary: Any, table: dict[str, Check]) -> dict[type, tuple[tuple[str, Check], ...]]:
    return {kind: tuple((f, table[f]) for f in kind.__struct_fields__) for kind in get_args(vocabulary)}


_RULES = {
    **_rules(CastMessage, _CAST),
    **_rules(RingMessage, _RING),
    **_rules(OrderMessage, _ORDER),
    **_rules(RingNews, _RING),
}
