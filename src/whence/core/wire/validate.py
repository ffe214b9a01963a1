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
from whence.core.clock import AnyFrame, Digest, Frame, FreeFrame, MemberId, Packed, StampedFrame, are_keys
from whence.core.clock.cct import MAX_SEQ, Entry, Orphan
from whence.core.clock.event import is_member_id
from whence.core.order.messages import (
    AnySpan,
    FreeState,
    GenerationState,
    OrderMessage,
    OrderState,
    OwnerState,
    StampedState,
    TicketState,
)
from whence.core.ring.messages import Holder, RingMessage, RingNews
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


# ------------------------------------------------------------------------------------------------------- builders


def at_most(cap: str, what: str) -> Check:
    """A length of at most the limit named `cap`."""
    return each(None, cap, what)


def each(one: Check | None, cap: str, what: str) -> Check:
    """A sequence of things that pass `one`, no longer than the limit named `cap`."""

    def check(things: Sequence[Any], limits: Limits) -> None:
        if len(things) > getattr(limits, cap):
            too_many(what, len(things), getattr(limits, cap))
        if one is not None:
            for thing in things:
                one(thing, limits)

    return check


def number(least: int, most: int, what: str) -> Check:
    def check(value: int, limits: Limits) -> None:
        if not least <= value <= most:
            raise BadMessage(f"{what} is {value}, not within {least} .. {most}")

    return check


def record(*checks: Check) -> Check:
    """A tuple whose parts pass these, one each."""

    def check(parts: Sequence[Any], limits: Limits) -> None:
        for one, part in zip(checks, parts, strict=True):
            one(part, limits)

    return check


def struct(kind: type[Any], **checks: Check) -> Check:
    """A message of this kind, every field of which passes its check."""
    assert set(checks) == set(kind.__struct_fields__), kind

    def check(value: Any, limits: Limits) -> None:
        for field, one in checks.items():
            one(getattr(value, field), limits)

    return check


def maybe(one: Check) -> Check:
    """As `one`, or nothing: None, or empty."""

    def check(value: Any, limits: Limits) -> None:
        if value:
            one(value, limits)

    return check


# -------------------------------------------------------------------------------------------------- single things


def typed(value: object, limits: Limits) -> None:
    """Its type is all there is to check."""


check_int = number(0, MAX_INT, "a number")
"""A nonce, an era, an incarnation: a count that is never negative."""
check_seq = number(0, MAX_SEQ, "seq")


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


def check_span(span: AnySpan, limits: Limits) -> None:
    """Events of a ticket's incarnation, or (incarnation 0) frames of an owner."""
    of, inc, first, last = span
    if isinstance(of, str):
        check_member(of, limits)
        known, most = inc == 0, MAX_INT
    else:
        check_ticket(of, limits)
        known, most = 1 <= inc <= MAX_INT, MAX_SEQ
    if not (known and 1 <= first <= last <= most):
        raise BadMessage(f"no range of events or frames: {span}")


check_spans = each(check_span, "max_ranges", "ranges")


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
    kind = type(message)
    if kind is Gossip:
        _gossip(message, limits)
        return
    for field, check in _RULES[kind]:
        check(getattr(message, field), limits)
    if kind is IHave and len(message.keys) != len(message.ages):
        raise BadMessage(f"an announcement of {len(message.keys)} items and {len(message.ages)} ages")


# ---------------------------------------------------------------------------------------------------------- cast


_news_body = at_most("max_news_bytes", "bytes of news")


def _gossip(gossip: Gossip, limits: Limits) -> None:
    """The most frequent message; most of its fields are empty."""
    items = gossip.items
    if len(items) != len(gossip.ages):
        raise BadMessage(f"gossip with {len(items)} items and {len(gossip.ages)} ages")
    if items:
        if len(items) > limits.max_items:
            too_many("items of gossip", len(items), limits.max_items)
        for item, age in zip(items, gossip.ages, strict=True):
            if type(item) is News:
                _news(item, limits)
            else:
                check_frame(item, limits)  # type: ignore[arg-type]  # what is no news is a frame
            if not 1 <= age <= MAX_AGE:
                raise BadMessage(f"an age is {age}, not within 1 .. {MAX_AGE}")
    if gossip.digest is not None:
        check_digest(gossip.digest, limits)
    if gossip.members:
        _members(gossip.members, limits)
    if gossip.unsubs:
        _members(gossip.unsubs, limits)
    if gossip.heads:
        _heads(gossip.heads, limits)


