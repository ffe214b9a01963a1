"""Members, events and frames: their names, and when they are valid.

A **frame** is a run of consecutive events of one ticket under one dependency vector. It is the unit of the causal
check, of gossip and of recovery. Frames are immutable and the same at every member: never split or joined.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import msgspec

from whence.core.clock.cct import MAX_SEQ, Entry, Incarnation
from whence.errors import BadFrame

MemberId = str
"""`address#boot`: one life of one process. A restart has a higher boot, hence another id."""

Key = tuple[int, int, int]
"""`(ticket, incarnation, first)`: names a frame within a cluster."""


def member_id(address: str, boot: int) -> MemberId:
    """The id of life number `boot` of the process at `address`."""
    return f"{address}#{boot}"


@lru_cache(maxsize=1 << 14)  # the same few hundred ids, for every packet
def address_of(member: MemberId) -> str:
    """Where to send to: the id without its boot."""
    return member.rpartition("#")[0]


def boot_of(member: MemberId) -> int:
    """Which life of the process this is."""
    return int(member.rpartition("#")[2])


def any_life(member: MemberId) -> MemberId:
    """The process at a member's address, whichever its life: where to send what is not meant for one life alone."""
    return member_id(address_of(member), 0)


def reaches(to: MemberId, member: MemberId) -> bool:
    """What is sent to `to` is for this member."""
    return to == member or to == any_life(member)


@lru_cache(maxsize=1 << 14)  # the same few hundred ids are in every message
def is_member_id(text: str) -> bool:
    """At most 255 visible ASCII characters of the form `address#boot`, the boot in canonical decimal: two spellings
    would be two members."""
    return len(text) <= 255 and _MEMBER_ID.fullmatch(text) is not None


class Send(msgspec.Struct, frozen=True, gc=False):
    """Send a message of `wire` to a member. `reliable`: over a stream (FIFO per pair, no duplicates, may break); else
    as a datagram, which may get lost. Sends to many share one message object: encode it once."""

    to: MemberId
    message: Any
    reliable: bool = False


class EventId(NamedTuple):
    """`<ticket, incarnation, seq>` plus the owner, which keeps ids unique even if the ring were ever wrong."""

    ticket: int
    inc: int
    seq: int
    owner: MemberId

    def __str__(self) -> str:
        return f"{self.ticket}:{Incarnation.unpack(self.inc)}:{self.seq}@{self.owner}"

    @classmethod
    def parse(cls, text: str) -> EventId:
        """The inverse of `str()`; raises ValueError on anything else."""
        match = _EVENT_ID.fullmatch(text)
        if match is None:
            raise ValueError(f"not an event id: {text!r} (want ticket:epoch.term.count:seq@owner)")
        ticket, epoch, term, count, seq, owner = match.groups()
        try:
            inc = Incarnation(int(epoch), int(term), int(count)).packed
        except OverflowError as error:
            raise ValueError(f"not an event id: {text!r} ({error})") from None
        return cls(int(ticket), inc, int(seq), owner)


_EVENT_ID = re.compile(r"([0-9]{1,9}):([0-9]{1,9})\.([0-9]{1,9})\.([0-9]{1,9}):([0-9]{1,10})@(.+)", re.DOTALL)
_MEMBER_ID = re.compile(r"[!-~]+#(0|[1-9][0-9]{0,19})")
_payloads = msgspec.msgpack.Decoder(list[bytes])
encode = msgspec.msgpack.Encoder().encode

S = TypeVar("S", bound="Body")


FRAME_BYTES = 56_000
"""Bytes of a body that a runtime fills when there is much to publish: with its headers the frame fits into one
datagram. (What a peer accepts is larger: `wire.limits`.)"""
FRAME_EVENTS = 1024
"""And events: the frame is the unit of loss and of recovery."""


def fitting(payloads: Sequence[bytes], start: int, frames: int = 1) -> int:
    """Where a chunk that begins at `start` and fills so many frames ends. It holds at least one payload."""
    end, room = start, frames * FRAME_BYTES
    chunk = payloads[start : start + frames * FRAME_EVENTS]
    if body_size(chunk) <= room:  # as almost always
        return start + len(chunk)
    for payload in chunk:
        room -= len(payload) + 5
        if room < 0 and end > start:
            break
        end += 1
    return end


def body_size(payloads: Sequence[bytes]) -> int:
    """Bytes of a frame's body with these payloads, at most."""
    return sum(map(len, payloads)) + 5 * len(payloads) + 5


@lru_cache(maxsize=256)
def _array_header(length: int) -> bytes:
    """How a msgpack array of this length begins."""
    if length < 16:
        return bytes((0x90 | length,))
    return b"\xdc" + length.to_bytes(2, "big") if length < 1 << 16 else b"\xdd" + length.to_bytes(4, "big")


