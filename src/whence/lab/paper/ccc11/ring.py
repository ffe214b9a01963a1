"""CCC11 Theorem 4.2 says that a ticket never has two owners. As published it may: one cut link is enough.

The schedule, with k = 1. The ring is b, a, p, z, q. c joins behind a and d behind c, both within one round of p, so p
tells z a new list: {p, d, c} instead of {p, a, b}. The link from z to p is cut, so p never learns that z has the new
list. p takes z for faulty, and excludes it with a quorum of the old list: p and a. But z now counts on d and c, who
were not asked. They keep z alive; p waits as long as it should, and gives z's ticket to s. Now z and s own it.

Our rules (docs/ring.md, 13 above all) ask for a quorum of every list sent since the last good status.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from itertools import combinations
from typing import Any

from whence.core.clock import MemberId, Send, address_of, member_id
from whence.core.ring import Ring, RingConfig, State
from whence.core.ring.context import Announce, BecameOwner, Excluded, Lost, Released, RingOutput
from whence.core.ring.neighbours import TolerantRing
from whence.lab.paper.ccc11.published import (
    DELAY,
    DELTA,
    PRCAST,
    ROUND,
    RingStep,
    Tolerant,
    VirtualTime,
    basic_counterexample,
    succeeding,
)
from whence.lab.paper.frame import Row, RunOptions, Statistics, Study
from whence.lab.paper.plots import BEHIND, panels
from whence.lab.sim.invariants import violations
from whence.lab.stats import exact

TICKETS = 16
OWNERS = {"b": (0, 0.45), "a": (13, 0.6), "p": (8, 0.3), "z": (6, 0.25), "q": (3, 0.75)}
"""Who has which ticket, and the phase of its rounds; in the order of successors."""
LANES = ("b", "a", "c", "d", "p", "z", "s", "q")
WANTED = {"c": ("a", 11, 1.0), "d": ("c", 10, 1.1), "s": ("p", 6, 5.5)}
"""Who joins: whom it asks, for which ticket, and when (in rounds)."""
CUT = ("z", "p")
END = 8.0


def measure(options: RunOptions) -> list[Row]:
    """Both runs step by step, the basic protocol, and its random schedules."""
    published = as_published()
    ours, wrong = under_our_rules(options.seed)
    rows: list[Row] = [{"run": "published", **step._asdict()} for step in published.steps]
    rows += [{"run": "ours", **step._asdict()} for step in ours]
    rows += [{"run": "ours, violations", "at": END, "kind": "violation", "what": text} for text in wrong]
    ring, steps = basic_counterexample()
    rows += [{"run": "basic", "at": float(i), "kind": "step", "what": text} for i, text in enumerate(steps)]
    rows += [
        {"run": "basic", "at": 9.0, "kind": "conflict", "who": ", ".join(who), "what": str(ticket)}
        for ticket, who in ring.conflicts().items()
    ]
    seeds = 10 if options.quick else 60
    found, done = walks(range(options.seed * 1000, options.seed * 1000 + seeds))
    rows += [{"run": "basic, ours", "at": float(done), "kind": "violation", "what": text} for text in found]
    rows.append({"run": "basic, ours", "at": float(done), "kind": "steps", "what": f"{seeds} seeds, {done} steps"})
    rows += [{"run": "lemma 4.1", "at": float(n), "kind": "cases", "what": str(bad)} for n, bad in lemma_4_1(10)]
    rows += [{"run": "lemma 4.3", "at": 0.0, "kind": "out", "who": who} for who in newcomer(0)]
    lost, excluded = quiet_join(options.seed)
    rows.append({"run": "lemma 4.3, ours", "at": 0.0, "kind": "counts", "what": str(lost + excluded)})
    return rows


def as_published() -> Tolerant:
    """The schedule under Algorithms 2 to 4. A newcomer has two rounds of grace, or it would give up at once."""
    ring = Tolerant(TICKETS, k=1, grace=2)
    ring.settled(OWNERS)
    ring.run(0.9)
    ring.cut.add(CUT)
    for name, (parent, ticket, at) in WANTED.items():
        ring.run(at)
        ring.cjoin(name, parent, ticket)
    ring.run(END)
    return ring


def newcomer(grace: int) -> list[str]:
    """One join without any failure, with the check as printed: who gives up its ticket."""
    ring = Tolerant(TICKETS, k=1, grace=grace)
    ring.settled(OWNERS)
    ring.run(1.0)
    ring.cjoin("c", "a", 11)
    ring.run(END)
    return [step.who for step in ring.steps if step.kind == "out"]


def under_our_rules(seed: int) -> tuple[list[RingStep], list[str]]:
    """The same owners, the same cut link, the same joins at the same times."""
    rings = _ours(seed)
    begin = rings.now
    rings.run(begin + 0.9 * ROUND)
    rings.cut.add(CUT)
    for name, (parent, ticket, at) in WANTED.items():
        rings.run(begin + at * ROUND)
        rings.ask(name, parent, ticket)
    rings.run(begin + END * ROUND)
    return rings.steps, rings.violations


def _ours(seed: int) -> RingDriver:
    """Our ring with these owners, settled; its steps are recorded from here on."""
    rings = RingDriver(TICKETS, seed)
    rings.settle({name: ticket for name, (ticket, _) in OWNERS.items()})
    rings.watch(rings.now)
    return rings


def quiet_join(seed: int) -> tuple[int, int]:
    """One join without failures under our rules: tickets lost, exclusions."""
    rings = _ours(seed)
    rings.ask("c", "a", 11)
    rings.run(rings.now + END * ROUND)
    kinds = [step.kind for step in rings.steps]
    return kinds.count("out"), kinds.count("exclude")


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


# -- our rings in virtual time

NS = 1_000_000
"""Nanoseconds in a round."""


class RingDriver(VirtualTime):
    """The rings of members, links and time, without gossip and sockets; every step is checked (`violations`)."""

    def __init__(self, tickets: int, seed: int, unlike: bool = False) -> None:
        super().__init__()
        self.config = RingConfig(tickets=tickets, k=1, round_ns=NS, delta_ns=int(DELTA / ROUND * NS), drift=0.0)
        self.rng = random.Random(f"{seed}/rings")
        self.unlike = unlike
        """Delays are random, up to what a good link takes, instead of all alike."""
        self.rings: dict[MemberId, TolerantRing] = {}
        self.violations: list[str] = []
        self._from: float | None = None
        self._last: dict[tuple[MemberId, MemberId], float] = {}

    def add(self, name: str) -> MemberId:
        me = member_id(name, 1)
        self.rings[me] = TolerantRing(me, self.config, random.Random(self.rng.getrandbits(64)))
        return me

    def settle(self, owners: dict[str, int]) -> None:
        """Found the ring with the first, and let the others join behind each other with these tickets."""
        first, *others = owners
        self.act(self.add(first), lambda ring, now: ring.found(now, 1))
        self.run(self.now + 8 * ROUND)
        before = first
        for name in others:
            self.ask(name, before, owners[name])
            self.run(self.now + 8 * ROUND)
            before = name
        self.run(self.now + 4 * ROUND)
        have = {address_of(m): r.ticket for m, r in self.rings.items()}
        assert have == owners and not self.violations, (have, self.violations)

    def ask(self, name: str, parent: str, ticket: int) -> None:
        """A new process asks this coordinator for this ticket, and goes on asking."""
        me = self.add(name)
        ring = self.rings[me]
        ring.contacts([member_id(parent, 1)])
        ring.applicant.choose = lambda: (member_id(parent, 1), ticket)  # type: ignore[method-assign]
        self.act(me, lambda ring, now: ring.coordinate(now))

    def watch(self, begin: float) -> None:
        """Record steps from here on, in rounds since."""
        self._from = begin
        self.steps = [
            RingStep(0.0, "own", address_of(m), "", str(r.ticket), -1)
            for m, r in self.rings.items()
            if r.state is State.OWNER
        ]

    def act(self, me: MemberId, what: Callable[[Ring, int], list[RingOutput]]) -> None:
        """One step of one ring."""
        ring = self.rings[me]
        for output in what(ring, int(self.now * NS)):
            self._carry_out(me, output)
        if ring.wake_at is not None:
            wake = ring.wake_at
            self.at(max(self.now, wake / NS), lambda: self._wake(me, wake))
        self.violations += violations({m: r for m, r in self.rings.items() if r.ctx.holder is not None})

    def _wake(self, me: MemberId, wake: int) -> None:
        if self.rings[me].wake_at == wake:
            self.act(me, lambda ring, now: ring.wake(max(now, wake)))

    def _carry_out(self, me: MemberId, output: RingOutput) -> None:
        match output:
            case Send(to, message):
                self._post(me, to, message)
            case Announce(news):
                for other in self.rings:
                    if other != me:
                        self.at(
                            self.now + PRCAST,
                            lambda to=other: self.act(to, lambda ring, now: ring.hear(news, now)),  # type: ignore[misc]
                        )
            case BecameOwner(ticket, _):
                self._note("own", me, "", str(ticket))
            case Lost(_, _, reason):
                self._note("out", me, "", reason)
            case Released():
                self._note("out", me, "", "released")
            case Excluded():
                self._note("exclude", me, "", str(output.tickets))

    def _post(self, a: MemberId, b: MemberId, message: Any) -> None:
        lost = (address_of(a), address_of(b)) in self.cut or b not in self.rings
        delay = self.rng.uniform(0, DELTA) if self.unlike else DELAY
        arrives = max(self.now + delay, self._last.get((a, b), 0.0) + 1e-9)  # FIFO for each pair
        self._note("send", a, b, type(message).__name__, -1.0 if lost else arrives)
        if not lost:
            self._last[a, b] = arrives
            self.at(arrives, lambda: self.act(b, lambda ring, now: ring.receive(a, message, now)))

    def _note(self, kind: str, who: MemberId, to: str, what: str, arrives: float = -1.0) -> None:
        if self._from is not None:
            since = arrives - self._from if arrives >= 0 else -1.0
            self.steps.append(
                RingStep(self.now - self._from, kind, address_of(who), address_of(to) if to else "", what, since)
            )


def walks(seeds: Iterable[int]) -> tuple[list[str], int]:
    """Our ring without failures: random joins and leaves, random delays. Violations, and steps done."""
    found: list[str] = []
    steps = 0
    for seed in seeds:
        rings = RingDriver(8, seed, unlike=True)
        rng = random.Random(f"{seed}/walk")
        names = [rings.add(f"m{i}") for i in range(6)]
        rings.act(names[0], lambda ring, now: ring.found(now, 1))
        rings.run(6 * ROUND)
        for _ in range(30):
            me = rng.choice(names[1:])
            ring = rings.rings[me]
            ring.contacts(rng.sample([n for n in names if n != me], 3))
            if ring.state is State.OUT:
                rings.act(me, lambda ring, now: ring.coordinate(now))
            elif ring.state is State.OWNER:
                rings.act(me, lambda ring, now: ring.resign(now))
            rings.run(rings.now + rng.uniform(0, ROUND))
        found += rings.violations
        steps += rings.count
    return found, steps


# -- what follows


def tenures(rows: list[Row], run: str) -> dict[str, list[tuple[float, float, int]]]:
    """Process -> (from, to, ticket) of each time that it owned one."""
    found: dict[str, list[tuple[float, float, int]]] = {}
    for row in (row for row in rows if row["run"] == run and row["kind"] in ("own", "out")):
        mine = found.setdefault(row["who"], [])
        if row["kind"] == "own":
            mine.append((row["at"], END, int(row["what"])))
        elif mine:
            mine[-1] = (mine[-1][0], row["at"], mine[-1][2])
    return found


def most_owners(rows: list[Row], run: str) -> tuple[int, float, int]:
    """The most owners that a ticket has at a time, for how long, and of which ticket."""
    spans = [(a, b, ticket) for mine in tenures(rows, run).values() for a, b, ticket in mine]
    best = (0, 0.0, 0)
    for begin, _, ticket in spans:
        there = [(a, b) for a, b, t in spans if t == ticket and a <= begin < b]
        best = max(best, (len(there), min(b for _, b in there) - begin, ticket))
    return best


def statistics(rows: list[Row]) -> Statistics:
    """Exact: these are single runs that refute, and checks of every step."""
    owners, overlap, ticket = most_owners(rows, "published")
    mine, _, _ = most_owners(rows, "ours")
    began = next(row["at"] for row in rows if row["run"] == "published" and row["kind"] == "exclude")
    kept = next(b for a, b, t in tenures(rows, "published")["z"])
    of = {run: [row for row in rows if row["run"] == run] for run in dict.fromkeys(r["run"] for r in rows)}
    conflicts = [row for row in of["basic"] if row["kind"] == "conflict"]
    walked = next(row["what"] for row in of["basic, ours"] if row["kind"] == "steps")
    bad = [row for row in of["basic, ours"] if row["kind"] == "violation"]
    cases = of["lemma 4.1"]
    return {
        "lemma-4.1": [exact(f"up to {len(cases)} tickets", sum(int(row["what"]) for row in cases))],
        "basic-published": [exact("3 joins, no failure", len(conflicts))],
        "basic-ours": [exact(walked, len(bad))],
        "lemma-4.3-published": [exact("one join", len(of.get("lemma 4.3", [])))],
        "lemma-4.3-ours": [exact("one join", int(of["lemma 4.3, ours"][0]["what"]))],
        "corollary-4.1": [exact("z, the first of the excluded", kept - began - ROUND)],
        "corollary-4.1-ours": [exact(f"{END:g} rounds", len(of.get("ours, violations", [])))],
        "published": [exact(f"ticket {ticket}, for {overlap:.2f} rounds", owners)],
        "ours": [exact(f"{END:g} rounds", mine)],
    }


NOTE = (
    "k = 1, 16 tickets. Bars: who owns a ticket. Under the published rules s gets ticket 6 while z still owns it. The "
    "link from z to p is cut from the first round on; c and d join within one round."
)
COLOURS = {
    "UPDATE": "#0072b2",
    "EXCLUDE": "#d55e00",
    "ACKEXCLUDE": "#e69f00",
    "REQCOORD": "#cc79a7",
    "ACKCOORD": "#009e73",
    "CJOIN": "#999999",
    "ACKCJOIN": "#555555",
    "ALIVE": "#56b4e9",
}
"""Of messages in the picture. Of ALIVE only those to z, which decide; polls and others are left out."""


def draw(rows: list[Row]) -> Any:
    """Space and time: the published ring above, ours below."""
    figure, plots = panels(
        "CCC11 Theorem 4.2: one cut link (z to p) gives a ticket two owners; the same schedule under our rules",
        ("rounds", "Algorithms 2 to 4 as published"),
        ("rounds", "our rules (docs/ring.md)"),
    )
    figure.set_size_inches(15, 5.6)
    for axes, run in zip(plots, ("published", "ours"), strict=True):
        _lanes(axes, rows, run)
    handles = [plots[0].plot([], [], color=colour, label=what)[0] for what, colour in COLOURS.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=8)
    return figure


def _lanes(axes: Any, rows: list[Row], run: str) -> None:
    level = {name: -i for i, name in enumerate(LANES)}
    mine = tenures(rows, run)
    for name, y in level.items():
        axes.plot([0, END], [y, y], color="#dddddd", linewidth=1, zorder=0)
        for a, b, ticket in mine.get(name, []):
            axes.plot([a, b], [y, y], color="#333333", linewidth=5, solid_capstyle="butt", alpha=0.75, zorder=1)
            axes.annotate(
                f"{ticket}", (a, y), xytext=(3, 5), textcoords="offset points", fontsize=8, bbox=BEHIND, zorder=3
            )
    for row in (row for row in rows if row["run"] == run and row["kind"] == "send"):
        what = row["what"].upper()  # our messages have the paper's names, spelled as classes
        if what in COLOURS and row["to"] in level and row["who"] in level and (what != "ALIVE" or row["to"] == "z"):
            lost = row["arrives"] < 0
            end = (row["arrives"] if not lost else row["at"] + 0.05, level[row["to"]])
            style = {"arrowstyle": "-|>", "color": COLOURS[what], "linewidth": 0.9, "shrinkA": 0, "shrinkB": 0}
            if lost:
                style["linestyle"] = ":"
            axes.annotate("", xy=end, xytext=(row["at"], level[row["who"]]), arrowprops=style, zorder=2)
    for row in (row for row in rows if row["run"] == run and row["kind"] == "exclude"):
        axes.annotate(
            f"{row['who']} excludes {row['to'] or row['what']}", (row["at"], level[row["who"]]), xytext=(4, 9),
            textcoords="offset points", fontsize=8, color=COLOURS["EXCLUDE"], bbox=BEHIND, zorder=4,
        )  # fmt: skip
    owners, overlap, ticket = most_owners(rows, run)
    if owners > 1:
        begin = max(a for some in mine.values() for a, _, t in some if t == ticket)
        axes.axvspan(begin, begin + overlap, color="#ff0000", alpha=0.15, linewidth=0)
        axes.text(begin, 0.45, f"two owners of ticket {ticket}", fontsize=8, color="#cc0000", bbox=BEHIND)
    axes.set_yticks(list(level.values()), list(level))
    axes.set_xlim(0, END)
    axes.set_ylim(-len(LANES) + 0.4, 0.9)


STUDY = Study(measure, statistics, draw, NOTE)