def _news(news: News, limits: Limits) -> None:
    check_member(news.origin, limits)
    check_int(news.number, limits)
    _news_body(news.body, limits)
    if len(news.signature) > MAX_SIGNATURE:
        raise BadMessage(f"a signature of {len(news.signature)} bytes")


def _ages(ages: Sequence[int], limits: Limits) -> None:
    if ages and not (min(ages) >= 1 and max(ages) <= MAX_AGE):
        raise BadMessage(f"an age is not within 1 .. {MAX_AGE}")


def _members(entries: Sequence[Aged], limits: Limits) -> None:
    """Members with their ages: ten in the message of every round."""
    if len(entries) > limits.max_members:
        too_many("members", len(entries), limits.max_members)
    for member, age in entries:
        if not is_member_id(member) or len(member) > limits.max_name_bytes:
            check_member(member, limits)
        if not 0 <= age <= MAX_ROUNDS:
            raise BadMessage(f"a member's age is {age}, not within 0 .. {MAX_ROUNDS}")


def _key(key: Key, limits: Limits) -> None:
    """Of a frame (three parts, the first a ticket or an owner) or of news (its origin and a number)."""
    if not 2 <= len(key) <= 3:
        raise BadMessage(f"a key of {len(key)} parts")
    first, *rest = key
    if isinstance(first, str):
        check_member(first, limits)
    elif len(key) == 2:
        raise BadMessage("a key of news without an origin")
    else:
        check_ticket(first, limits)
    for part in rest:
        if isinstance(part, str):
            raise BadMessage(f"a key with {part[:80]!r} for a number")
        check_int(part, limits)


_heads = each(record(check_member, check_int), "max_owners", "owners")
_CAST: dict[str, Check] = {
    "ages": _ages,
    "members": _members,
    "wanted": check_int,
    "keys": each(_key, "max_items", "keys"),
    "origins": each(maybe(check_member), "max_items", "origins"),  # empty: of the one tree that all share
    "urgent": typed,
    "linked": typed,
}


# ---------------------------------------------------------------------------------------------------------- ring


def _per_ticket(check: Check) -> Check:
    return each(check, "max_tickets", "things that are one per ticket")


_tenure = record(check_ticket, check_int)
_holder = record(check_member, check_ticket, check_int)
_holders = _per_ticket(_holder)
_rows = _per_ticket(record(check_ticket, maybe(check_member), check_int, check_int, record(check_int, check_seq)))
_coordinators = _per_ticket(record(check_ticket, check_member))
_lists = each(_holders, "max_ranges", "lists of holders")


def _holder_lists(lists: Sequence[Sequence[Holder]], limits: Limits) -> None:
    total = sum(map(len, lists))
    if total > limits.max_tenures:
        too_many("holders", total, limits.max_tenures)
    _lists(lists, limits)


def _wish(ticket: int, limits: Limits) -> None:
    if ticket != -1:  # any
        check_ticket(ticket, limits)


_number = number(0, (1 << 62) - 1, "number of a council or a ballot")  # leaves room for the next ones
_voter = record(check_member, typed)
_voters = each(_voter, "max_voters", "voters")
_ballot = record(_number, maybe(check_member))
_RING: dict[str, Check] = {
    **dict.fromkeys(("nonce", "update", "answers", "adopted", "promised", "era", "floor"), check_int),
    "seq": check_seq,
    **dict.fromkeys(("mine", "yours", "tenure"), _tenure),
    "takeover": _per_ticket(_tenure),
    **dict.fromkeys(("holder", "succ"), _holder),
    **dict.fromkeys(("L", "R"), _holders),
    **dict.fromkeys(("inherited", "held"), _holder_lists),
    "rows": _rows,
    "known": _coordinators,
    "tickets": _per_ticket(check_ticket),
    **dict.fromkeys(("ticket", "until"), check_ticket),
    "wish": _wish,
    **dict.fromkeys(("by", "voter"), check_member),
    "reason": check_text,
    **dict.fromkeys(("owner", "confirmed", "leaving"), typed),
    "council": _number,
    "now": record(_number, _voters, _voters),
    "as_voter": _voter,
    "voters": _voters,
    "ballot": _ballot,
    "accepted": maybe(record(_ballot, _voters)),
    "table": record(check_int, _holders, _rows),
}


