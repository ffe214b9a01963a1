"""CCC11's cluster management as printed: Algorithm 1 (no failures), and Algorithms 2 to 4 in virtual time.

Only for study: the ring that members use is `whence.core.ring`.

Where the text is silent, the reading is the one that favours the algorithm, and the code says so.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

ROUND = 1.0
DELTA = 0.1
"""The longest delay of a good link: a status comes within this time, or is not OK."""
DELAY = 0.02
PRCAST = 0.3
"""How long a PrCast takes; a round is longer."""


def succeeding(tickets: int, i: int, j: int) -> list[int]:
    """S_p of the owner of i whose successor owns j: i, i - 1, .. j + 1 (all, if it is alone)."""
    return [(i - step) % tickets for step in range((i - j) % tickets or tickets)]


class RingStep(NamedTuple):
    """What happened, for the picture."""

    at: float
    kind: str
    """`send`, `own`, `out`, `exclude`."""
    who: str
    to: str
    what: str
    arrives: float
    """Of a message; -1 where it, or its status, is lost."""


class VirtualTime:
    """A queue of what happens when, links that may be cut, and a record of the steps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.cut: set[tuple[str, str]] = set()  # looked up, never iterated
        self.steps: list[RingStep] = []
        self.count = 0
        """Calls planned."""
        self._queue: list[tuple[float, int, Callable[[], None]]] = []

    def at(self, when: float, act: Callable[[], None]) -> None:
        self.count += 1
        heapq.heappush(self._queue, (when, self.count, act))

    def run(self, until: float) -> None:
        while self._queue and self._queue[0][0] <= until:
            self.now, _, act = heapq.heappop(self._queue)
            act()
        self.now = until


# -- Algorithm 1


class Basic:
    """Algorithm 1 as printed. `deliver` carries one message, so that a schedule can choose the order."""

    def __init__(self, tickets: int, founder: str) -> None:
        self.tickets = tickets
        self.ticket: dict[str, int] = {founder: 0}
        self.succ: dict[str, tuple[str, int]] = {founder: (founder, 0)}
        """ImmedSucc and its ticket, from Cview."""
        self.pred: dict[str, str] = {founder: founder}

    def coordinated(self, p: str) -> list[int]:
        return succeeding(self.tickets, self.ticket[p], self.succ[p][1])

    def cjoin(self, p: str, q: str, ticket: int) -> tuple[int, int, str]:
        """q receives CJOIN from p: it selects a ticket of S_q, makes p its successor and sends ACKCJOIN(t, j, r)."""
        assert ticket in self.coordinated(q) and ticket != self.ticket[q]
        r, j = self.succ[q]
        self.succ[q] = (p, ticket)
        return ticket, j, r

    def ackcjoin(self, p: str, q: str, ticket: int, j: int, r: str) -> None:
        """p receives ACKCJOIN from q: it is a coordinator from now on, and sends NEWSUCC to r."""
        self.ticket[p], self.succ[p], self.pred[p] = ticket, (r, j), q

    def newsucc(self, r: str, p: str) -> None:
        """r receives NEWSUCC from p, and sends ACKSUCC."""
        self.pred[r] = p

    def acksucc(self, p: str, r: str) -> None:
        """p receives ACKSUCC from r: `ImmedSucc := r`, as printed."""
        self.succ[p] = (r, self.ticket[r])

    def conflicts(self) -> dict[int, list[str]]:
        """Tickets that several processes coordinate."""
        by: dict[int, list[str]] = {}
        for p in self.ticket:
            for ticket in self.coordinated(p):
                by.setdefault(ticket, []).append(p)
        return {ticket: some for ticket, some in by.items() if len(some) > 1}


