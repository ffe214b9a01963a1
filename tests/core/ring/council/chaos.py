"""Random chaos for the council, seed by seed: `python -m tests.core.ring.council.chaos COUNT [FIRST]`.

Crashes at any moment, restarts with and without disks, one-way and two-way cuts, partitions, delays of up to three
leases, lost and copied messages, processes that stand still, clocks at the bound of their drift, joins, leaves. Every
step is judged by the invariants. After the last fault everybody is started and wants a ticket: they must get one,
unless the council was lost for good. Not a test.
"""

from __future__ import annotations

import random
import sys
import time
from typing import NamedTuple

from tests.core.ring.council.world import CouncilWorld, names, settings
from tests.core.ring.world import ROUND, Make, Violation
from whence.core.ring import CouncilRing
from whence.core.ring.council import Reform


class Result(NamedTuple):
    took: float | None
    """Rounds from the last fault until everybody had a ticket; None: never."""
    hope: bool
    """The council was not lost for good."""


def chaos(seed: int, make: Make = CouncilRing) -> Result:
    """Raises Violation."""
    r = random.Random(seed)
    config = settings(r.choice([1, 2, 3, 4, 6, 8]), r.choice([1, 1, 2, 3]), r.choice([0.08, 0.25]))
    w = CouncilWorld(config, r.getrandbits(40), make, extreme=r.random() < 0.5)
    suspect, rude = r.choice([1.2, 1.5, 2.5, 2.5]), r.random() < 0.4
    disks = r.choice([0.0, 0.5, 1.0])
    for i, name in enumerate(names(r.randint(2, 8))):
        w.enter(name, r.random() < disks, r.random() < 0.9 or i == 0, i > 0 and r.random() < 0.7)
        if i == 0:
            w.found_by(name)
    w.wants["p0"] = True
    w.run(r.choice([0.5, 3, 8]))
    violence = r.choice([0.2, 0.5, 0.9])
    for _ in range(r.randint(10, 40)):
        hurry(w, suspect, rude)
        if r.random() < violence:
            trouble(w, r)
        w.run(r.expovariate(1.2))
    w.heal()
    for name in w.boots:
        w.start(name)
        w.want(name)
    hurry(w, Reform.SUSPECT, False)
    start = w.now
    ok = w.run(60, w.everybody)
    return Result((w.now - start) / ROUND if ok else None, w.hope())


def hurry(w: CouncilWorld, suspect: float, rude: bool) -> None:
    """Suspect early; and everybody proposes at once."""
    for ring in w.rings.values():
        assert isinstance(ring, CouncilRing)
        ring.reform.SUSPECT = suspect
        if rude:
            ring.reform.urge = 9


def trouble(w: CouncilWorld, r: random.Random) -> None:
    everybody = list(w.boots)
    a, b = r.choice(everybody), r.choice(everybody)
    owners = w.owner_names()
    if owners and r.random() < 0.4:
        a = r.choice(owners)
    kind = r.random()
    if kind < 0.22:
        w.kill(a, r.choice([0, 0.3, 1, 2, 6]) * r.uniform(0.5, 1.5) if r.random() < 0.8 else None)
    elif kind < 0.30:
        w.cut[a, b] = None
    elif kind < 0.38:
        w.cut[a, b] = w.cut[b, a] = None
    elif kind < 0.46:
        w.slow[a, b] = None
    elif kind < 0.52:
        w.sides = {name: r.randrange(2) for name in everybody}
    elif kind < 0.57:
        w.sides[a] = 1 + r.randrange(2)
    elif kind < 0.62:
        w.loss, w.dup, w.jitter = r.choice([0.0, 0.1, 0.3]), r.choice([0.0, 0.1]), r.choice([0.0, 0.1, 0.4])
    elif kind < 0.68:
        w.stand_still(a, r.choice([0.5, 2, 5, 10]) * r.random())
    elif kind < 0.80:
        w.heal()
    elif kind < 0.88:
        w.drop(a)
    elif kind < 0.94:
        w.want(a)
    else:
        w.start(a)


def main(count: int, first: int) -> int:
    began, bad, stuck, lost, took = time.monotonic(), list[str](), list[int](), 0, list[float]()
    for seed in range(first, first + count):
        try:
            result = chaos(seed)
        except Violation as error:
            bad.append(f"{seed}: {str(error).splitlines()[0]}")
            continue
        if result.took is not None:
            took.append(result.took)
        elif result.hope:
            stuck.append(seed)
        else:
            lost += 1
    took.sort()
    half, most, worst = (took[len(took) * p // 100 - (p == 100)] if took else 0.0 for p in (50, 99, 100))
    print(
        f"{count} seeds from {first}: {len(bad)} violations {bad[:3]}, {len(stuck)} stuck {stuck[:8]}; everybody has a "
        f"ticket after {half:.1f} rounds (median), {most:.1f} (99 %), {worst:.1f} at most; "
        f"council lost for good {lost}; {time.monotonic() - began:.0f} s"
    )
    return 1 if bad or stuck else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