# --------------------------------------------------------------------------------------------------------- order


_frames = each(check_frame, "max_items", "frames")
_owners = each(record(check_ticket, check_int, check_member), "max_tenures", "owners")
_numbers = each(check_int, "max_members", "numbers")


def _state(state: OrderState, limits: Limits) -> None:
    """Of a snapshot."""
    if isinstance(state, TicketState):
        _tickets(state, limits)
    elif isinstance(state, FreeState):
        _free(state, limits)
    else:
        _stamped(state, limits)
        if len(state.taken) != len(state.processes):
            raise BadMessage(f"a state of {len(state.taken)} counts for {len(state.processes)} processes")


def _tickets(clock: TicketState, limits: Limits) -> None:
    tickets = len(clock.T)
    check_vector(clock.T, limits)
    check_vector(clock.past, limits)
    if len(clock.floor) != tickets or len(clock.past) != tickets:
        raise BadMessage(f"a clock of {tickets}, {len(clock.floor)} and {len(clock.past)} tickets")
    _numbers(clock.floor, limits)
    for rows in (clock.tails, clock.orphans, clock.ahead):  # (ticket, incarnation, seq), all with the same bounds
        check_orphans(rows, tickets, limits)
    _owners(clock.owners, limits)


_stamped = struct(StampedState, mechanism=check_text, processes=check_processes, taken=_numbers, state=check_stamp)


def _generation(state: GenerationState, limits: Limits) -> None:
    check_packed(state.V, limits)
    if state.past is not None:
        check_packed(state.past, limits)
    if state.K > state.V.R or len(state.owed) not in (0, state.V.R) or len(state.level) != len(state.owed):
        raise BadMessage(f"a generation of {state.V.R} entries, {state.K} keys and {len(state.owed)} owed")
    for count in (state.generation, state.K, *state.owed, *state.level):
        check_int(count, limits)


def _owner(row: OwnerState, limits: Limits) -> None:
    check_member(row.owner, limits)
    for count in (row.taken, row.generation, row.opened):
        check_int(count, limits)
    if not are_keys(row.keys, limits.max_entries):
        raise BadMessage(f"keys {row.keys[:8]} of {row.owner} are not ascending entries of a vector")


def _generations(states: Sequence[GenerationState], limits: Limits) -> None:
    if not 1 <= len(states) <= MAX_OLDER:
        too_many("generations", len(states), MAX_OLDER)
    for state in states:
        _generation(state, limits)


_free = struct(
    FreeState,
    generations=_generations,
    owners=each(_owner, "max_owners", "owners"),
    waiting=_frames,
    ahead=check_spans,
    forgotten=check_int,
)
_ORDER: dict[str, Check] = {
    "nonce": check_int,
    "ranges": check_spans,
    "lacks": check_spans,
    "frames": _frames,
    "rank": check_int,
    "last_resort": typed,
    **dict.fromkeys(("kind", "reason", "token"), check_text),
    "clock": _state,
    "coordinators": _coordinators,
    "members": each(check_member, "max_members", "members"),
    "state": at_most("max_state_bytes", "bytes of state"),
}


# ----------------------------------------------------------------------------------------------------------- all


def _rules(vocabulary: Any, table: dict[str, Check]) -> dict[type, tuple[tuple[str, Check], ...]]:
    kinds = [kind for kind in get_args(vocabulary) if kind is not Gossip]
    return {kind: tuple((f, table[f]) for f in kind.__struct_fields__) for kind in kinds}


_RULES = {
    **_rules(CastMessage, _CAST),
    **_rules(RingMessage, _RING),
    **_rules(OrderMessage, _ORDER),
    **_rules(RingNews, _RING),
}
