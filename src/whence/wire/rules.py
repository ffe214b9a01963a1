"""Every message, and what each of its fields must be. A message or a field without a rule fails at import."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, get_args

from whence.cast.messages import MAX_AGE, MAX_ROUNDS, Aged, CastMessage, Gossip, News
from whence.clock import AnyFrame, Entry, MemberId
from whence.errors import BadMessage
from whence.order.messages import ClockState, FreeState, OrderMessage, StampedState
from whence.ring.messages import Holder, RingMessage, RingNews, Row, Tenure
from whence.wire.limits import DEFAULT, Limits
from whence.wire.validate import (
    MAX_OLDER,
    check_any_frame,
    check_digest,
    check_heads,
    check_int,
    check_keys,
    check_member,
    check_members,
    check_orphans,
    check_packed,
    check_processes,
    check_ranges,
    check_runs,
    check_seq,
    check_text,
    check_ticket,
    check_vector,
    too_many,
)

Message = CastMessage | RingMessage | OrderMessage
"""Everything one member can say to another."""

Check = Callable[[Any, Limits], None]


def validate(message: Any, limits: Limits = DEFAULT) -> None:
    """Raises a RemoteError (BadMessage, TooLarge, BadFrame) unless the `Message` or `RingNews` is one that a member
    could have sent."""
    for field, check in _RULES[type(message)]:
        check(getattr(message, field), limits)
    if type(message) is Gossip and len(message.items) != len(message.ages):
        raise BadMessage(f"gossip with {len(message.items)} items and {len(message.ages)} ages")


# ---------------------------------------------------------------------------------------------------------- cast


def _items(items: Sequence[AnyFrame | News], limits: Limits) -> None:
    if len(items) > limits.max_items:
        too_many("items of gossip", len(items), limits.max_items)
    for item in items:
        if isinstance(item, News):
            _news(item, limits)
        else:
            check_any_frame(item, limits)


def _news(news: Any, limits: Limits) -> None:
    check_member(news.origin, limits)
    check_int(news.number, limits)
    if len(news.body) > limits.max_news_bytes:
        too_many("bytes of news", len(news.body), limits.max_news_bytes)


def _ages(ages: Sequence[int], limits: Limits) -> None:
    if ages and not (min(ages) >= 0 and max(ages) <= MAX_AGE):
        raise BadMessage(f"an age is not within 0 .. {MAX_AGE}")


def _aged(members: Sequence[Aged], limits: Limits) -> None:
    if len(members) > limits.max_members:
        too_many("members", len(members), limits.max_members)
    for member, age in members:
        check_member(member, limits)
        if not 0 <= age <= MAX_ROUNDS:
            raise BadMessage(f"a member's age is {age}, not within 0 .. {MAX_ROUNDS}")


def _digest(digest: Any, limits: Limits) -> None:
    if digest is not None:
        check_digest(digest, limits)


_CAST: dict[str, Check] = {
    "items": _items,
    "ages": _ages,
    "digest": _digest,
    "members": _aged,
    "unsubs": _aged,
    "heads": check_heads,
    "wanted": check_int,
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
    """A sequence of such things, at most one per ticket."""

    def check_all(things: Sequence[Any], limits: Limits) -> None:
        if len(things) > limits.max_tickets:
            too_many("things that are one per ticket", len(things), limits.max_tickets)
        for thing in things:
            check(thing, limits)

    return check_all


_holders = _per_ticket(_holder)


def _holder_lists(lists: Sequence[Sequence[Holder]], limits: Limits) -> None:
    if len(lists) > limits.max_ranges:
        too_many("lists of holders", len(lists), limits.max_ranges)
    total = sum(map(len, lists))
    if total > limits.max_tenures:
        too_many("holders", total, limits.max_tenures)
    for holders in lists:
        _holders(holders, limits)


def _founders(members: Sequence[MemberId], limits: Limits) -> None:
    if len(members) > limits.max_ranges:
        too_many("founders", len(members), limits.max_ranges)
    for member in members:
        check_member(member, limits)


def _wish(ticket: int, limits: Limits) -> None:
    if ticket != -1:  # any
        check_ticket(ticket, limits)


def _typed(value: object, limits: Limits) -> None:
    """A bool: its type is all there is to check."""


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
}


# --------------------------------------------------------------------------------------------------------- order


def _frames(frames: Sequence[AnyFrame], limits: Limits) -> None:
    if len(frames) > limits.max_items:
        too_many("frames", len(frames), limits.max_items)
    for frame in frames:
        check_any_frame(frame, limits)


def _state(state: bytes, limits: Limits) -> None:
    if len(state) > limits.max_state_bytes:
        too_many("bytes of state", len(state), limits.max_state_bytes)


def _clock(clock: ClockState, limits: Limits) -> None:
    tickets = len(clock.T)
    _vector(clock.T, limits)
    _vector(clock.past, limits)
    if len(clock.floor) != tickets or len(clock.past) != tickets:
        raise BadMessage(f"a clock of {tickets}, {len(clock.floor)} and {len(clock.past)} tickets")
    for inc in clock.floor:
        check_int(inc, limits)
    check_orphans(clock.tails, tickets, limits)
    check_orphans(clock.orphans, tickets, limits)
    check_orphans(clock.ahead, tickets, limits)  # (ticket, incarnation, first): the same bounds
    if len(clock.owners) > limits.max_tenures:
        too_many("owners", len(clock.owners), limits.max_tenures)
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
    if len(stamped.state) > limits.max_stamp_bytes:
        too_many("bytes of a mechanism's state", len(stamped.state), limits.max_stamp_bytes)


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
        check_keys(row.keys, limits.max_entries)
    _frames(free.waiting, limits)
    check_runs(free.ahead, limits)
    check_int(free.forgotten, limits)


def _vector(vector: Sequence[Entry], limits: Limits) -> None:
    check_vector(vector, limits)


_ORDER: dict[str, Check] = {
    "nonce": check_int,
    "ranges": check_ranges,
    "lacks": check_ranges,
    "runs": check_runs,
    "lacks_runs": check_runs,
    "frames": _frames,
    "rank": check_int,
    "last_resort": _typed,
    "free": _typed,
    "mechanism": check_text,
    "reason": check_text,
    "token": check_text,
    "clock": _clock,
    "coordinators": _per_ticket(_coordinator),
    "members": check_members,
    "state": _state,
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
