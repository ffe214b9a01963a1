"""Events per second through one member's order layer, and what a causal check costs per event."""

from __future__ import annotations

import random
import time

from whence.core.clock import NEVER, Frame, Incarnation
from whence.core.order import OrderConfig, OrderContext, TicketOrdering

MS = 1_000_000


def _ordering(order: str, tickets: int) -> TicketOrdering:
    config = OrderConfig(
        order=order,  # type: ignore[arg-type]
        tickets=tickets,
        time_to_terminate_ns=100 * MS,
        time_to_recover_ns=100 * MS,
        buffer=1024,
        hold=1024,
        abandon_ns=10_000 * MS,
        memory_ns=10_000 * MS,
    )
    o = TicketOrdering(OrderContext("me#1", config, random.Random(1), members=list, sample=lambda k: []))
    o.begin(0)
    return o


def _stream(tickets: int, frames: int, batch: int) -> list[Frame]:
    """Round-robin publishers, each frame depending on all before it: the densest causality there is."""
    inc = Incarnation(1, 0, 1).packed
    clock = [NEVER] * tickets
    out = []
    for i in range(frames):
        t = i % tickets
        first = clock[t][1] + 1
        out.append(Frame.of(t, inc, first, f"p{t}#1", tuple(clock), [b"x" * 64] * batch))
        clock[t] = (inc, first + batch - 1)
    return out


def _receive_seconds(order: str, tickets: int, batch: int, frames: int = 20_000) -> float:
    stream = _stream(tickets, frames, batch)
    o = _ordering(order, tickets)
    start = time.perf_counter()
    for frame in stream:
        o.receive(frame, "p#1", 1, 0)
    seconds = time.perf_counter() - start
    assert o.stats.delivered == frames * batch
    return seconds


def _floor_seconds(tickets: int, frames: int = 20_000) -> float:
    """The lower bound in the same run: a per-publisher last-seq test and a list append, no causality at all."""
    stream = _stream(tickets, frames, 1)
    last = [0] * tickets
    out: list[Frame] = []
    start = time.perf_counter()
    for frame in stream:
        if frame.first > last[frame.ticket]:
            last[frame.ticket] = frame.first
            out.append(frame)
    return time.perf_counter() - start


def main() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for tickets in (5, 25):
        floor = min(_floor_seconds(tickets) for _ in range(3))
        for order in ("fifo", "causal", "reliable"):
            for batch in (1, 20):
                seconds = min(_receive_seconds(order, tickets, batch) for _ in range(3))
                rows.append(
                    {
                        "what": f"{order}, {tickets} tickets, {batch} events a frame",
                        "value": round(20_000 * batch / seconds),
                        "unit": "events/s",
                        "ratio": round(seconds / floor / batch, 2),
                        "against": "time per event of a bare last-seq test",
                    }
                )
    return rows
