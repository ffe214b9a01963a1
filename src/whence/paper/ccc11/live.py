"""Figures 4 and 5 on real sockets: members on loopback, several in a process, the same settings, load and measures."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import fmean
from typing import Any

import msgspec

from whence.config import MS
from whence.errors import UsageError
from whence.order.sizing import buffer_size
from whence.paper.ccc11.evaluation import FAILED, FANOUT, HISTORY, MAX_EVENTS, PAYLOAD, TERMINATION, VARIANTS
from whence.paper.ccc11.live_members import Counts, Task
from whence.paper.frame import Context, Row

ROUND_MS = 250.0
"""Long against what a busy machine holds a process up."""
DRAIN = 4 * TERMINATION
"""Rounds after the load in which events are still delivered: Theorem 5.1's T."""

BUSY = (
    "Other work on the machine: a process that wants to go on waits for a processor, at each of the two or three hops. "
    "`overslept_rounds` is by how much a sleep was too long, on average."
)
"""Why latencies live may be above the simulator's."""


class Live(msgspec.Struct, frozen=True, kw_only=True):
    """How large the live cluster is."""

    members: int
    processes: int
    rounds: int
    coordinators: int = 0
    """Who publish; 0: all."""

    @property
    def publishing(self) -> int:
        return self.coordinators or self.members


def measure(context: Context, size: Live, loads: Sequence[float], variants: Sequence[str]) -> list[Row]:
    """One row a variant and load; `load` in events of all a round."""
    rows: list[Row] = []
    steps = len(variants) * len(loads)
    for variant in variants:
        with cluster(size, variant, max(loads), context.seed) as workers:
            for load in loads:
                if context.tell:
                    context.tell(len(rows) / steps, f"live: {size.members} members, {variant}, {load:g} events a round")
                rows.append(_one(workers, size, variant, load, len(rows)))
    return rows


def _one(workers: list[subprocess.Popen[str]], size: Live, variant: str, load: float, number: int) -> Row:
    _all(workers, f"begin {number}")
    _all(workers, f"run {number} {load / size.publishing} {size.rounds}")
    time.sleep(DRAIN * ROUND_MS / 1e3)
    counts = [msgspec.convert(found, Counts) for found in _all(workers, f"count {number}")]
    published = sum(c.published for c in counts)
    pairs = published * (size.members - 1)
    delivered = sum(c.delivered for c in counts)
    latencies = sorted(us for c in counts for us in c.latencies_us)
    lost, inversions = 1 - delivered / max(1, pairs), sum(c.inversions for c in counts) / max(1, delivered)
    mean = fmean(latencies) / 1e3 if latencies else 0.0
    overslept = [us for c in counts for us in c.overslept_us] or [0]
    return {
        "variant": variant,
        "load": load,
        "round_ms": ROUND_MS,
        "members": size.members,
        "coordinators": size.publishing,
        "processes": size.processes,
        "events": published,
        "pairs": pairs,
        "lost": lost,
        "inversions": inversions,
        "lost_ordered": lost + inversions,
        "latency_ms": mean,
        "latency_p99_ms": latencies[len(latencies) * 99 // 100] / 1e3 if latencies else 0.0,
        "latency_rounds": mean / ROUND_MS,
        "asked": sum(c.asked for c in counts),
        "answered": sum(c.recovered for c in counts),
        "overslept_rounds": fmean(overslept) / 1e3 / ROUND_MS,
        "bytes_a_round": sum(c.sent_bytes for c in counts) / size.members / size.rounds,
    }


@contextmanager
def cluster(size: Live, variant: str, load: float, seed: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes with members, of which as many have tickets as publish. The first founds; the others come when it
    stands."""
    order, recovery = VARIANTS[variant]
    each, more = divmod(size.members, size.processes)
    secret = secrets.token_hex(16)
    settings: dict[str, Any] = {
        "members": size.members,
        "mode": "rounds",
        "round_ns": int(ROUND_MS * MS),
        "recovery": recovery,
        "k": 4,
        "fanout": FANOUT,
        "termination": TERMINATION,
        "max_events": MAX_EVENTS,
        "history": HISTORY,
        "time_to_terminate": float(TERMINATION),
        "time_to_recover": float(TERMINATION),
        "buffer": buffer_size([load], 4 * TERMINATION),
        "rate": load,
    }
    workers: list[subprocess.Popen[str]] = []
    seeds: list[str] = []
    left = size.publishing
    try:
        for i in range(size.processes):
            members = each + (i < more)
            publishing = min(members, left)
            left -= publishing
            task = Task(
                members=members,
                coordinators=publishing,
                tickets=size.publishing,
                order=order,
                settings=settings,
                round_ms=ROUND_MS,
                loss=FAILED,
                payload=max(40, PAYLOAD),
                seeds=seeds[:3],
                secret=secret,
                seed=seed * 1000 + i,
            )
            command = [sys.executable, "-m", "whence.paper.ccc11.live_members", msgspec.json.encode(task).decode()]
            workers.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            seeds += _answer(workers[-1])
        yield workers
    finally:
        for worker in workers:
            if worker.stdin is not None:
                worker.stdin.close()
        for worker in workers:
            try:
                worker.wait(30)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()


def _all(workers: list[subprocess.Popen[str]], command: str) -> list[Any]:
    """The same command to all, at once; their answers."""
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write(f"{command}\n")
        worker.stdin.flush()
    return [_answer(worker) for worker in workers]


def _answer(worker: subprocess.Popen[str]) -> Any:
    assert worker.stdout is not None
    line = worker.stdout.readline()
    if not line:
        raise UsageError(f"a process of the live cluster ended (exit code {worker.wait()}); its messages are above")
    return json.loads(line)