def basic_counterexample() -> tuple[Basic, list[str]]:
    """Three joins, no failure. p serves x before the ACKSUCC that it waits for; the ACKSUCC undoes the new edge."""
    ring = Basic(8, "q")
    steps = ["p asks q: ticket 6, successor q"]
    ring.ackcjoin("p", "q", *ring.cjoin("p", "q", 6))
    ring.newsucc("q", "p")
    steps.append("q gets NEWSUCC of p; its ACKSUCC is under way")
    ring.ackcjoin("x", "p", *ring.cjoin("x", "p", 4))
    steps.append("x asks p: ticket 4; x is p's successor now")
    ring.acksucc("p", "q")
    steps.append("p gets the ACKSUCC of q: ImmedSucc := q")
    ring.ackcjoin("y", "p", *ring.cjoin("y", "p", 4))
    steps.append("y asks p: ticket 4, which is x's")
    return ring, steps


# -- Algorithms 2 to 4


class _Variables:
    """The variables of Algorithm 2."""

    def __init__(self, name: str, phase: float) -> None:
        self.name, self.phase = name, phase
        self.ticket: int | None = None
        self.L: list[str] = []
        self.R: list[str] = []
        self.alive: dict[str, None] = {}
        self.cview: dict[int, str] = {}
        self.succ = name
        self.temp = 0
        self.grace = 0
        self.blocked: dict[int, float] = {}
        """Tickets whose updates are ignored, and until when (the prose of CCC11 section 4.2)."""


