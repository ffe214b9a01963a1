"""CCC11 section 4: the lemmas and theorems on who owns which ticket, in random runs of its algorithms and of our ring.

Theorem 4.2 says that a ticket never has two owners. As published it may: one cut link is enough. Say that c and d join
within one round of p, so that p tells its successor z a new list of predecessors. The link from z to p is cut, so p
never learns that z has it, takes z for faulty, and excludes it with a quorum of the old list. But z now counts on c and
d, who were not asked. They keep z alive; p waits as long as it should, and gives z's ticket away. Our rules
(docs/ring.md, 13 above all) ask for a quorum of every list sent since the last good status.

Nothing is arranged: owners, phases, joins, leaves, and which link is cut and when, are drawn at random.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from itertools import combinations

from whence.core.clock import MemberId, Send, address_of, member_id
from whence.core.ring import Ring, RingConfig, State
from whence.core.ring.config import need_acks
from whence.core.ring.context import Announce, Excluded, Lost, RingOutput
from whence.core.ring.neighbours import TolerantRing
from whence.lab.paper.ccc11.published import DELTA, PRCAST, ROUND, Tolerant, VirtualTime, basic_walks, succeeding
from whence.lab.paper.frame import Row, RunOptions, Statistics, Study
from whence.lab.sim.invariants import Watch, violations
from whence.lab.stats import Estimate, exact

TICKETS = 16
END = 12.0
"""Rounds of a random run."""


def measure(options: RunOptions) -> list[Row]:
    """One row for each part, with its counts."""
    first, many = options.seed * 100_000, 400 if options.quick else 5000
    overlaps = sum(bad for _, bad in lemma_4_1(10))
    found: list[tuple[str, str, dict[str, float]]] = [
        ("lemma 4.1", "up to 10 tickets", {"bad": overlaps}),
        ("basic", f"{many} schedules", basic_walks(first, many)),
        ("premise", f"{many // 4} schedules", chaos(first, many // 4, cut=False, grace=0)),
        ("calm", f"{many // 2} schedules", chaos(first, many // 2, cut=False, grace=10**6)),
        ("cut", f"{many // 2} schedules", chaos(first, many // 2, cut=True, grace=2)),
    ]
    seeds = 24 if options.quick else 120
    for part, cuts, leaves in (("ours", 0.0, 1.0), ("ours, joins", 0.0, 0.0), ("ours, cuts", 0.5, 0.3)):
        counts = walks(range(options.seed * 1000, options.seed * 1000 + seeds), cuts, leaves)
        found.append((part, f"{seeds} runs, {counts['steps']:.0f} steps", counts))
    return [{"part": part, "what": what, **counts} for part, what, counts in found]


def statistics(rows: list[Row]) -> Statistics:
    """Counts of runs."""
    of = {row["part"]: row for row in rows}

    def counted(part: str, *keys: str) -> list[Estimate]:
        return [exact(of[part]["what"], of[part][key]) for key in keys]

    strictly = f"; {of['basic']['strictly']:.0f} if leavers do not count"
    return {
        "lemma-4.1": counted("lemma 4.1", "bad"),
        "basic-published": [exact(of["basic"]["what"] + strictly, of["basic"]["conflicts"])],
        "newsucc-chain": counted("basic", "chain"),
        "basic-ours": counted("ours", "violations"),
        "lemma-4.3": counted("calm", "two owners", "excluded"),
        "premise": counted("premise", "excluded"),
        "premise-ours": counted("ours, joins", "lost"),
        "corollary-4.1": counted("cut", "late"),
        "corollary-4.1-ours": counted("ours, cuts", "violations"),
        "published": counted("cut", "two owners"),
        "ours": counted("ours, cuts", "violations"),
        "outvoted": counted("ours, cuts", "outvoted"),
    }


STUDY = Study(measure, statistics)


def lemma_4_1(most: int) -> list[tuple[int, int]]:
    """For every number of tickets: how many sets of owners have coordinated sets that overlap or leave a hole."""
    found = []
    for n in range(1, most + 1):
        bad = 0
        for size in range(1, n + 1):
            for owners in combinations(range(n - 1, -1, -1), size):
                covered = [t for i, own in enumerate(owners) for t in succeeding(n, own, owners[(i + 1) % size])]
                bad += sorted(covered) != list(range(n))
        found.append((n, bad))
    return found


# -- Algorithms 2 to 4 as printed


def chaos(first: int, seeds: int, cut: bool, grace: int) -> dict[str, float]:
    """Random runs: in how many a ticket has two owners, somebody gives up or excludes, and an excluded process is in
    longer than Corollary 4.1 allows. `grace`: rounds in which a newcomer is not checked for ALIVE; 0: as printed;
    more than the run has: nobody is."""
    found = {"two owners": 0.0, "excluded": 0.0, "late": 0.0}
    for seed in range(first, first + seeds):
        ring = one_run(seed, cut, grace)
        found["two owners"] += two_owners(ring)
        found["excluded"] += any(step.kind in ("out", "exclude") for step in ring.steps)
        found["late"] += late(ring)
    return found


def one_run(seed: int, cut: bool, grace: int) -> Tolerant:
    """5 to 7 owners and five joins, most of them near a link from a process to its predecessor, which `cut` cuts for
    good."""
    rng = random.Random(f"{seed}/chaos")
    tickets = sorted(rng.sample(range(TICKETS), rng.randint(5, 7)), reverse=True)
    names = [f"p{i}" for i in range(len(tickets))]
    ring = Tolerant(TICKETS, k=1, grace=grace)
    ring.settled({name: (t, rng.random()) for name, t in zip(names, tickets, strict=True)})
    for p in ring.processes.values():
        p.grace = grace if grace > END else 0
    at, z = rng.uniform(0.5, 2), rng.randrange(len(names))
    for when in sorted([*(rng.uniform(at, at + 0.5) for _ in range(2)), *(rng.uniform(at, 8) for _ in range(3))]):
        ring.run(at)
        if cut:
            ring.cut.add((names[z], names[z - 1]))
        ring.run(when)
        i = (z - rng.choice((1, 2, 3))) % len(names) if rng.random() < 0.5 else rng.randrange(len(names))
        parent = ring.processes[names[i]]
        if parent.ticket is not None and (free := succeeding(TICKETS, parent.ticket, ring.of_succ(parent))[1:]):
            ring.cjoin(f"n{len(ring.processes)}", names[i], rng.choice(free))
    ring.run(END)
    return ring


def two_owners(ring: Tolerant) -> bool:
    """Whether two processes owned a ticket at some moment."""
    holders: dict[str, int] = {}
    for step in ring.steps:
        if step.kind == "out":
            holders.pop(step.who, None)
        elif step.kind == "own":
            if int(step.what) in holders.values():
                return True
            holders[step.who] = int(step.what)
    return False


def late(ring: Tolerant) -> bool:
    """Whether the i-th excluded process is in later than i rounds after the exclusion was acknowledged, and one more:
    rounds of different processes begin at different times."""
    out = {step.who: step.at for step in ring.steps if step.kind == "out"}
    return any(
        out.get(who, END) > min(END, step.at + (i + 1) * ROUND)
        for step in ring.steps
        if step.kind == "excluded"
        for i, who in enumerate(step.what.split(), 1)
    )


# -- our ring


NS = 1_000_000
"""Nanoseconds in a round."""


class RingDriver(VirtualTime):
    """The rings of members, links and time, without gossip and sockets; every step is checked (`violations`)."""

    def __init__(self, tickets: int, seed: int) -> None:
        super().__init__()
        self.config = RingConfig(tickets=tickets, k=1, round_ns=NS, delta_ns=int(DELTA / ROUND * NS), drift=0.0)
        self.rng = random.Random(f"{seed}/rings")
        self.rings: dict[MemberId, TolerantRing] = {}
        self.violations: list[str] = []
        self.lost = 0
        """Tickets lost, and exclusions."""
        self.outvoted: set[int] = set()  # counted, never iterated
        """Exclusions with a quorum of one list that the successor may hold, but not of another."""
        self._checked = Watch()
        self._last: dict[tuple[MemberId, MemberId], float] = {}

    def add(self, name: str) -> MemberId:
        me = member_id(name, 1)
        self.rings[me] = TolerantRing(me, self.config, random.Random(self.rng.getrandbits(64)))
        return me

    def act(self, me: MemberId, what: Callable[[Ring, int], list[RingOutput]]) -> None:
        """One step of one ring."""
        ring = self.rings[me]
        outputs = what(ring, int(self.now * NS))
        for output in outputs:
            self._carry_out(me, output)
        if ring.wake_at is not None:
            wake = ring.wake_at
            self.at(max(self.now, wake / NS), lambda: self._wake(me, wake))
        holders: dict[MemberId, Ring] = {m: r for m, r in self.rings.items() if r.ctx.holder is not None}
        self.violations += [*violations(holders), *self._checked.step(me, outputs, holders)]
        attempt = ring.underway.attempt
        if attempt is not None and attempt.acks:
            quorums = {sum(z in attempt.acks for z in R) >= need_acks(len(R)) for R in attempt.lists}
            self.outvoted |= {attempt.era} if len(quorums) > 1 else set()

    def _wake(self, me: MemberId, wake: int) -> None:
        if self.rings[me].wake_at == wake:
            self.act(me, lambda ring, now: ring.wake(max(now, wake)))

    def _carry_out(self, me: MemberId, output: RingOutput) -> None:
        match output:
            case Send(to, message):
                if (address_of(me), address_of(to)) not in self.cut:
                    arrives = max(self.now + self.rng.uniform(0, DELTA), self._last.get((me, to), 0.0) + 1e-9)
                    self._last[me, to] = arrives  # FIFO for each pair
                    self.at(arrives, lambda: self.act(to, lambda ring, now: ring.receive(me, message, now)))
            case Announce(news):
                for other in self.rings:
                    if other != me:
                        self.at(
                            self.now + PRCAST,
                            lambda to=other: self.act(to, lambda ring, now: ring.hear(news, now)),  # type: ignore[misc]
                        )
            case Lost() | Excluded():
                self.lost += 1


def walks(seeds: Iterable[int], cuts: float, leaves: float) -> dict[str, float]:
    """Random joins and delays. `leaves`: how likely an owner that is drawn leaves; `cuts`: how often a link from a
    successor to its predecessor, where the answers to UPDATE go, is cut, or all are healed."""
    found = {"violations": 0.0, "steps": 0.0, "lost": 0.0, "outvoted": 0.0}
    for seed in seeds:
        rings = RingDriver(12 if cuts else 8, seed)
        rng = random.Random(f"{seed}/walk")
        names = [rings.add(f"m{i}") for i in range(12 if cuts else 6)]
        rings.act(names[0], lambda ring, now: ring.found(now, 1))
        rings.run(6 * ROUND)
        for _ in range(120 if cuts else 30):
            me, other = rng.choice(names[1:]), rng.choice(names)
            ring, edge = rings.rings[me], rings.rings[other].ctx.edge
            if rng.random() < cuts:
                if edge is None or rng.random() < 0.3:
                    rings.cut.clear()
                else:
                    rings.cut.add((address_of(edge.succ.member), address_of(other)))
            ring.contacts(rng.sample([n for n in names if n != me], 3))
            if ring.state is State.OUT:
                rings.act(me, lambda ring, now: ring.coordinate(now))
            elif ring.state is State.OWNER and rng.random() < leaves:
                rings.act(me, lambda ring, now: ring.resign(now))
            rings.run(rings.now + rng.uniform(0, ROUND / 2 if cuts else ROUND))
        counts = (len(rings.violations), rings.count, rings.lost, len(rings.outvoted))
        found = {key: found[key] + n for key, n in zip(found, counts, strict=True)}
    return found
