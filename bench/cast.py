"""The speed of cast: duplicates and first copies, rounds, a whole cluster."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import msgspec

from whence.core.cast import CastConfig, EttbGossip, First, Gossip, make
from whence.core.cast.messages import CastMessage
from whence.core.clock import Frame, MemberId, Send, member_id

ROUND = 1_000_000


def frame(ticket: int, first: int, owner: MemberId, tickets: int = 25) -> Frame:
    return Frame.of(ticket, 1, first, owner, ((1, first),) * tickets, [b"x" * 64])


def best(work: Callable[[], int], repeat: int = 3) -> float:
    """Rate, best of several runs."""
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
            sends += [(m, o.to, o.message) for o in node.wake(now, None) if isinstance(o, Send)]
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


def floor() -> float:
    """The lower bound in the same run: looking a key up in a set, and nothing else."""
    keys = [(t, 1, s) for t in range(25) for s in range(1, 801)]
    seen = set(keys)

    def work() -> int:
        return sum(1 for key in keys if key in seen)

    return best(work)


def main() -> list[dict[str, Any]]:
    """Rows for `python -m bench`."""
    bare = floor()
    rows: list[dict[str, Any]] = []
    for what, rate in (
        ("duplicates, the sender's own objects", duplicates(wire=False)),
        ("duplicates, decoded from the wire", duplicates(wire=True)),
        ("first copies, rounds", firsts("rounds")),
        ("first copies, eager", firsts("eager")),
    ):
        rows.append({"what": what, "items_per_s": round(rate), "times_a_bare_lookup": round(bare / rate, 1)})
    rows.append({"what": "125 members in rounds, 2,000 frames, cast alone", **cluster(125, 2000)})
    return rows
