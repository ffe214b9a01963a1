"""Is there a ticket for everybody who wants one, unaided, soon after the last fault? Scenario by scenario, seed by
seed: `python -m tests.core.ring.liveness COUNT [FIRST [NAME...]]`.

Each scenario forms a ring, hurts it, and then only waits: nobody founds again but the designated founder at its own
restart. An application takes part: whoever loses a ticket resigns and asks again at once, as a `Publisher` does.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from tests.core.ring.world import ROUND, World
from whence.core.clock import MemberId, address_of, boot_of
from whence.core.ring import RingConfig
from whence.core.ring.context import Lost

LIVE = {"k": 3, "delta_ns": ROUND // 4}
"""The ring of a live cluster (`whence.live.net.entry.Settings`): delta is a quarter of a round."""
LIMIT = 30
"""Rounds after the last fault within which everybody has a ticket again."""


class Liveness:
    """One scenario under one seed."""

    def __init__(self, seed: int, tickets: int = 8, **settings: object) -> None:
        config = RingConfig(tickets=tickets, round_ns=ROUND, **{**LIVE, **settings})  # type: ignore[arg-type]
        self.world = World(config, seed)
        self.rng = self.world.rng
        self.names: dict[str, MemberId] = {}
        self.heeded = 0
        self.epoch = 1

    # --- the application, and the hands that start and kill ---

    def apply(self) -> None:
        """Whoever has lost its ticket since the last look resigns and asks again."""
        w = self.world
        for _, member, output in w.outputs[self.heeded :]:
            if isinstance(output, Lost) and member in w.procs:
                w.at(w.now + self.rng.randrange(ROUND // 20), w.resign, member)
                w.at(w.now + ROUND // 20, self.ask_again, member)
        self.heeded = len(w.outputs)

    def ask_again(self, member: MemberId) -> None:
        if member in self.world.procs:
            self.world.coordinate(member)

    def run(self, rounds: float, until: Callable[[], bool] | None = None) -> bool:
        def look() -> bool:
            self.apply()
            return until is not None and until()

        return self.world.run(rounds, look)

    def start(self, name: str, boot: int = 1, found: bool = False) -> MemberId:
        w = self.world
        member = self.names[name] = w.add(name, boot)
        if found:
            w.introduce(member)
            w.found(member, self.epoch)
            self.epoch += 1
        else:
            w.coordinate(member)
        return member

    def restart(self, name: str, after: float) -> None:
        """Kill it; a new life begins so many rounds later. The designated founder is told so in every life."""
        w = self.world
        member = self.names[name]
        w.crash(member)
        found = name == "p0"
        w.at(w.now + int(after * ROUND), self.start, address_of(member), boot_of(member) + 1, found)

    def own(self, members: list[MemberId] | None = None) -> bool:
        w = self.world
        owners = w.owners()
        return all(m in owners for m in (list(w.procs) if members is None else members))

    def form(self, members: int, spacing: float = 0.2) -> None:
        self.start("p0", found=True)
        assert self.run(20, self.own)
        for i in range(1, members):
            self.start(f"p{i}")
            self.run(self.rng.uniform(0, spacing))
        if not self.run(60, self.own):
            raise AssertionError("the ring did not form\n" + self.log())

    def log(self) -> str:
        dull = ("Rejected", "Announce", "CLEAVE")
        return "\n".join([line for line in self.world.log if not any(word in line for word in dull)][-60:])

    def recovers(self, limit: float = LIMIT) -> float:
        """The rounds until everybody there has a ticket."""
        w = self.world
        start = w.now
        self.run(2)  # by then whoever has nobody to vouch for it knows
        if not self.run(limit, lambda: len(w.procs) >= 1 and self.own()):
            states = {m: s.value for m, s in w.states().items()}
            raise AssertionError(f"{states}\n" + self.log())
        took = (w.now - start) / ROUND
        self.run(4)  # and keeps it
        if not self.run(8, self.own):
            raise AssertionError("lost again\n" + self.log())
        return took


def crash_after_formation(seed: int) -> float:
    """One of three to eight dies within a round of the moment when the last one got its ticket."""
    s = Liveness(seed)
    s.form(s.rng.choice([3, 4, 5, 8]))
    s.run(s.rng.uniform(0, 1))
    s.world.crash(s.rng.choice(list(s.world.procs)))
    return s.recovers()


def joins_at_once(seed: int) -> float:
    """Two to five join within 0.2 rounds: nobody loses a ticket by it."""
    s = Liveness(seed)
    s.form(s.rng.choice([1, 2, 3]), 2)
    s.run(2)
    for i in range(s.rng.choice([2, 3, 5])):
        s.start(f"q{i}")
        s.run(s.rng.uniform(0, 0.2))
    took = s.recovers()
    lost = s.world.said(Lost)
    assert not lost, f"{lost}\n" + s.log()
    return took


def crash_beside_newcomer(seed: int) -> float:
    """A newcomer's neighbour dies within a round of its grant."""
    s = Liveness(seed)
    w = s.world
    s.form(s.rng.choice([3, 4, 6]))
    s.run(s.rng.uniform(0, 3))
    new = s.start("new")
    assert s.run(20, lambda: w.ring(new).ctx.holder is not None)
    s.run(s.rng.uniform(0, 1))
    ring = w.ring(new)
    near = [
        z.member
        for z in (ring.ctx.pred, ring.ctx.edge.succ if ring.ctx.edge else None)
        if z is not None and z.member != new
    ]
    near = [m for m in near if m in w.procs] or [m for m in w.procs if m != new]
    w.crash(s.rng.choice(near))
    return s.recovers()


