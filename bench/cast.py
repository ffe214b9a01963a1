"""How fast cast is: duplicates and first copies taken, rounds made, a whole cluster in rounds.

Usage: python bench/cast.py [--members 125] [--frames 2000] [--json]
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable

import msgspec

from whence.cast import CastConfig, CastSend, EttbGossip, First, Gossip, make
from whence.cast.messages import CastMessage
from whence.clock import Frame, MemberId, member_id

ROUND = 1_000_000


def frame(ticket: int, first: int, owner: MemberId, tickets: int = 25) -> Frame:
    return Frame.of(ticket, 1, first, owner, ((1, first),) * tickets, [b"x" * 64])


def best(work: Callable[[], int], repeat: int = 3) -> float:
    """Things a second, best of several."""
    rates = []
    for _ in range(repeat):
        began = time.perf_counter()
        done = work()
        rates.append(done / (time.perf_counter() - began))
    return max(rates)


def started(members: int, **fields: object) -> tuple[EttbGossip, list[MemberId]]:
    ids = [member_id(f"m{i}:1", 1) for i in range(members)]
    node = make(ids[0], CastConfig(round=ROUND, **fields), random.Random(1))  # type: ignore[arg-type]
    node.start(ids[1:], 0, True)
    return node, ids


def duplicates(wire: bool) -> float:
    """Items a second when all of them are known: 20 a message, 10 membership entries, as in a saturated round."""
    node, ids = started(125)
    entries = tuple((m, 1) for m in ids[1:11])
    message = Gossip(tuple(frame(i, 1, ids[1]) for i in range(20)), (2,) * 20, None, entries)
    encoded = msgspec.msgpack.encode(message)
    copies = [msgspec.msgpack.decode(encoded, type=Gossip) for _ in range(5000)] if wire else [message] * 5000
    node.receive(ids[1], message, 0)

    def work() -> int:
        for m in copies:
            node.receive(ids[1], m, 0)
        return 20 * len(copies)

    return best(work)


def firsts(mode: str) -> float:
    """New items a second, 20 a message."""
    serial = 0

    def work() -> int:
        nonlocal serial
        node, ids = started(125, mode=mode)
        serial += 1
        messages = [
            Gossip(tuple(frame(i % 25, i + 1, ids[1]) for i in range(k, k + 20)), (2,) * 20)
            for k in range(0, 20_000, 20)
        ]
        began = time.perf_counter()
        for m in messages:
            node.receive(ids[1], m, 0)
        times.append(20_000 / (time.perf_counter() - began))
        return 1

    times: list[float] = []
    best(work)
    return max(times)


def cluster(members: int, frames: int) -> dict[str, float]:
    """A whole cluster in rounds (papers: fanout 4, termination 5, 6 frames a round), no network, no order."""
    config = CastConfig(round=ROUND, in_step=True)
    ids = [member_id(f"m{i}:1", 1) for i in range(members)]
    nodes = {m: make(m, config, random.Random(i)) for i, m in enumerate(ids)}
    for m, node in nodes.items():
        node.start([o for o in ids if o != m], 0, True)
    made = handed = messages = now = 0
    began = time.perf_counter()
    for r in range(1, frames // 6 + config.termination + 2):
        now = r * ROUND
        sends: list[tuple[MemberId, MemberId, CastMessage]] = []
        for i in range(6 if made < frames else 0):
            owner = ids[i % members]
            nodes[owner].broadcast(frame(i % 25, r, owner), now)
            made += 1
        for m, node in nodes.items():
            sends += [(m, o.to, o.message) for o in node.wake(now, None) if isinstance(o, CastSend)]
        for sender, to, message in sends:
            handed += sum(isinstance(o, First) for o in nodes[to].receive(sender, message, now))
        messages += len(sends)
    seconds = time.perf_counter() - began
    copies = sum(n.stats.events_sent for n in nodes.values())
    return {
        "cluster_seconds": seconds,
        "cluster_messages_per_s": messages / seconds,
        "cluster_items_per_s": copies / seconds,
        "cluster_coverage": handed / made / (members - 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=125)
    parser.add_argument("--frames", type=int, default=2000)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    results = {
        "duplicates_per_s_shared_objects": duplicates(wire=False),
        "duplicates_per_s_from_the_wire": duplicates(wire=True),
        "firsts_per_s_rounds": firsts("rounds"),
        "firsts_per_s_eager": firsts("eager"),
        **cluster(args.members, args.frames),
    }
    if args.json:
        print(json.dumps(results))
    else:
        for name, value in results.items():
            print(f"{name:34} {value:14,.3f}" if value < 1000 else f"{name:34} {value:14,.0f}")


if __name__ == "__main__":
    main()
