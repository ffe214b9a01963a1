"""Events per second through one member, bytes in, deliveries out. The lower bound in the same run: decoding alone."""

from __future__ import annotations

import random
import time
from typing import Any

from whence.core import ports
from whence.core.cast import Gossip
from whence.core.clock import NEVER, Frame, Incarnation
from whence.core.config import Settings
from whence.core.member import Member
from whence.core.wire import decode, encode

INC = Incarnation(1, 0, 1).packed
FRAMES = 10_000
MS = 1_000_000


def _packets(tickets: int, batch: int, per_message: int) -> list[bytes]:
    """Gossip messages of round-robin publishers, every frame depending on all before it."""
    clock = [NEVER] * tickets
    frames = []
    for i in range(FRAMES):
        t = i % tickets
        first = clock[t][1] + 1
        frames.append(Frame.of(t, INC, first, f"p{t}:1#1", tuple(clock), [b"x" * 64] * batch))
        clock[t] = (INC, first + batch - 1)
    groups = [tuple(frames[i : i + per_message]) for i in range(0, FRAMES, per_message)]
    return [encode(Gossip(group, (1,) * len(group))) for group in groups]


def _member(order: str, tickets: int) -> Member:
    config = Settings(members=25, mode="eager", rate=100).config(tickets, order)  # type: ignore[arg-type]
    member = Member("me:1#1", config, random.Random(1))
    member.handle(ports.Start(tuple(f"p{t}:1#1" for t in range(tickets)), genesis=True), 0)
    return member


def _seconds(order: str, tickets: int, packets: list[bytes]) -> tuple[float, int]:
    member = _member(order, tickets)
    start = time.perf_counter()
    for packet in packets:
        member.handle(ports.Received("p0:1#1", decode(packet)), 0)
    return time.perf_counter() - start, member.ordering.stats.delivered


def _decode_seconds(packets: list[bytes]) -> float:
    start = time.perf_counter()
    for packet in packets:
        decode(packet)
    return time.perf_counter() - start


def main() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for tickets in (5, 25):
        for batch in (1, 20):
            packets = _packets(tickets, batch, 20)
            floor = min(_decode_seconds(packets) for _ in range(3))
            for order in ("causal", "reliable"):
                seconds, delivered = min(_seconds(order, tickets, packets) for _ in range(3))
                if delivered != FRAMES * batch:
                    raise AssertionError(f"{delivered} of {FRAMES * batch} events delivered")
                rows.append(
                    {
                        "what": f"{order}, {tickets} tickets, {batch} events a frame, 20 frames a message",
                        "events_per_s": round(delivered / seconds),
                        "us_per_event": round(seconds / delivered * 1e6, 2),
                        "times_decoding_alone": round(seconds / floor, 2),
                    }
                )
    return rows
