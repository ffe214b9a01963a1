"""The three rings beside each other: messages of the ring, how long a newcomer waits for a ticket, and what each
survives when nobody helps. Simulated, so the same on every machine: links of about 2 ms, rounds of the ring of 1 s,
k = 3. `python -m bench rings` prints the table; `python -m bench.rings FILE.svg` draws it, too."""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import msgspec

from whence.core import ports
from whence.core.clock import MemberId
from whence.core.config import MS, Config
from whence.core.member import Member
from whence.core.ring.messages import RingMessage
from whence.lab.sim.actions import Action, CoordinateAction, Crash, Partition
from whence.lab.sim.run import play, run
from whence.lab.sim.scenario import parse
from whence.lab.sim.world import World

RINGS = ("council", "neighbours")
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
operator = "1h"  # nobody helps
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
    loaded = msgspec.structs.replace(loaded, faults=(CoordinateAction(at=WANTS, who=newcomer),))
    run(loaded, seed, make=make)
    rounds = WINDOW[1] - WINDOW[0]
    return sent[0] / coordinators / rounds, (owned[f"{newcomer}#1"] - WANTS) / 1e9


class Situation(NamedTuple):
    publishers: int
    readers: int
    faults: tuple[Action, ...]
    since: int = WANTS
    """From when on it counts."""


AFTER = 20
"""Rounds that are looked at."""
SITUATIONS = {
    "2, the other one killed": Situation(2, 0, (Crash(at=WANTS, who="n1"),)),
    "2, the first one back\nafter 2 rounds, with its disk": Situation(
        2, 0, (Crash(at=WANTS, who="n0", lasts=2 * ROUND, disk=True),)
    ),
    "3, two killed\n8 rounds apart": Situation(
        3, 0, (Crash(at=WANTS, who="n2"), Crash(at=WANTS + 8 * ROUND, who="n1")), WANTS + 8 * ROUND
    ),
    "2 killed, 5 readers\nnow want to publish": Situation(
        2,
        5,
        (
            *(Crash(at=WANTS, who=f"n{n}") for n in range(2)),
            *(CoordinateAction(at=WANTS + 1, who=f"n{n}") for n in range(2, 7)),
        ),
    ),
    "4, cut 2|2 for 20 rounds": Situation(4, 0, (Partition(at=WANTS, who=("n0", "n1"), lasts=AFTER * ROUND),)),
    "4, all restarted at once,\nwith disks": Situation(
        4, 0, tuple(Crash(at=WANTS, who=f"n{n}", lasts=ROUND, disk=True) for n in range(4))
    ),
    "8, one killed": Situation(8, 0, (Crash(at=WANTS, who="n7"),)),
}


def outlives(ring: str, situation: Situation, seed: int) -> float:
    """Share of the rounds after the fault in which somebody could publish."""
    members = situation.publishers + situation.readers
    text = SCENARIO.format(ring=ring, members=members, coordinators=situation.publishers)
    loaded = parse(text.replace('"45s"', '"70s"'), "rings.toml")
    loaded = msgspec.structs.replace(loaded, faults=situation.faults)
    disks = any(isinstance(fault, Crash) and fault.disk for fault in situation.faults)
    could = []

    def make(me: MemberId, config: Config, rng: random.Random, checkpoint: bytes | None) -> Member:
        times = msgspec.structs.replace(config.ring, round_ns=ROUND, delta_ns=ROUND // 4)
        return Member(me, msgspec.structs.replace(config, ring=times), rng, checkpoint, disk=disks)

    world = World(loaded, seed, make=make)

    def look() -> None:
        all_of_them = [one for host in world.hosts.values() for one in host.instances.values()]
        could.append(any(one.member.ring.owns_at(one.host.clock.at(world.now)) for one in all_of_them))

    for quarter in range(4 * AFTER):
        world.plan(situation.since + (quarter + 1) * ROUND // 4, look)
    violation = play(world)
    if violation is not None:
        raise AssertionError(f"{ring}, seed {seed}: {violation}")
    return sum(could) / len(could)


def main() -> list[dict[str, Any]]:
    rows = []
    for ring in RINGS:
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
        for name, situation in SITUATIONS.items():
            shares = [outlives(ring, situation, seed) for seed in range(1, SEEDS + 1)]
            said = " ".join(name.split())
            rows.append({"what": f"{ring}: {said}", f"% of {AFTER} rounds with a publisher": 100 * median(shares)})
    return rows


def draw(rows: list[dict[str, Any]], to: Path) -> None:
    """Three panels: messages, time to a ticket, what survives what."""
    import matplotlib as mpl  # the extra `paper`
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 6.6), layout="constrained")
    parts = figure.subplot_mosaic([["messages", "wait"], ["survives", "survives"]])
    colours = dict(zip(RINGS, ("#1b6ca8", "#e08e0b", "#8a8a8a"), strict=True))
    by_name = {row["what"]: row for row in rows}
    for at, ring in enumerate(RINGS):
        sizes = [by_name[f"{ring}, {n} coordinators"] for n in SIZES]
        style = {"color": colours[ring], "marker": "os^"[at], "label": ring}
        parts["messages"].plot(SIZES, [row["ring messages per coordinator and round"] for row in sizes], **style)
        parts["wait"].plot(SIZES, [row["ms to a ticket, median"] for row in sizes], **style)
        shares = [by_name[f"{ring}: {' '.join(name.split())}"] for name in SITUATIONS]
        bars = parts["survives"].bar(
            [n + (at - 1) * 0.27 for n in range(len(SITUATIONS))],
            [row[f"% of {AFTER} rounds with a publisher"] for row in shares],
            0.25,
            color=colours[ring],
            label=ring,
        )
        parts["survives"].bar_label(bars, fmt="%.0f", fontsize=8)
    for name, title in (("messages", "ring messages per coordinator and round"), ("wait", "ms to a ticket (median)")):
        parts[name].set(title=title, xlabel="coordinators", xticks=SIZES)
        parts[name].set_ylim(0, 1.1 * parts[name].get_ylim()[1])
        parts[name].legend(frameon=False)
    parts["survives"].set(title=f"% of the {AFTER} rounds after the fault in which somebody can publish", ylim=(0, 118))
    parts["survives"].set_xticks(range(len(SITUATIONS)), list(SITUATIONS), fontsize=8)
    for part in parts.values():
        part.spines[["top", "right"]].set_visible(False)
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "whence"}):
        figure.savefig(to, metadata={"Date": None} if to.suffix == ".svg" else None)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.rings", description=__doc__)
    parser.add_argument("figure", type=Path, help="where to draw it (.svg or .png)")
    given = parser.parse_args()
    measured = main()
    for one in measured:
        print(json.dumps(one), flush=True)
    draw(measured, given.figure)
