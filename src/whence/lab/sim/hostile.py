"""Bad bytes: noise, truncated or altered packets, and well-formed packets with impossible contents.

An altered packet may still be well formed. Live, messages are authenticated, so such a packet never reaches a member;
here it is counted as `unauthentic` and dropped.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import msgspec

from whence.core.clock import Frame, FreeFrame, Packed, StampedFrame
from whence.core.wire import Message, pack, unpack
from whence.errors import RemoteError
from whence.lab.sim.actions import OUTSIDER, Hostile

if TYPE_CHECKING:
    from whence.lab.sim.host import Instance
    from whence.lab.sim.world import World


def attack(world: World, instance: Instance, action: Hostile) -> None:
    """Send `action.messages` bad packets to one member."""
    sender = world.hosts[action.sender].id if action.sender else OUTSIDER
    rng = world.rng(f"hostile/{action.at}/{action.who}")
    genuine = pack(world.clusters[instance.cluster].name, sender, world.sample) if world.sample is not None else b""
    for _ in range(action.messages):
        if instance.host.instances.get(instance.cluster) is not instance:
            return
        data = _bad(rng, genuine, world.sample, world.clusters[instance.cluster].name, sender)
        if data is None:
            world.tally.unauthentic += 1
        else:
            world.tally.hostile += 1
            world.receive_bytes(instance, sender, data)


def _bad(rng: random.Random, genuine: bytes, message: Message | None, cluster: str, sender: str) -> bytes | None:
    """One bad packet; None if it is well formed and only authentication would detect it."""
    kind = rng.choice(("noise", "cut", "altered", "forged")) if genuine else "noise"
    if kind == "forged":
        forged = forge(rng, message)
        return pack(cluster, sender, forged) if forged is not None else b""
    if kind == "noise":
        data = rng.randbytes(rng.randrange(200))
    elif kind == "cut":
        data = genuine[: rng.randrange(len(genuine))]
    else:
        bent = bytearray(genuine)
        for _ in range(rng.randint(1, 4)):
            bent[rng.randrange(len(bent))] ^= 1 << rng.randrange(8)
        data = bytes(bent)
    try:
        unpack(data)
    except RemoteError:
        return data
    return None


def forge(rng: random.Random, message: Message | None) -> Message | None:
    """A message with an impossible first frame: a vector of another size, or a clock far ahead."""
    items: tuple[Any, ...] = getattr(message, "items", ())
    frame = next((i for i in items if isinstance(i, Frame)), None)
    if frame is None:
        free = next((i for i in items if isinstance(i, FreeFrame | StampedFrame)), None)
        if free is None:
            return None
        forged = forge_free(rng, free) if isinstance(free, FreeFrame) else forge_stamped(rng, free)
        return msgspec.structs.replace(message, items=(forged,), ages=(1,))  # type: ignore[type-var]
    if rng.random() < 0.5:
        bad = msgspec.structs.replace(frame, deps=(*frame.deps, (1, 1)))
    else:
        deps = tuple((inc or 1, (1 << 32) - 1) for inc, _ in frame.deps)
        own = [(frame.inc, (1 << 32) - 3) if i == frame.ticket else d for i, d in enumerate(deps)]
        bad = msgspec.structs.replace(frame, first=(1 << 32) - 2, count=1, deps=tuple(own), body=b"\x91\xc4\x00")
    return msgspec.structs.replace(message, items=(bad,), ages=(1,))  # type: ignore[type-var]


def forge_free(rng: random.Random, frame: FreeFrame) -> FreeFrame:
    """An impossible frame without a ticket: another R or K, or counts, numbers or generations far ahead."""
    V = frame.vector.vector()
    far = 1 << 40
    change: dict[str, Any] = rng.choice(
        (
            {"vector": Packed.of((*V, 0))},
            {"keys": tuple(sorted({*frame.keys, (frame.keys[-1] + 1) % len(V)})) if len(V) > 1 else (0, 1)},
            {"vector": Packed.of([v + far for v in V])},
            {"number": frame.number + far, "vector": Packed.of([v + far for v in V])},
            {"generation": 1 << 62},
            {"vector": Packed.of([0] * len(V))},
        )
    )
    return msgspec.structs.replace(frame, **change)


def forge_stamped(rng: random.Random, frame: StampedFrame) -> StampedFrame:
    """A frame with an impossible stamp: of no mechanism, truncated, of processes it does not name, or far ahead."""
    change: dict[str, Any] = rng.choice(
        (
            {"stamp": rng.randbytes(12)},
            {"stamp": frame.stamp[:-1]},
            {"stamp": frame.stamp + b"\x00"},
            {"stamp": b"\x91\x63"},  # a tag that no mechanism has
            {"number": frame.number + (1 << 40)},
        )
    )
    return msgspec.structs.replace(frame, **change)
