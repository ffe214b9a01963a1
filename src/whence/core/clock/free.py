"""Frames of a cluster without tickets: stamped by an (N, R, K) clock or by a mechanism of the SURVEY.

Everybody may publish, so an event is `<owner, seq>`, and each owner counts its own frames. What clocks count are
frames: one frame is one message of PCO17 or the SURVEY.
"""

from __future__ import annotations

from operator import ge
from struct import Struct
from typing import NamedTuple

import msgspec

from whence.core.clock.event import Body, Frame, MemberId
from whence.core.clock.probabilistic import Keys, Stamp
from whence.errors import BadFrame

GENESIS = 0
"""The generation that a cluster begins with. Later ones are `number << 32 | salt`: of two that were begun at the same
time with the same number, the higher one wins everywhere, without any agreement."""

_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}


def are_keys(keys: Keys, R: int) -> bool:
    """`f(p)` of PCO17: ascending entries of a vector of R."""
    return not keys or (keys[0] >= 0 and keys[-1] < R and not any(map(ge, keys, keys[1:])))


class Packed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A vector of `R` counts, each as its distance from the least one, in as many bytes (1, 2, 4 or 8) as the largest
    distance needs."""

    R: int
    base: int
    offsets: bytes

    @classmethod
    def of(cls, V: Stamp | list[int]) -> Packed:
        base, spread = min(V), max(V) - min(V)
        width = next(w for w in _CODES if spread < 1 << 8 * w)
        return cls(len(V), base, Struct(f"<{len(V)}{_CODES[width]}").pack(*[v - base for v in V]))

    @property
    def well_formed(self) -> bool:
        """The offsets are those of `R` entries. To be asked of a peer's vector before anything else."""
        return self.R > 0 and self.base >= 0 and len(self.offsets) in (self.R, 2 * self.R, 4 * self.R, 8 * self.R)

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

    owner: MemberId
    number: int
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

    def ids(self) -> list[FreeId]:
        """The id of each event."""
        return [FreeId(self.owner, s) for s in range(self.first, self.first + self.count)]

    def names(self) -> list[str]:
        """The ids as text."""
        return [f"{self.owner}/{s}" for s in range(self.first, self.first + self.count)]


class FreeFrame(OwnFrame, frozen=True, array_like=True, gc=False, tag=3):
    """Frame `number` of its owner: events `first .. first+count-1`, published at one point of the owner's delivery
    order (messages of PCO17 that share one timestamp). `vector` is `m.V` and `keys` is `f(owner)`, both of
    `generation`, which the owner entered with its frame `opened`. `older` are the owner's vectors of earlier
    generations that changed lately: the frame depends on those messages, too."""

    generation: int
    opened: int
    keys: Keys
    vector: Packed
    body: bytes
    older: tuple[tuple[int, Packed], ...] = ()
    signature: bytes = b""

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
        self.check_events()

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

    processes: tuple[MemberId, ...]
    stamp: bytes
    body: bytes
    anchor: bool = False
    """The stamp leaves nothing out (`order.survey.base`, rule 5)."""
    signature: bytes = b""

    def check(self) -> None:
        """Raise `BadFrame` if the frame contradicts itself. What the stamp says only its mechanism can check."""
        if self.number < 1:
            raise BadFrame(f"frame {self.number}: frames are counted from 1")
        self.check_events()

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


AnyFrame = Frame | FreeFrame | StampedFrame
"""What is published, forwarded, recovered and delivered: under a ticket, or without one."""
