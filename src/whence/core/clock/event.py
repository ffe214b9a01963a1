"""Members, events and frames: their names, and when they are valid.

A **frame** is a run of consecutive events of one ticket under one dependency vector. It is the unit of the causal
check, of gossip and of recovery. Frames are immutable and the same at every member: never split or joined.

In a cluster without tickets a frame is stamped by an (N, R, K) clock or by a mechanism of the SURVEY.

Everybody may publish there, so an event is `<owner, seq>`, and each owner counts its own frames. What clocks count are
frames: one frame is one message of PCO17 or the SURVEY.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from operator import ge
from struct import Struct
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec

from whence.core.clock.bounds import (
    MAX_ENTRIES,
    MAX_FRAME_BYTES,
    MAX_FRAME_EVENTS,
    MAX_NAME,
    MAX_SEQ,
    MAX_STAMP_BYTES,
    Count,
    MemberId,
    PerOwner,
    PerTenure,
    PerTicket,
    Signature,
    TicketIndex,
)
from whence.core.clock.cct import Entry, Incarnation, Orphan
from whence.core.clock.probabilistic import Keys, Stamp
from whence.errors import BadFrame, BadMessage, TooLarge

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
    """Whether it has the form of a `MemberId`."""
    return len(text) <= MAX_NAME and _MEMBER_ID.fullmatch(text) is not None


class Send(msgspec.Struct, frozen=True, gc=False):
    """Send a message of `wire` to a member. `reliable`: over a stream (FIFO per pair, no duplicates, may break); else
    as a datagram, which may get lost. Sends to many share one message object: encode it once."""

    to: MemberId
    message: Any
    reliable: bool = False


@lru_cache(maxsize=64)
def around_seq(ticket: int, inc: int, owner: MemberId) -> tuple[str, str]:
    """The text of an event id of this tenure, before and after its seq."""
    return f"{ticket}:{Incarnation.unpack(inc)}:", f"@{owner}"


class EventId(NamedTuple):
    """`<ticket, incarnation, seq>` plus the owner, which keeps ids unique even if the ring were ever wrong."""

    ticket: int
    inc: int
    seq: int
    owner: MemberId

    def __str__(self) -> str:
        before, after = around_seq(self.ticket, self.inc, self.owner)
        return f"{before}{self.seq}{after}"

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
decode_payloads = msgspec.msgpack.Decoder(list[bytes]).decode
encode = msgspec.msgpack.Encoder().encode

S = TypeVar("S", bound="Body")
StampBytes = Annotated[bytes, msgspec.Meta(max_length=MAX_STAMP_BYTES)]
FrameBody = Annotated[bytes, msgspec.Meta(max_length=MAX_FRAME_BYTES)]


FRAME_BYTES = 56_000
"""Bytes of a body that a runtime fills when there is much to publish: with its headers the frame fits into one
datagram. (What a peer accepts is larger: `bounds`.)"""
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
    return len(b"".join(payloads)) + 5 * len(payloads) + 5  # three times as fast as to add up lengths


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
            payloads = decode_payloads(self.body)
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
        if count > MAX_FRAME_EVENTS:
            raise TooLarge(f"{count} events in a frame, allowed are {MAX_FRAME_EVENTS}")
        if count < 1 or not 1 <= first <= MAX_SEQ + 1 - count:
            raise BadFrame(f"no such events: first {first}, count {count}")
        if not self.body.startswith(_array_header(count)):
            raise BadFrame(f"a frame of {count} events whose body is not a list of {count}")


def bad_owner(owner: str) -> BadMessage:
    """An owner has to be a member's id."""
    return BadMessage(f"not a member id: {owner[:80]!r} (want address#boot)")


def check_vector(vector: Sequence[Entry], orphans: Sequence[Orphan] = ()) -> None:
    """Entries are either NEVER, or an incarnation and a seq of at least 1. (An incarnation without an event would be
    neither missing nor ready for a `CctClock`.) Orphans are of tickets of the vector."""
    for inc, seq in vector:
        if (not inc) != (not seq):
            raise BadMessage(f"no clock entry: ({inc}, {seq})")
    for orphan in orphans:
        if orphan[0] >= len(vector):
            raise BadMessage(f"no orphan of {len(vector)} tickets: {orphan}")


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
    inc: Count
    first: int
    count: int
    owner: str
    """A `MemberId`: `check` says so, with a cache, since it is in every frame."""
    deps: PerTicket[Entry]
    orphans: PerTenure[Orphan]
    body: FrameBody
    prior: Orphan | None = None
    signature: Signature = b""

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
        """Raise `BadFrame` if the frame contradicts itself. Its vector's check is written out: it runs for every frame
        received, duplicates included, and nothing built from `min`, `map` and `zip` was faster."""
        ticket, inc, first, count, deps = self.ticket, self.inc, self.first, self.count, self.deps
        if count != 1 or not 1 <= first <= MAX_SEQ or self.body[:1] != b"\x91":  # a lone event needs no more
            self.check_events()
        if not is_member_id(self.owner):
            raise bad_owner(self.owner)
        for at, seq in deps:
            if (not at) != (not seq):
                raise BadFrame(f"no clock entry: ({at}, {seq})")
        for orphan in self.orphans:
            if orphan[0] >= len(deps):
                raise BadFrame(f"no orphan of {len(deps)} tickets: {orphan}")
        if not 0 <= ticket < len(deps):
            raise BadFrame(f"ticket {ticket} of a vector of {len(deps)}")
        before = deps[ticket]
        if (before[0] >= inc) if first == 1 else (before != (inc, first - 1)):
            raise BadFrame(f"frame begins at ({inc}, {first}) but depends on {before} of its own ticket")
        if self.prior is not None and self.prior[0] >= len(deps):
            raise BadFrame(f"its owner's last event {self.prior} is of a ticket that does not exist")

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

    def names(self) -> list[str]:
        """The id of each event, as text."""
        before, after = around_seq(self.ticket, self.inc, self.owner)
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


