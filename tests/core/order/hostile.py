"""Frames, states and signatures that a hostile member might send."""

from __future__ import annotations

import msgspec

from whence.core.clock import FreeFrame, Packed
from whence.core.order.messages import FreeState
from whence.errors import AbsurdClock, BadFrame

replace = msgspec.structs.replace


def hostile(frame: FreeFrame) -> dict[str, tuple[FreeFrame, type[Exception]]]:
    V = frame.vector.vector()
    far = 1 << 40
    return {
        "another R": (replace(frame, vector=Packed.of((*V, 0))), BadFrame),
        "another K": (replace(frame, keys=(0, 1)), BadFrame),
        "no keys": (replace(frame, keys=()), BadFrame),
        "keys out of range": (replace(frame, keys=(9,)), BadFrame),
        "keys twice": (replace(frame, keys=(1, 1)), BadFrame),
        "negative key": (replace(frame, keys=(-1,)), BadFrame),
        "bytes for another R": (replace(frame, vector=Packed(3, 0, b"12345")), BadFrame),
        "no entries": (replace(frame, vector=Packed(0, 0, b"")), BadFrame),
        "vector jumps": (replace(frame, vector=Packed.of([v + far for v in V])), AbsurdClock),
        "number jumps": (replace(frame, number=far, vector=Packed.of([v + far for v in V])), AbsurdClock),
        "does not count itself": (replace(frame, vector=Packed.of([0] * len(V))), BadFrame),
        "generation jumps": (replace(frame, generation=1 << 62), AbsurdClock),
        "older is not older": (replace(frame, older=((frame.generation, frame.vector),)), BadFrame),
        "opened later": (replace(frame, opened=frame.number + 1), BadFrame),
        "no events": (replace(frame, count=0), BadFrame),
        "event zero": (replace(frame, first=0), BadFrame),
        "a payload that is no bytes": (replace(frame, body=b"\x91\xc1"), BadFrame),
    }


class FakeSeal:
    """Whoever knows the word may publish."""

    def sign(self, data: bytes) -> bytes:
        return b"word" + bytes([len(data) % 251])

    def verify(self, data: bytes, signature: bytes) -> bool:
        return signature == self.sign(data)


def bad_states(good: FreeState) -> list[FreeState]:
    [generation], [row, *_] = good.generations, good.owners
    return [
        replace(good, generations=(replace(generation, K=0),)),
        replace(good, generations=(replace(generation, V=Packed.of((1 << 63, 0, 0))),)),
        replace(good, owners=(replace(row, keys=(7,)),)),
        replace(good, waiting=(replace(good.waiting[0], vector=Packed.of((1, 1))),)),
        replace(good, waiting=(replace(good.waiting[0], keys=(9,)),)),
        replace(good, waiting=(replace(good.waiting[0], body=b"\x91\xc1"),)),
    ]
