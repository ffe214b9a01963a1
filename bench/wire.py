"""Encoding and decoding the message that a member handles most: gossip of 20 frames.

Decoding is compared, in the same run, with its lower bound: msgspec building the very same objects, nothing checked.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable
from typing import Any

import msgspec

from whence.core.cast.messages import Gossip
from whence.core.clock import Digest, Frame, Incarnation
from whence.core.wire import Message, decode, encode, header, pack, unpack

FRAMES = 20
EVENTS = 20
PAYLOAD = 64


def gossip(tickets: int) -> Gossip:
    """A full message: every frame with a full vector, ten membership entries and a digest."""
    inc = Incarnation(1, 0, 1).packed
    deps = tuple((inc + i, 1000 + 20 * i) for i in range(tickets))
    frames = []
    for i in range(FRAMES):
        ticket = i % tickets
        frames.append(
            Frame.of(
                ticket, deps[ticket][0], deps[ticket][1] + 1, f"10.0.0.{ticket}:4000#1", deps, [b"x" * PAYLOAD] * EVENTS
            )
        )
    members = tuple((f"10.0.0.{i}:4000#1", i) for i in range(10))
    return Gossip(tuple(frames), (1,) * FRAMES, Digest(deps), members)


def _micros(call: Callable[[], Any], number: int = 300, repeat: int = 9) -> float:
    return min(timeit.repeat(call, number=number, repeat=repeat)) / number * 1e6


def main() -> list[dict[str, Any]]:
    """One row per operation and number of tickets; `ratio` is against plain msgspec doing the same."""
    rows: list[dict[str, Any]] = []
    plain_decode = msgspec.msgpack.Decoder(Message).decode
    plain_encode = msgspec.msgpack.Encoder().encode
    for tickets in (5, 25):
        message = gossip(tickets)
        body = encode(message)
        packet = pack("cluster", "10.0.0.1:4000#1", message)
        floor = {
            "decode": _micros(lambda b=body: plain_decode(b)),
            "encode": _micros(lambda m=message: plain_encode(m)),
        }
        calls: list[tuple[str, str, Callable[[], Any]]] = [
            ("decode", "decode", lambda b=body: decode(b)),
            ("decode", "unpack", lambda p=packet: unpack(p)),
            ("encode", "pack", lambda m=message: pack("cluster", "10.0.0.1:4000#1", m)),
            ("encode", "header", lambda b=body: header("cluster", "10.0.0.1:4000#1") + b),
        ]
        for base, name, call in calls:
            micros = _micros(call)
            rows.append(
                {
                    "what": f"{name}, {FRAMES} x {EVENTS} events, {tickets} tickets",
                    "bytes": len(packet),
                    "us": round(micros, 1),
                    "plain msgspec us": round(floor[base], 1),
                    "ratio": round(micros / floor[base], 2),
                    "ns per event": round(micros * 1000 / (FRAMES * EVENTS), 1),
                }
            )
    return rows


if __name__ == "__main__":
    for row in main():
        print(row)
