"""What a message must be beyond its types, as far as no state is needed: lengths, ranges, names, frames.

msgspec has checked the types when something comes here. This file has the checks of single things, `rules.py` says
which field of which message is which thing. Loops over vectors are written out: they run for every frame received,
duplicates included, and nothing built from `min`, `map` and `zip` was faster.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from whence.clock import (
    MAX_SEQ,
    AnyFrame,
    Digest,
    Entry,
    Frame,
    FreeFrame,
    MemberId,
    Orphan,
    Packed,
    Range,
    Run,
    StampedFrame,
    is_member_id,
)
from whence.errors import BadFrame, BadMessage, RemoteError, TooLarge
from whence.wire.limits import Limits

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
    short = at_most(cap, what)

    def check(things: Sequence[Any], limits: Limits) -> None:
        short(things, limits)
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


def check_run(run: Run, limits: Limits) -> None:
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
