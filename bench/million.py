"""A million members: deliveries a second of gossip and trees with causal order and recovery on top, and what a delivery
costs from 10^4 members to 10^6.

The limit is measured in the same run: the two hashes and the one touch of a random member's state that each copy of
gossip needs, on one thread. Ratios are of processor time, because the machine may have other work too. The runs are
those of `whence scale gossip`.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from whence.lab.scale import GossipResult, GossipSettings, run_gossip
from whence.lab.scale.flood import Manner, targets
from whence.lab.scale.jit import kernel

FANOUT, LOSS = 16, 0.01
EVENTS = {10_000: 400, 100_000: 80, 1_000_000: 24}
"""Members -> events: enough to fill the batches."""


@kernel
def touches(state: Any, key: Any, manner: Any, to: Any, words: Any) -> None:
    """Each member sends once, and nobody does anything with it."""
    for p in range(len(state)):
        targets(p, 0, key, manner, len(state), to, words)
        for j in range(manner.fanout):
            state[to[j]] += words[j] & 1


def limit(members: int, repeat: int = 3) -> float:
    """Nanoseconds of processor time for a copy, at least."""
    state, to, words = np.zeros(members, np.uint16), np.empty(64, np.int64), np.empty(64, np.uint32)
    given = (state, np.uint64(0x9E3779B97F4A7C15), Manner(FANOUT, 8, 0, 0, 0, np.uint32(7)), to, words)
    touches(*given)
    spent = []
    for _ in range(repeat):
        began = time.process_time()
        touches(*given)
        spent.append(time.process_time() - began)
    return min(spent) / members / FANOUT * 1e9


def cost(found: GossipResult) -> float:
    """Nanoseconds of processor time for a delivery."""
    return found.cpu_seconds / max(1, found.delivered) * 1e9


def rows_of(mode: str, loss: float) -> list[dict[str, Any]]:
    """From 10^4 members to 10^6, on one thread: threads burn time waiting for each other on a busy machine. The last
    run again on all threads, for the clock on the wall."""
    rows: list[dict[str, Any]] = []
    first = 0.0
    how: dict[str, Any] = {"mode": mode, "loss": loss, "publishers": 8, "fanout": FANOUT if mode == "eager" else 0}
    for members, events in EVENTS.items():
        settings = GossipSettings(members=members, events=events * (1 if mode == "eager" else 4), **how)
        found = run_gossip(settings, threads=1)
        first = first or cost(found)
        row = {
            "what": f"{mode}, loss {loss:g}, causal, recovery: {members:,} members, {found.events:,} events",
            "cpu_ns_per_delivery": round(cost(found), 1),
            "times_10^4_members": round(cost(found) / first, 2),
            "cpu_s_per_1e9_deliveries": round(cost(found)),
            "lost": found.lost,
            "memory_mb": found.memory_mb,
        }
        if mode == "eager":
            bare = limit(members)
            row |= {"ns_per_copy": round(cost(found) / FANOUT, 2), "bare_ns_per_copy": round(bare, 2)}
        if members == max(EVENTS):
            both = run_gossip(settings)
            row |= {"threads": both.threads, "deliveries_per_s": round(both.deliveries_per_s)}
        rows.append(row)
    return rows


def main() -> list[dict[str, Any]]:
    """Rows for `python -m bench`."""
    return [*rows_of("eager", LOSS), *rows_of("tree", 0.0), *rows_of("tree", LOSS)]
