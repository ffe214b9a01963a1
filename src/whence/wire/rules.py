"""Every message, and what each of its fields must be. A message or a field without a rule fails at import."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from whence.cast.messages import MAX_AGE, MAX_ROUNDS, Aged, CastMessage, Gossip, News
from whence.clock import AnyFrame, MemberId, are_keys
from whence.errors import BadMessage
from whence.order.messages import FreeState, OrderMessage, SavedState, StampedState
from whence.ring.messages import Ballot, Council, Holder, Ledger, RingMessage, RingNews, Row, Tenure, Voter
from whence.wire.limits import DEFAULT, Limits
from whence.wire.validate import (
    MAX_OLDER,
    Check,
    at_most,
    check_digest,
    check_frame,
    check_head,
    check_int,
    check_member,
    check_orphans,
    check_packed,
    check_processes,
    check_range,
    check_run,
    check_seq,
    check_stamp,
    check_text,
    check_ticket,
    check_vector,
    each,
    too_many,
)

Message = CastMessage | RingMessage | OrderMessage
"""Everything one member can say to another."""


def validate(message: Any, limits: Limits = DEFAULT) -> None:
    """Raises a RemoteError (BadMessage, TooLarge, BadFrame) unless the `Message` or `RingNews` is one that a member
    could have sent."""
    for field, check in _RULES[type(message)]:
        check(getattr(message, field), limits)
    if type(message) is Gossip and len(message.items) != len(message.ages):
        raise BadMessage(f"gossip with {len(message.items)} items and {len(message.ages)} ages")


def _typed(value: object, limits: Limits) -> None:
    """A bool: its type is all there is to check."""


# ---------------------------------------------------------------------------------------------------------- cast


_news_body = at_most("max_news_bytes", "bytes of news")


def _item(item: AnyFrame | News, limits: Limits) -> None:
    if isinstance(item, News):
        check_member(item.origin, limits)
        check_int(item.number, limits)
        _news_body(item.body, limits)
    else:
        check_frame(item, limits)


def _ages(ages: Sequence[int], limits: Limits) -> None:
    if ages and not (min(ages) >= 0 and max(ages) <= MAX_AGE):
        raise BadMessage(f"an age is not within 0 .. {MAX_AGE}")


def _aged(entry: Aged, limits: Limits) -> None:
    check_member(entry[0], limits)
    if not 0 <= entry[1] <= MAX_ROUNDS:
        raise BadMessage(f"a member's age is {entry[1]}, not within 0 .. {MAX_ROUNDS}")


def _digest(digest: Any, limits: Limits) -> None:
    if digest is not None:
        check_digest(digest, limits)


_CAST: dict[str, Check] = {
    "items": each(_item, "max_items", "items of gossip"),
    "ages": _ages,
    "digest": _digest,
    "members": each(_aged, "max_members", "members"),
    "unsubs": each(_aged, "max_members", "members that left"),
    "heads": each(check_head, "max_owners", "owners"),
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
