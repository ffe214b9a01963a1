"""What survives what: `python -m tests.core.ring.council.survival COUNT [FIRST [NAME...]]` prints the table of
docs/ring.md.

Each row is a situation in which nobody helps. A seed comes back when somebody can publish and everybody who wants a
ticket has one at the end. `IMPOSSIBLE` are rows in which whoever is left cannot tell a crash from a cut: they must not
come back. Not a test.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

from tests.core.ring.council.world import CouncilWorld, form, names
from tests.core.ring.world import ROUND, Make
from whence.core.clock import address_of
from whence.core.ring import CouncilRing


class Outcome(NamedTuple):
    gap: float
    """Rounds in which nobody could publish."""
    back: float | None
    """Rounds after which everybody had a ticket, for good; None: not at the end."""


Situation = Callable[[int, Make], Outcome]
STEP = 0.05


def judge(w: CouncilWorld, rounds: float = 20.0) -> Outcome:
    start, gap, back = w.now, 0.0, None
    while w.now < start + rounds * ROUND:
        w.run(STEP)
        some = bool(w.owners())
        gap += 0 if some else STEP
        if not (some and w.everybody()):
            back = None
        elif back is None:
            back = (w.now - start) / ROUND
    return Outcome(gap, back)


def first(w: CouncilWorld) -> str:
    return address_of(w.newest()[0].member)


def two(victim: str, readers: int = 0, disk: bool = False, back: float | None = None) -> Situation:
    def run(seed: int, make: Make = CouncilRing) -> Outcome:
        w = form(seed, 2, readers, disk, make=make)
        name = first(w)
        if name not in ("p0", "p1"):
            name = w.rng.choice(["p0", "p1"])
        if victim == "other":
            name = "p1" if name == "p0" else "p0"
        w.kill(name, back)
        return judge(w)

    return run


def three(how: str, last: str = "", readers: int = 0, disk: bool = False, back: float | None = None) -> Situation:
    def run(seed: int, make: Make = CouncilRing) -> Outcome:
        w = form(seed, 3, readers, disk, make=make)
        dead = w.rng.sample(names(3), 2)
        w.kill(dead[0], back)
        if how == "one by one":
            w.run(6)
            if last:
                rest = [n for n in names(3) if n != dead[0]]
                dead[1] = next(n for n in rest if (n == first(w)) == (last == "first"))
        w.kill(dead[1], back)
        return judge(w)

    return run


def all_publishers(publishers: int, readers: int) -> Situation:
    def run(seed: int, make: Make = CouncilRing) -> Outcome:
        w = form(seed, publishers, readers, make=make)
        for name in names(publishers):
            w.kill(name)
        for name in list(w.lives):
            w.want(name)
        return judge(w)

    return run


def cut(publishers: int, readers: int = 0, k: int = 3) -> Situation:
    """Halves, for 8 rounds; the readers are on a random side each. The gap counts over both sides."""

    def run(seed: int, make: Make = CouncilRing) -> Outcome:
        w = form(seed, publishers, readers, k=k, make=make)
        half = w.rng.sample(names(publishers), publishers // 2)
        w.sides = {name: int(name in half) for name in names(publishers)}
        w.sides |= {name: w.rng.randrange(2) for name in w.lives if name not in w.sides}
        during = judge(w, 8).gap
        w.heal()
        after = judge(w, 12)
        return Outcome(during + after.gap, after.back)

    return run


def founder_gone(publishers: int) -> Situation:
    def run(seed: int, make: Make = CouncilRing) -> Outcome:
        w = form(seed, publishers, make=make)
        w.kill("p0")
        return judge(w)

    return run


def rolling(publishers: int, disk: bool, pause: float = 4.0, k: int = 3) -> Situation:
    def run(seed: int, make: Make = CouncilRing) -> Outcome:
        w = form(seed, publishers, disks=disk, k=k, make=make)
        gap = 0.0
        for name in names(publishers):
            w.kill(name, back=w.rng.choice([0.3, 1, 2]))
            gap += judge(w, pause).gap
        after = judge(w)
        return Outcome(gap + after.gap, after.back)

    return run


def at_once(publishers: int, dead: int, back: tuple[float, float] | None = None, disk: bool = False) -> Situation:
    def run(seed: int, make: Make = CouncilRing) -> Outcome:
        w = form(seed, publishers, disks=disk, make=make)
        for name in w.rng.sample(names(publishers), dead):
            w.kill(name, None if back is None else w.rng.uniform(*back))
        return judge(w)

    return run


def leaves(publishers: int) -> Situation:
    """All but one leave for good, one after the other, and say so."""

    def run(seed: int, make: Make = CouncilRing) -> Outcome:
        w = form(seed, publishers, make=make)
        for name in w.rng.sample(names(publishers), publishers - 1):
            w.drop(name)
            me = w.lives[name]
            w.act(me, lambda ring, now: ring.retire(now))
            assert w.run(20, lambda me=me: w.ring(me).retired), "not let go"
            w.kill(name)
        return judge(w)

    return run


SITUATIONS: dict[str, Situation] = {
    "2 publishers, the other one killed for good": two("other"),
    **{f"- it is back after {b} rounds, no disk": two("other", back=b) for b in (0.3, 1, 2, 6)},
    **{
        f"2, the first one back after {b} rounds with its disk": two("first", disk=True, back=b) for b in (0.3, 1, 2, 6)
    },
    "2 and 1 receive-only, the first killed for good": two("first", 1),
    "2 and 1 receive-only, the other killed for good": two("other", 1),
    "3, two killed one by one, the first is left": three("one by one", "other"),
    "3 and 2 receive-only, two killed one by one": three("one by one", readers=2),
    "3, two killed one by one, back after 2, no disk": three("one by one", back=2),
    "3 and 2 receive-only, two killed at once": three("at once", readers=2),
    "3, two killed at once, back after 2 with disks": three("at once", disk=True, back=2),
    "2 killed, 5 receive-only now want to publish": all_publishers(2, 5),
    "3 killed, 5 receive-only now want to publish": all_publishers(3, 5),
    "3 killed, 20 receive-only now want to publish": all_publishers(3, 20),
    "cut 2|2, then healed": cut(4),
    "cut 3|3, then healed": cut(6),
    "cut 2|2 with 1 receive-only": cut(4, 1),
    "cut 3|3 with 1 receive-only": cut(6, 1),
    "cut 3|3, k = 1": cut(6, k=1),
    "founder of 3 killed for good": founder_gone(3),
    "founder of 5 killed for good": founder_gone(5),
    "rolling restart of 5, no disk": rolling(5, False),
    "rolling restart of 5, with disks": rolling(5, True),
    "rolling restart of 3, no disk, k = 1": rolling(3, False, 6.0, 1),
    "all 4 restarted at once, with disks": at_once(4, 4, (0.5, 3), True),
    "3 of 7 killed at once for good": at_once(7, 3),
    "4 of 7 at once, back after 2 with disks": at_once(7, 4, (2, 2), True),
    "4, all but one leave": leaves(4),
}

IMPOSSIBLE: dict[str, Situation] = {
    "2, the first killed for good, no disk": two("first"),
    "2, the first back after 0.3 rounds, no disk": two("first", back=0.3),
    "3, one by one, the first goes last, no disk": three("one by one", "first"),
    "3, two killed at once for good, no disk": three("at once"),
    "all 4 restarted at once, no disk": at_once(4, 4, (0.5, 3)),
    "4 of 7 killed at once for good": at_once(7, 4),
}


def main(count: int, start: int, chosen: list[str]) -> int:
    wrong = 0
    for name, situation in {**SITUATIONS, **IMPOSSIBLE}.items():
        if chosen and name not in chosen:
            continue
        outcomes = [situation(seed, CouncilRing) for seed in range(start, start + count)]
        gaps, backs = sorted(o.gap for o in outcomes), sorted(o.back for o in outcomes if o.back is not None)
        wrong += len(backs) if name in IMPOSSIBLE else count - len(backs)
        said = f"{name:52} {len(backs):5} of {count}"
        if backs:
            said += f"  gap {gaps[len(gaps) // 2]:4.1f} / {gaps[-1]:4.1f}"
            said += f"  everybody {backs[len(backs) // 2]:4.1f} / {backs[-1]:4.1f}"
        lost = [start + i for i, o in enumerate(outcomes) if (o.back is None) == (name in SITUATIONS)]
        print(said, lost[:8] or "", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0, sys.argv[3:]))
