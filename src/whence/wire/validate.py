"""What a message must be beyond its types, as far as no state is needed: lengths, ranges, names, frames.

msgspec has checked the types when something comes here. This file has the checks of single things, `rules.py` says
which field of which message is which thing. Loops over vectors are written out: they run for every frame received,
duplicates included, and nothing built from `min`, `map` and `zip` was faster.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NoReturn

import msgspec

from whence.clock import AnyFrame, Digest, Entry, Frame, FreeFrame, MemberId, Orphan, Packed, Range, Run, StampedFrame
from whence.clock.cct import MAX_SEQ
from whence.errors import BadFrame, BadMessage, RemoteError, TooLarge
from whence.wire.limits import DEFAULT, Limits

MAX_INT = (1 << 64) - 1

_NAME = re.compile(r"[!-~]{1,255}")
_MEMBER_ID = re.compile(r"[!-~]+#(0|[1-9][0-9]{0,19})")


MAX_OLDER = 8
"""Generations that a frame without a ticket may depend on (`order.generations` keeps 4)."""

MAX_SIGNATURE = 128
"""Bytes of a frame's signature (Ed25519: 64)."""


def is_name(text: str) -> bool:
    """1 to 255 visible ASCII characters: safe in a log line, one byte each."""
    return _NAME.fullmatch(text) is not None


@lru_cache(maxsize=8192)  # the same members are named again and again; 8192 ids of at most 255 bytes
def is_member_id(text: MemberId) -> bool:
    """A name of the form `address#boot`, the boot in canonical decimal: two spellings would be two members."""
    return len(text) <= 255 and _MEMBER_ID.fullmatch(text) is not None


def too_many(what: str, length: int, cap: int) -> NoReturn:
    raise TooLarge(f"{length} {what}, allowed are {cap}")


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


def check_members(members: Sequence[MemberId], limits: Limits) -> None:
    if len(members) > limits.max_members:
        too_many("members", len(members), limits.max_members)
    for member in members:
        check_member(member, limits)


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


def check_ranges(ranges: Sequence[Range], limits: Limits) -> None:
    if len(ranges) > limits.max_ranges:
        too_many("ranges", len(ranges), limits.max_ranges)
    for ticket, inc, first, last in ranges:
        if not (0 <= ticket < limits.max_tickets and 1 <= inc <= MAX_INT and 1 <= first <= last <= MAX_SEQ):
            raise BadMessage(f"no range of events: ({ticket}, {inc}, {first}, {last})")


def check_runs(runs: Sequence[Run], limits: Limits) -> None:
    if len(runs) > limits.max_ranges:
        too_many("runs of frames", len(runs), limits.max_ranges)
    for owner, first, last in runs:
        check_member(owner, limits)
        if not 1 <= first <= last <= MAX_INT:
            raise BadMessage(f"no run of frames: ({owner}, {first}, {last})")


def check_heads(heads: Sequence[tuple[MemberId, int]], limits: Limits) -> None:
    if len(heads) > limits.max_owners:
        too_many("owners", len(heads), limits.max_owners)
    for owner, number in heads:
        check_member(owner, limits)
        check_int(number, limits)


def check_packed(packed: Packed, limits: Limits, fault: type[RemoteError] = BadMessage) -> None:
    if limits.max_entries < packed.R:
        too_many("entries of a vector", packed.R, limits.max_entries)
    if not packed.well_formed:
        raise fault(f"a vector of {len(packed.offsets)} bytes for {packed.R} entries")


def check_keys(keys: Sequence[int], R: int, fault: type[RemoteError] = BadMessage) -> None:
    """`f(p)`: ascending entries of a vector."""
    at = -1
    for key in keys:
        if not at < key < R:
            raise fault(f"keys {tuple(keys[:8])} are not ascending entries of 0 .. {R - 1}")
        at = key


def check_free_frame(frame: FreeFrame, limits: Limits) -> None:
    """As `check_frame`, of a frame without a ticket."""
    check_packed(frame.vector, limits, BadFrame)
    if not frame.keys:
        raise BadFrame("a frame without keys")
    check_keys(frame.keys, frame.vector.R, BadFrame)
    if len(frame.older) > MAX_OLDER:
        too_many("older generations", len(frame.older), MAX_OLDER)
    for generation, packed in frame.older:
        if not 0 <= generation < frame.generation:
            raise BadFrame(f"a frame of generation {frame.generation} that depends on {generation}")
        check_packed(packed, limits, BadFrame)
    if not (1 <= frame.opened <= frame.number <= MAX_INT and 0 <= frame.generation <= MAX_INT):
        raise BadFrame(f"frame {frame.number} of generation {frame.generation}, entered with frame {frame.opened}")
    _check_body(frame, limits)