LAST = (1 << 62) - 1
"""The clock of a last tick: its owner publishes no more under that tenure."""
Moment = Annotated[int, msgspec.Meta(ge=0, le=LAST)]
"""On a Lamport clock."""
MAX_LOST = 64
"""Ranges that a frame may name as lost; more: all."""

Log = tuple[int, int]
"""A tenure: ticket and incarnation."""


class LostRange(NamedTuple):
    """What a publisher never had of a ticket, though its vector covers it: after one event, up to another."""

    ticket: TicketIndex
    after: Entry
    upto: Entry


class TotalFrame(Frame, frozen=True, array_like=True, gc=False, tag=5):
    """A frame in a cluster with total order: `lamport` is its owner's clock (docs/total.md, rule T1). `lost`: what its
    vector covers and its owner never had (rule T9); None: perhaps all of it."""

    lamport: Moment = 0
    lost: Annotated[tuple[LostRange, ...], msgspec.Meta(max_length=MAX_LOST)] | None = ()

    @property
    def log(self) -> Log:
        """The tenure it belongs to."""
        return (self.ticket, self.inc)

    @property
    def place(self) -> tuple[int, int, int, int]:
        """Comparable with that of every other frame: by stamp first."""
        return (self.lamport, self.ticket, self.inc, self.first)

    def check(self) -> None:
        super().check()
        for gone in self.lost or ():
            if gone.ticket >= len(self.deps) or not gone.after < gone.upto or not gone.upto[1]:
                raise BadFrame(f"no range of events to lack: {gone}")

    def lacks(self, ticket: int, inc: int, seq: int) -> bool:
        """Its owner never had this event."""
        if self.lost is None:
            return True
        return any(gone.ticket == ticket and gone.after < (inc, seq) <= gone.upto for gone in self.lost)


