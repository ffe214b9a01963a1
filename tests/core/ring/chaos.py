"""Random chaos for the fault-tolerant ring, seed by seed: `python -m tests.core.ring.chaos COUNT [FIRST [dense]]`.

Each seed draws a ring (tickets, k, members, loss of news), lets everything go wrong for a while, heals, and then
expects the ring to come back: a newcomer gets a free ticket within `recovery_rounds`, or, when the core is empty, the
ring is founded again with a higher epoch; at the end the quiet invariants hold.
"""

from __future__ import annotations

import sys
import time

from tests.core.ring.world import Make, World, config
from whence.core.clock import address_of, boot_of
from whence.core.ring import RingConfig, State
from whence.core.ring.base import told_epoch
from whence.core.ring.neighbours import TolerantRing
from whence.lab.sim.invariants import quiet_violations


def recovery_rounds(config: RingConfig) -> int:
    """Rounds after the last fault within which a newcomer that keeps trying has a free ticket, if a coordinator is
    left, and unless others take them all.

    At worst an edge stays frozen until patience is over, the next predecessor then walks over all tickets, excludes up
    to all of them and waits out TempRounds; the newcomer finds it by asking coordinators at random:
    `patience + 2 (temp(n) + n answers) + 2 probation + 8 rounds of asking for each ticket + 32`."""
    n = config.tickets
    waiting = config.patience_ns + 2 * (config.temp_ns(n) + n * config.answer_ns) + 2 * config.probation_ns
    return waiting // config.round_ns + 8 * n + 32