class Tolerant(VirtualTime):
    """Algorithms 2 to 4 with P_exclude = 1. Links have one delay; a cut one carries nothing."""

    def __init__(self, tickets: int, k: int, grace: int) -> None:
        super().__init__()
        self.tickets, self.k, self.grace = tickets, k, grace
        self.processes: dict[str, _Variables] = {}

    def settled(self, owners: dict[str, tuple[int, float]]) -> None:
        """A ring that has stood for a while: name -> (ticket, phase of its rounds), in the order of successors."""
        names, window = list(owners), 2 * self.k + 1
        for i, (name, (ticket, phase)) in enumerate(owners.items()):
            p = self.processes[name] = _Variables(name, phase)
            p.ticket, p.cview = ticket, {t: who for who, (t, _) in owners.items()}
            p.succ = names[(i + 1) % len(names)]
            p.L = [names[(i - d) % len(names)] for d in range(1, min(window, len(names) - 1) + 1)]
            p.R, p.alive = [name, *p.L[: window - 1]], dict.fromkeys(p.L)
            self._owns(name)
            self.at(phase, partial(self._round, name))

    # -- sending

    def _send(
        self, a: str, b: str, what: str, act: Callable[[], None], status: Callable[[bool], None] | None = None
    ) -> None:
        there, back = (a, b) not in self.cut, (b, a) not in self.cut
        self.steps.append(RingStep(self.now, "send", a, b, what, self.now + DELAY if there else -1))
        if there:
            self.at(self.now + DELAY, act)
        if status is not None:
            ok = there and back and self.processes[b].ticket is not None
            self.at(self.now + (2 * DELAY if ok else DELTA), partial(status, ok))

    def _prcast(self, a: str, act: Callable[[_Variables], None]) -> None:
        for name in self.processes:
            if name != a:
                self.at(self.now + PRCAST, partial(act, self.processes[name]))

    # -- Algorithm 2

    def _round(self, name: str) -> None:
        p = self.processes[name]
        if p.ticket is None:
            return
        if p.grace:
            p.grace -= 1
        elif len([z for z in p.L if z in p.alive]) < self.k + 1:
            self._out(p, "too few ALIVE")
            return
        p.alive = {}
        for other in self.following(p)[: 2 * self.k + 1]:
            self._alive(name, other)
        if p.temp == 0:
            self._update(p)
        else:
            p.temp -= 1
        self.at(self.now + ROUND, partial(self._round, name))

    def _alive(self, a: str, b: str) -> None:
        self._send(a, b, "ALIVE", lambda: self.processes[b].alive.update({a: None}))

    def _update(self, p: _Variables) -> None:
        if p.succ == p.name:
            return
        proposed, succ = [p.name, *p.L[: 2 * self.k]], p.succ

        def status(ok: bool) -> None:
            if ok:
                p.R = proposed
            elif p.ticket is not None and p.succ == succ:
                self._exclude(p)

        def arrive() -> None:
            self.processes[succ].L = [z for z in proposed if z != succ]

        self._send(p.name, succ, "UPDATE", arrive, status)

    def following(self, p: _Variables) -> list[str]:
        """The others by Cview, closest successor first."""
        assert p.ticket is not None
        mine = p.ticket
        known = sorted(((mine - t) % self.tickets, who) for t, who in p.cview.items() if t != mine)
        return [who for _, who in known if who != p.name]

    def _out(self, p: _Variables, why: str) -> None:
        self.steps.append(RingStep(self.now, "out", p.name, "", why, -1))
        p.ticket = None

    def _owns(self, name: str) -> None:
        self.steps.append(RingStep(self.now, "own", name, "", str(self.processes[name].ticket), -1))

    # -- Algorithm 3

    def cjoin(self, name: str, parent: str, ticket: int) -> None:
        """A new process asks a coordinator, which selects this ticket of its set."""
        self.processes[name] = _Variables(name, 0.0)
        self._send(name, parent, "CJOIN", lambda: self._serve(parent, name, ticket))

    def _serve(self, parent: str, name: str, ticket: int) -> None:
        p = self.processes[parent]
        if p.ticket is None or p.temp:
            return
        j = next(t for t, who in p.cview.items() if who == p.succ)
        if ticket not in succeeding(self.tickets, p.ticket, j):
            return
        old, p.succ = p.succ, name
        p.cview[ticket] = name
        proposed, view = [parent, *p.L[: 2 * self.k]], dict(p.cview)

        def arrive() -> None:
            q = self.processes[name]
            q.ticket, q.L, q.cview, q.succ, q.grace = ticket, proposed, view, old, self.grace
            self._owns(name)
            for other in self.following(q)[: 2 * self.k + 1]:
                self._alive(name, other)
            self._prcast(name, lambda other: self._heard(other, ticket, name))
            self._round(name)

        def status(ok: bool) -> None:
            if ok:
                p.R = proposed

        self._send(parent, name, "ACKCJOIN", arrive, status)

    def _heard(self, p: _Variables, ticket: int, owner: str) -> None:
        if self.now >= p.blocked.get(ticket, 0.0):
            p.cview[ticket] = owner

    # -- Algorithm 4

    def _exclude(self, p: _Variables) -> None:
        """The successor is weakly detected as faulty: ask the next one for its L, then the processes in both lists."""
        later = self.following(p)
        after = later[later.index(p.succ) + 1 :]
        assert p.ticket is not None and after
        q, mine = after[0], p.ticket
        self.steps.append(RingStep(self.now, "exclude", p.name, p.succ, "", -1))

        def answer() -> None:
            q_list = list(self.processes[q].L)
            self._send(q, p.name, "ACKEXCLUDE", lambda: request(q_list))

        def request(q_list: list[str]) -> None:
            theirs = self.processes[q].ticket
            assert theirs is not None
            distance = (mine - theirs) % self.tickets
            E = [(mine - step) % self.tickets for step in range(1, distance)]
            asked = [r for r in p.R if r in q_list]
            acks: list[str] = []
            for r in asked:
                self._send(p.name, r, "REQCOORD", partial(agree, r, E, distance, acks))
            self.at(self.now + 2 * DELTA, partial(decide, E, distance, acks))

        def agree(r: str, E: list[int], distance: int, acks: list[str]) -> None:
            one = self.processes[r]
            if one.ticket is None or one.ticket in E:
                return
            for ticket in E:
                one.cview.pop(ticket, None)
                one.blocked[ticket] = self.now + distance * ROUND
            self._send(r, p.name, "ACKCOORD", lambda: acks.append(r))

        def decide(E: list[int], distance: int, acks: list[str]) -> None:
            if len(acks) < self.k + 1:
                self._out(p, "too few ACKCOORD")
                return
            for ticket in E:
                p.cview.pop(ticket, None)
            p.succ, p.temp = q, distance - 1

        self._send(p.name, q, "EXCLUDE", answer)