def check_stamped_frame(frame: StampedFrame, limits: Limits) -> None:
    """As `check_frame`, of a frame with a mechanism's stamp. What the stamp says only that mechanism can check."""
    check_processes(frame.processes, limits)
    if len(frame.stamp) > limits.max_stamp_bytes:
        too_many("bytes of a stamp", len(frame.stamp), limits.max_stamp_bytes)
    if not 1 <= frame.number <= MAX_INT:
        raise BadFrame(f"frame {frame.number}: frames are counted from 1")
    _check_body(frame, limits)


def check_processes(processes: Sequence[MemberId], limits: Limits) -> None:
    """Whom the numbers of a stamp or a state mean."""
    if len(processes) > limits.max_owners:
        too_many("processes", len(processes), limits.max_owners)
    for name in processes:
        check_member(name, limits)


def check_any_frame(frame: AnyFrame, limits: Limits) -> None:
    """A frame of any kind of cluster agrees with itself."""
    if type(frame) is Frame:
        check_frame(frame, limits)
    elif type(frame) is FreeFrame:
        check_free_frame(frame, limits)
    else:
        assert type(frame) is StampedFrame
        check_stamped_frame(frame, limits)


def _check_body(frame: AnyFrame, limits: Limits) -> None:
    """Owner, events and signature; the count moves clocks before the body is ever decoded, so it has to be the body's
    own."""
    first, count, body = frame.first, frame.count, frame.body
    if len(body) > limits.max_frame_bytes:
        too_many("bytes of a frame's body", len(body), limits.max_frame_bytes)
    if not 1 <= count <= limits.max_frame_events:
        if count > limits.max_frame_events:
            too_many("events in a frame", count, limits.max_frame_events)
        raise BadFrame(f"a frame of {count} events")
    if not 1 <= first <= MAX_SEQ + 1 - count:
        raise BadFrame(f"no such events: first {first}, count {count}")
    if not is_member_id(frame.owner) or len(frame.owner) > limits.max_name_bytes:
        check_member(frame.owner, limits)
    if len(frame.signature) > MAX_SIGNATURE:
        raise BadFrame(f"a signature of {len(frame.signature)} bytes")
    if not body.startswith(_array_header(count)):
        raise BadFrame(f"a frame of {count} events whose body is not a list of {count}")


def check_frame(frame: Frame, limits: Limits) -> None:
    """A frame agrees with itself. What it says of its ticket and its past is checked where that is known."""
    _check_body(frame, limits)
    ticket, inc, first, deps = frame.ticket, frame.inc, frame.first, frame.deps
    check_vector(deps, limits, BadFrame)
    if not 0 <= ticket < len(deps):
        raise BadFrame(f"ticket {ticket} of a vector of {len(deps)}")
    before = deps[ticket]  # a valid entry, so what follows also says that inc is at least 1
    if (before[0] >= inc) if first == 1 else (before != (inc, first - 1)):
        raise BadFrame(f"frame begins at ({inc}, {first}) but depends on {before} of its own ticket")
    if frame.orphans:
        check_orphans(frame.orphans, len(deps), limits, BadFrame)
    if frame.prior is not None:
        check_orphans((frame.prior,), len(deps), limits, BadFrame)


def payloads(frame: AnyFrame, limits: Limits = DEFAULT) -> list[bytes]:
    """The bodies of a frame's events, decoded now; BadFrame if they are not what the frame says. To be called before
    anything of the frame is believed, or passed on: whoever forwards it is blamed for it."""
    try:
        bodies = frame.payloads()
    except msgspec.MsgspecError as error:
        raise BadFrame(f"body of a frame: {error}") from None
    if len(bodies) != frame.count:
        raise BadFrame(f"a frame of {frame.count} events with {len(bodies)} payloads")
    longest = max(map(len, bodies), default=0)
    if longest > limits.max_payload_bytes:
        too_many("bytes of payload", longest, limits.max_payload_bytes)
    return bodies


@lru_cache(maxsize=256)
def _array_header(length: int) -> bytes:
    """How a msgpack array of this length begins."""
    if length < 16:
        return bytes((0x90 | length,))
    return b"\xdc" + length.to_bytes(2, "big") if length < 1 << 16 else b"\xdd" + length.to_bytes(4, "big")
