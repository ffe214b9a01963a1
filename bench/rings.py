"""The three rings beside each other: messages of the ring, and how long a newcomer waits for a ticket. Simulated, so
the same on every machine: links of about 2 ms, rounds of the ring of 1 s, k = 3."""

from __future__ import annotations

import random
from statistics import median
from typing import Any

import msgspec

from whence import ports
from whence.clock import MemberId
from whence.config import MS, Config
from whence.member import Member
from whence.ring.messages import RingMessage
from whence.sim.actions import Coordinate
from whence.sim.run import run
from whence.sim.scenario import parse

SIZES = (2, 4, 8)
"""Coordinators before the newcomer."""
SEEDS = 3
ROUND = 1000 * MS
WANTS = 35 * ROUND
"""When the newcomer asks: the ring stands."""
WINDOW = (22, 32)
"""Rounds in which messages are counted."""

SCENARIO = """
members = {members}
round = "250ms"
duration = "45s"
settle = "5s"
[network]
latency = "normal"
mean = "2ms"
sd = "500us"
[cluster]
ring = "{ring}"
ring_k = 3
tickets = 32
coordinators = {coordinators}
order = "causal"
"""


class Counting(Member):
    """A member whose messages of the ring are counted."""

    sent: list[int]
    owned: dict[str, int]

    def handle(self, input: ports.Input, now: int) -> list[ports.Output]:
        out = super().handle(input, now)
        if WINDOW[0] * ROUND <= now < WINDOW[1] * ROUND:
            self.sent[0] += sum(isinstance(o, ports.Send) and isinstance(o.message, RingMessage) for o in out)
        for o in out:
            if isinstance(o, ports.Ticket) and o.change == "owner":
                self.owned.setdefault(self.me, now)
        return out


def measure(ring: str, coordinators: int, seed: int) -> tuple[float, float]:
    """Messages of the ring per coordinator and ring round; seconds until the newcomer has a ticket."""
    sent, owned = [0], dict[str, int]()

    def make(me: MemberId, config: Config, rng: random.Random, checkpoint: bytes | None) -> Member:
        times = msgspec.structs.replace(config.ring, round_ns=ROUND, delta_ns=ROUND // 4)
        member = Counting(me, msgspec.structs.replace(config, ring=times), rng, checkpoint)
        member.sent, member.owned = sent, owned
        return member

    newcomer = f"n{coordinators}"
    loaded = parse(SCENARIO.format(ring=ring, members=coordinators + 1, coordinators=coordinators), "rings.toml")
    loaded = msgspec.structs.replace(loaded, faults=(Coordinate(at=WANTS, who=newcomer),))
    run(loaded, seed, make=make)
    rounds = WINDOW[1] - WINDOW[0]
    return sent[0] / coordinators / rounds, (owned[f"{newcomer}#1"] - WANTS) / 1e9


def main() -> list[dict[str, Any]]:
    rows = []
    for ring in ("council", "neighbours", "basic"):
        for coordinators in SIZES:
            found = [measure(ring, coordinators, seed) for seed in range(1, SEEDS + 1)]
            rows.append(
                {
                    "what": f"{ring}, {coordinators} coordinators",
                    "ring messages per coordinator and round": median(sent for sent, _ in found),
                    "ms to a ticket, median": 1000 * median(wait for _, wait in found),
                    "worst": 1000 * max(wait for _, wait in found),
                }
            )
    return rows