class Digest(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a member has delivered: its `T` and the orphans beyond it. It travels with every gossip message, so that a
    lost last event of a burst is missed, and pulled, even when nothing follows it."""

    T: PerTicket[Entry]
    orphans: PerTenure[Orphan] = ()


GENESIS = 0
"""The generation that a cluster begins with. Later ones are `number << 32 | salt`: of two that were begun at the same
time with the same number, the higher one wins everywhere, without any agreement."""

MAX_OLDER = 8
"""Generations that a frame without a ticket may depend on (`order.probabilistic` keeps 4)."""

_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}


def are_keys(keys: Keys, R: int) -> bool:
    """`f(p)` of PCO17: ascending entries of a vector of R."""
    return not keys or (keys[0] >= 0 and keys[-1] < R and not any(map(ge, keys, keys[1:])))


class Packed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A vector of `R` counts, each as its distance from the least one, in as many bytes (1, 2, 4 or 8) as the largest
    distance needs."""

    R: Annotated[int, msgspec.Meta(ge=1, le=MAX_ENTRIES)]
    base: Count
    offsets: bytes

    @classmethod
    def of(cls, V: Stamp | list[int]) -> Packed:
        base, spread = min(V), max(V) - min(V)
        width = next(w for w in _CODES if spread < 1 << 8 * w)
        return cls(len(V), base, Struct(f"<{len(V)}{_CODES[width]}").pack(*[v - base for v in V]))

    @property
    def well_formed(self) -> bool:
        """The offsets are those of `R` entries. To be asked of a peer's vector before anything else."""
        return len(self.offsets) in (self.R, 2 * self.R, 4 * self.R, 8 * self.R)

    def vector(self) -> Stamp:
        """The counts."""
        offsets = Struct(f"<{self.R}{_CODES[len(self.offsets) // self.R]}").unpack(self.offsets)
        return tuple([self.base + v for v in offsets]) if self.base else offsets

    @property
    def size(self) -> int:
        """Bytes on the wire."""
        return len(self.offsets) + 10


class FreeId(NamedTuple):
    """`<owner, seq>`."""

    owner: MemberId
    seq: int

    def __str__(self) -> str:
        return f"{self.owner}/{self.seq}"

    @classmethod
    def parse(cls, text: str) -> FreeId:
        """The inverse of `str()`; raises ValueError on anything else."""
        owner, _, seq = text.rpartition("/")
        if not (seq.isascii() and seq.isdecimal()) or len(seq) > 19 or not owner:
            raise ValueError(f"not an event id: {text!r} (want owner/seq)")
        return cls(owner, int(seq))


class OwnFrame(Body, msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What frames of a cluster without tickets have in common: the owner counts its own frames, and its events."""

    owner: str
    number: Count
    first: int
    count: int

    @property
    def key(self) -> tuple[MemberId, int, int]:
        """Names the frame within a cluster. News have two parts, frames under a ticket have ints only."""
        return (self.owner, 0, self.number)

    @property
    def upto(self) -> int:
        """How far the frame reaches in the count that its key begins in: the owner's frames."""
        return self.number

    def check(self) -> None:
        """Raise `BadFrame` if the frame contradicts itself. What a stamp says only its mechanism can check."""
        if self.number < 1:
            raise BadFrame(f"frame {self.number}: frames are counted from 1")
        if not is_member_id(self.owner):
            raise bad_owner(self.owner)
        self.check_events()

    def names(self) -> list[str]:
        """The id of each event, as text."""
        return [f"{self.owner}/{s}" for s in range(self.first, self.first + self.count)]


class FreeFrame(OwnFrame, frozen=True, array_like=True, gc=False, tag=3):
    """Frame `number` of its owner: events `first .. first+count-1`, published at one point of the owner's delivery
    order (messages of PCO17 that share one timestamp). `vector` is `m.V` and `keys` is `f(owner)`, both of
    `generation`, which the owner entered with its frame `opened`. `older` are the owner's vectors of earlier
    generations that changed lately: the frame depends on those messages, too."""

    generation: Count
    opened: int
    keys: Keys
    vector: Packed
    body: FrameBody
    older: Annotated[tuple[tuple[int, Packed], ...], msgspec.Meta(max_length=MAX_OLDER)] = ()
    signature: Signature = b""

    def check(self) -> None:
        """Raise `BadFrame` if the frame contradicts itself."""
        R, keys = self.vector.R, self.keys
        if not self.vector.well_formed or not all(packed.well_formed for _, packed in self.older):
            raise BadFrame(f"a vector of {len(self.vector.offsets)} bytes for {R} entries, or one of its older ones")
        if not keys or not are_keys(keys, R):
            raise BadFrame(f"keys {keys[:8]} are not ascending entries of 0 .. {R - 1}")
        if not 1 <= self.opened <= self.number:
            raise BadFrame(f"frame {self.number} of a generation entered with frame {self.opened}")
        if any(not 0 <= generation < self.generation for generation, _ in self.older):
            raise BadFrame(f"a frame of generation {self.generation} that depends on one that is not older")
        super().check()

    @property
    def header(self) -> int:
        """Bytes of control information: what the clock costs on the wire, the owner's name and counters left out."""
        return self.vector.size + 3 * len(self.keys) + sum(10 + packed.size for _, packed in self.older)

    @property
    def size(self) -> int:
        """Bytes on the wire, near enough for the bandwidth model."""
        return 24 + len(self.owner) + self.header + len(self.body) + len(self.signature)


class StampedFrame(OwnFrame, frozen=True, array_like=True, gc=False, tag=4):
    """Frame `number` of its owner, one multicast of a mechanism of the SURVEY: `stamp` is its encoded control
    information. Process `i` in it is the member `processes[i]`: members have no agreed numbers, so every frame names
    them."""

    processes: PerOwner[MemberId]
    stamp: StampBytes
    body: FrameBody
    anchor: bool = False
    """The stamp leaves nothing out (`order.survey.base`, rule 5)."""
    signature: Signature = b""

    @property
    def direct(self) -> bool:
        """It is no multicast, but a message to one member (`order.unicast`)."""
        return len(self.processes) == 1 and not self.stamp

    @property
    def header(self) -> int:
        """Bytes of control information: the stamp, as the SURVEY counts it. Names of members are left out."""
        return len(self.stamp)

    @property
    def named(self) -> int:
        """Bytes of the names that the stamp needs: the price of having no agreed numbers."""
        return sum(len(p) + 1 for p in self.processes)

    @property
    def size(self) -> int:
        """Bytes on the wire, near enough for the bandwidth model."""
        return 24 + len(self.owner) + self.header + self.named + len(self.body) + len(self.signature)


AnyFrame = Frame | TotalFrame | FreeFrame | StampedFrame
"""What is published, forwarded, recovered and delivered: under a ticket, or without one."""