class Chaos:
    """One seed."""

    def __init__(self, seed: int, dense: bool = False, make: Make = TolerantRing) -> None:
        self.seed = seed
        # the seed alone decides everything: draw the settings from a world's generator
        draw = World(config(2), seed).rng
        self.k = draw.choice([1, 1, 1, 2])
        self.tickets = draw.choice([1, 2, 3, 4, 5, 6, 7, 8, 8, 12])
        self.members = draw.randint(2, 10)
        self.violence = draw.choice([0.05, 0.15, 0.4, 0.8])
        self.dense = dense
        if dense:  # many exclusions at a time in a large ring
            self.k, self.tickets = draw.choice([1, 2, 2, 3]), draw.choice([8, 10, 12])
            self.members, self.violence = draw.randint(8, 14), 0.9
        p = draw.choice([1.0, 1.0, 0.5])
        w = World(config(self.tickets, self.k, exclude_probability=p), draw.getrandbits(32), make=make)
        w.news_loss = draw.choice([0.0, 0.0, 0.1, 0.5, 1.0])
        self.world = w
        self.epoch = 1
        self.faults = 0

    def run(self) -> World:
        w = self.world
        names = [w.add(f"p{i}") for i in range(self.members)]
        w.found(names[0], self.epoch)
        w.run(3)
        for m in names[1:]:
            if w.rng.random() < 0.8:
                w.coordinate(m)
            w.run(w.rng.choice([0, 0.3, 2]))
        for _ in range(w.rng.randint(10, 40)):
            self.trouble()
            w.run(w.rng.expovariate(1.5))
            if not w.owners() and w.rng.random() < 0.3:
                self.found_again()
        w.heal()
        self.recover()
        return w

    def trouble(self) -> None:
        w = self.world
        if w.rng.random() > self.violence:
            return
        self.faults += 1
        members = list(w.procs)
        a, b = w.rng.sample(members, 2) if len(members) > 1 else (members[0], members[0])
        for m in members:  # aim at coordinators and their neighbours rather than at bystanders
            if w.rng.random() < 0.5 and w.ring(m).ctx.edge is not None and w.ring(m).ctx.edge.succ.member in w.procs:
                a, b = m, w.ring(m).ctx.edge.succ.member
        kind = w.rng.random()
        if self.dense and w.rng.random() < 0.5:
            kind = w.rng.uniform(0.12, 0.54)
        if kind < 0.12 and len(members) > 2:
            w.crash(a)
            if w.rng.random() < 0.7:
                reborn = w.add(address_of(a), boot_of(a) + 1)
                w.coordinate(reborn)
        elif kind < 0.30:
            w.note(f"CUT {a} -> {b}")
            w.cut[a, b] = None
        elif kind < 0.42:
            w.note(f"CUT {a} -- {b}")
            w.cut[a, b] = w.cut[b, a] = None
        elif kind < 0.54:
            w.note(f"SLOW {a} -> {b}")
            w.slow[a, b] = None
        elif kind < 0.60:
            for m in members:
                w.side[m] = w.rng.randrange(2)
            w.note(f"PARTITION {w.side}")
        elif kind < 0.64:
            w.side[a] = 1 + w.rng.randrange(2)
            w.note(f"ISOLATED {a}")
        elif kind < 0.78:
            w.heal()
        elif kind < 0.90:
            w.note(f"RESIGN {a}")
            w.resign(a)
        else:
            w.coordinate(w.rng.choice(members))

    def found_again(self) -> bool:
        """By the designated founder (the first member there is), with an epoch above all earlier ones."""
        w = self.world
        founder = next(iter(w.procs))
        if any(w.ring(m).state not in (State.OUT, State.JOINING) for m in w.procs):
            return False
        self.epoch = told_epoch(max([self.epoch, *(ring.epoch for ring in w.rings.values())]))
        w.note(f"FOUND {founder} {self.epoch}")
        w.introduce(founder)
        w.found(founder, self.epoch)
        return True

    def served(self, newcomer: str) -> bool:
        w = self.world
        return w.ring(newcomer).state is State.OWNER or len(w.owners()) >= self.tickets

    def recover(self) -> None:
        """After the last fault: everybody who wants one has a ticket, as far as there are tickets."""
        w = self.world
        for m in w.procs:
            w.coordinate(m)  # nobody resigns any more
        w.run(12)
        limit = recovery_rounds(w.config)
        newcomer = w.add("newcomer")
        w.coordinate(newcomer)
        start = w.now
        while not self.served(newcomer):
            if not w.owners() and self.found_again():  # the core is empty: only now the operator founds again
                start = w.now
            if w.now > start + limit * w.config.round_ns or self.epoch > 100:
                raise AssertionError(f"seed {self.seed}: no ticket in {limit} rounds\n" + "\n".join(w.log[-60:]))
            w.run(8, lambda: self.served(newcomer))
        self.took = (w.now - start) / w.config.round_ns
        self.limit = limit
        for m in w.procs:
            if w.ring(m).state is State.JOINING:
                w.resign(m)
        quiet = w.run(limit, lambda: not quiet_violations(w.rings))
        w.run(2)
        if not quiet or quiet_violations(w.rings):
            raise AssertionError(f"seed {self.seed}: {quiet_violations(w.rings)}\n" + "\n".join(w.log[-60:]))


def main(count: int, first: int, dense: bool) -> int:
    began, bad, total, worst = time.monotonic(), 0, {}, 0.0
    for seed in range(first, first + count):
        chaos = Chaos(seed, dense)
        try:
            chaos.run()
            worst = max(worst, chaos.took / chaos.limit)
        except Exception as error:
            bad += 1
            print(f"seed {seed} k={chaos.k} n={chaos.tickets} m={chaos.members}: {type(error).__name__} {error}\n")
        for name, number in chaos.world.counts.items():
            total[name] = total.get(name, 0) + number
        total["faults"] = total.get("faults", 0) + chaos.faults
        if (seed - first) % 500 == 499:
            print(f"{seed + 1 - first} seeds, {bad} bad, {time.monotonic() - began:.0f} s", file=sys.stderr)
    print(f"{count} seeds from {first}: {bad} bad; {total}; slowest recovery {worst:.2f} of the limit")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0, "dense" in sys.argv))