class Body:
    """What every kind of frame has: events `first .. first+count-1`, whose payloads are `body`, an encoded list.
    `signature` proves, where the cluster has roles, that a publisher made the frame."""

    __slots__ = ()

    first: int
    count: int
    body: bytes
    signature: bytes

    @property
    def last(self) -> int:
        """The seq of the last event."""
        return self.first + self.count - 1

    def payloads(self) -> list[bytes]:
        """The payloads; `BadFrame` if the body holds anything else. Decoded when the frame is vetted and when it is
        read, never for a duplicate."""
        try:
            payloads = _payloads.decode(self.body)
        except msgspec.MsgspecError as error:
            raise BadFrame(f"body of a frame: {error}") from None
        if len(payloads) != self.count:
            raise BadFrame(f"a frame of {self.count} events with {len(payloads)} payloads")
        return payloads

    def signed(self: S, signature: bytes) -> S:
        """The same frame with this signature."""
        return msgspec.structs.replace(self, signature=signature)  # type: ignore[type-var]  # frames are Structs

    def unsigned(self) -> bytes:
        """What a signature is about: all of the frame but the signature."""
        return encode(self.signed(b"") if self.signature else self)

    def check_events(self) -> None:
        """`BadFrame` unless `first`, `count` and `body` agree: `count` moves clocks before the body is decoded."""
        first, count = self.first, self.count
        if count < 1 or not 1 <= first <= MAX_SEQ + 1 - count:
            raise BadFrame(f"no such events: first {first}, count {count}")
        if not self.body.startswith(_array_header(count)):
            raise BadFrame(f"a frame of {count} events whose body is not a list of {count}")


class Frame(Body, msgspec.Struct, frozen=True, array_like=True, gc=False, tag=1):
    """Events `first .. first+count-1` of one incarnation of a ticket, all published at one point of the owner's
    delivery order.

    `deps` is the owner's causal present just before `first`. Its own entry `deps[ticket]` is the event before `first`
    on the ticket: seq `first-1` of the same incarnation or, when `first` is 1, the last event of an earlier incarnation
    that this one **closes over** (docs/ring.md, "Tickets, incarnations, event ids"). `orphans` are events the owner has
    delivered that no closure covers (`CctClock`). `prior`, in the first frame of an incarnation, is the owner's last
    event under another one: `fifo` follows publishers from ticket to ticket.
    """

    ticket: int
    inc: int
    first: int
    count: int
    owner: MemberId
    deps: tuple[Entry, ...]
    orphans: tuple[tuple[int, int, int], ...]
    body: bytes
    prior: tuple[int, int, int] | None = None
    signature: bytes = b""

    @classmethod
    def of(
        cls,
        ticket: int,
        inc: int,
        first: int,
        owner: MemberId,
        deps: tuple[Entry, ...],
        payloads: list[bytes],
        orphans: tuple[tuple[int, int, int], ...] = (),
        prior: tuple[int, int, int] | None = None,
    ) -> Frame:
        """A frame of `payloads`, one event each."""
        return cls(ticket, inc, first, len(payloads), owner, deps, orphans, encode(payloads), prior)

    def check(self) -> None:
        """Raise `BadFrame` if the frame contradicts itself."""
        self.check_events()
        ticket, inc, first = self.ticket, self.inc, self.first
        if not 0 <= ticket < len(self.deps):
            raise BadFrame(f"ticket {ticket} of a vector of {len(self.deps)}")
        before = self.deps[ticket]
        if (before[0] >= inc) if first == 1 else (before != (inc, first - 1)):
            raise BadFrame(f"frame begins at ({inc}, {first}) but depends on {before} of its own ticket")

    @property
    def key(self) -> Key:
        return (self.ticket, self.inc, self.first)

    @property
    def upto(self) -> int:
        """How far the frame reaches in the count that its key begins in."""
        return self.first + self.count - 1

    @property
    def stamp(self) -> Entry:
        """The clock entry of the ticket once the whole frame is delivered."""
        return (self.inc, self.first + self.count - 1)

    def ids(self) -> list[EventId]:
        """The id of each event."""
        return [EventId(self.ticket, self.inc, s, self.owner) for s in range(self.first, self.first + self.count)]

    def names(self) -> list[str]:
        """The ids as text."""
        before, after = f"{self.ticket}:{Incarnation.unpack(self.inc)}:", f"@{self.owner}"
        return [f"{before}{s}{after}" for s in range(self.first, self.first + self.count)]

    def timestamp(self, seq: int) -> tuple[Entry, ...]:
        """`t_e` of the event `seq`: the dependencies with the own entry set (CCC11 Algorithm 5, create)."""
        t = list(self.deps)
        t[self.ticket] = (self.inc, seq)
        return tuple(t)

    @property
    def header(self) -> int:
        """Bytes of control information: what the clock costs on the wire, near enough."""
        return 9 * len(self.deps) + 20 * len(self.orphans)

    @property
    def size(self) -> int:
        """Bytes on the wire, near enough for the bandwidth model: the header, the vector, the body."""
        return 24 + len(self.owner) + 9 * len(self.deps) + 20 * len(self.orphans) + len(self.body) + len(self.signature)


class Digest(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a member has delivered: its `T` and the orphans beyond it. It travels with every gossip message, so that a
    lost last event of a burst is missed, and pulled, even when nothing follows it."""

    T: tuple[Entry, ...]
    orphans: tuple[tuple[int, int, int], ...] = ()