def one_cut_off(seed: int) -> float:
    """One of four is cut off for up to 20 rounds; then the links heal. (A cut through the middle costs all tickets.)"""
    s = Liveness(seed)
    w = s.world
    s.form(4)
    s.run(s.rng.uniform(0, 4))
    w.side[s.rng.choice(list(w.procs))] = 1
    s.run(s.rng.uniform(0.5, 20))
    w.heal()
    return s.recovers()


def all_but_one_restarted(seed: int) -> float:
    """All but one, the designated founder among them, are killed at once and started again."""
    s = Liveness(seed)
    s.form(s.rng.choice([2, 4, 8]))
    s.run(s.rng.uniform(0, 4))
    for name in sorted(s.names)[: len(s.names) - 1]:
        s.restart(name, s.rng.uniform(0.5, 3))
    s.run(3)
    return s.recovers()


def all_restarted(seed: int) -> float:
    s = Liveness(seed)
    s.form(s.rng.choice([2, 4, 8]))
    s.run(s.rng.uniform(0, 4))
    for name in sorted(s.names):
        s.restart(name, s.rng.uniform(0.5, 3))
    s.run(3)
    return s.recovers()


def rolling_kill(seed: int, pause: float = 3.0) -> float:
    """As `soak.kill` does: one of eight is killed and started again, then after some rounds the next one, a hundred
    rounds long."""
    s = Liveness(seed)
    w = s.world
    s.form(8)
    end = w.now + 100 * ROUND
    while w.now < end:
        s.run(pause * s.rng.uniform(0.5, 1.5))
        name = s.rng.choice(sorted(s.names))
        if s.names[name] in w.procs:
            w.crash(s.names[name])
            member = s.names[name]
            after = s.rng.choice([0.0, 0.3, 1.0]) + s.rng.uniform(0.5, 1.5)
            s.run(after)
            s.start(address_of(member), boot_of(member) + 1)
    s.run(3)
    return s.recovers()


SCENARIOS: dict[str, Callable[[int], float]] = {
    f.__name__: f
    for f in (
        crash_after_formation,
        joins_at_once,
        crash_beside_newcomer,
        one_cut_off,
        all_but_one_restarted,
        all_restarted,
        rolling_kill,
    )
}


def main(count: int, first: int, names: list[str]) -> int:
    failed = 0
    for name in names or SCENARIOS:
        began, bad, took, example = time.monotonic(), [], [], ""
        for seed in range(first, first + count):
            try:
                took.append(SCENARIOS[name](seed))
            except AssertionError as error:
                bad.append(seed)
                example = example or f"{type(error).__name__} {error}"
        failed += len(bad)
        took.sort()
        half, worst = (took[len(took) // 2], took[-1]) if took else (0.0, 0.0)
        spent = time.monotonic() - began
        print(
            f"{name:24} {len(bad):4} of {count} bad; recovered in {half:.1f} rounds (median), "
            f"{worst:.1f} at most; {spent:.0f} s {bad[:8]}"
        )
        if names and example:
            print(example)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0, sys.argv[3:]))
