"""CCC11's cluster management as printed: Algorithm 1 (no failures), and Algorithms 2 to 4 in virtual time.

Only for study: the ring that members use is `whence.core.ring`.

Where the text is silent, the reading is the one that favours the algorithm, and the code says so.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

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
    """What happened."""

    at: float
    kind: str
    """`send`, `own`, `out`, `exclude`, `excluded` (acknowledged; `what`: who, the nearest first), `free` (the excluded
    tickets may be granted)."""
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


class _Process:
    """The variables of Algorithm 1, and what its prose adds."""

    def __init__(self) -> None:
        self.state = "out"
        self.ticket = -1
        self.succ: tuple[str, int] = ("", -1)
        """ImmedSucc and its ticket."""
        self.pred = ""
        self.pending = 0
        """How many NEWSUCC it has sent without an ACKSUCC; until one comes it does not perform as a coordinator."""
        self.deferred: list[tuple[str, tuple[Any, ...]]] = []


class Basic:
    """Algorithm 1, with the prose of CCC11 section 4.1 where it says more than the pseudo-code: who waits for ACKSUCC
    serves nothing but its successor's CLEAVE. Nothing fails; a random schedule says which message arrives next, and
    links are FIFO. The reading is charitable where the text is silent: CLEAVE carries the ticket of the successor, a
    joiner keeps what comes too early."""

    def __init__(self, tickets: int, processes: int, seed: int) -> None:
        self.rng = random.Random(f"{seed}/basic")
        self.tickets = tickets
        self.of = {f"p{i}": _Process() for i in range(processes)}
        self.links: dict[tuple[str, str], deque[tuple[Any, ...]]] = {}
        self.chain = 0
        """The most NEWSUCC that one process sent before an ACKSUCC came."""
        first = self.of["p0"]
        first.state, first.ticket, first.succ, first.pred = "coordinator", 0, ("p0", 0), "p0"

    def step(self) -> bool:
        """A message arrives, or somebody decides to join or to leave. Core_C is never left empty."""
        performing = [name for name, p in self.of.items() if p.state == "coordinator"]
        waiting = [link for link, queue in self.links.items() if queue]
        if waiting and (self.rng.random() < 0.85 or not performing):
            a, b = self.rng.choice(waiting)
            self.receive(b, a, self.links[a, b].popleft())
            return True
        name = self.rng.choice(list(self.of))
        p = self.of[name]
        if p.state == "out" and performing:
            p.state = "joining"
            self._send(name, self.rng.choice(performing), "CJOIN")
        elif p.state == "coordinator" and not p.pending and p.succ[0] != name and len(performing) > 2:
            p.state = "leaving"
            self._send(name, p.pred, "CLEAVE", p.succ)
        return bool(performing)

    def _send(self, a: str, b: str, *message: Any) -> None:
        self.links.setdefault((a, b), deque()).append(message)

    def receive(self, name: str, sender: str, message: tuple[Any, ...]) -> None:
        p, (kind, *rest) = self.of[name], message
        if kind == "CJOIN" and p.state != "coordinator":
            self._send(name, sender, "REJECT")
        elif (kind == "CJOIN" and p.pending) or (kind == "NEWSUCC" and p.state == "joining"):
            p.deferred.append((sender, message))
        elif kind == "CJOIN":
            free = succeeding(self.tickets, p.ticket, p.succ[1])[1:]
            if not free:
                self._send(name, sender, "REJECT")
                return
            ticket = self.rng.choice(free)
            self._send(name, sender, "ACKCJOIN", ticket, p.succ)
            p.succ = (sender, ticket)
        elif kind == "REJECT" and p.state == "joining":
            p.state = "out"
        elif kind == "ACKCJOIN":
            p.state, p.ticket, p.succ, p.pred = "coordinator", rest[0], rest[1], sender
            self._link(name)
            self._serve(name)
        elif kind == "NEWSUCC" and p.state == "leaving":
            p.pred = sender
            self._send(name, sender, "CLEAVE", p.succ)
        elif kind == "NEWSUCC" and p.state == "coordinator":
            p.pred = sender
            self._send(name, sender, "ACKSUCC")
        elif kind == "ACKSUCC" and sender == p.succ[0]:
            p.pending = 0
            self._serve(name)
        elif kind == "CLEAVE" and p.state == "coordinator" and sender == p.succ[0]:
            self._send(name, sender, "ACKCLEAVE")
            p.succ = rest[0]
            self._link(name)
        elif kind == "ACKCLEAVE" and p.state == "leaving":
            self.of[name] = _Process()

    def _link(self, name: str) -> None:
        """Tell the new successor."""
        p = self.of[name]
        if p.succ[0] == name:
            p.pending, p.pred = 0, name
        else:
            p.pending += 1
            self.chain = max(self.chain, p.pending)
            self._send(name, p.succ[0], "NEWSUCC")

    def _serve(self, name: str) -> None:
        p = self.of[name]
        deferred, p.deferred = p.deferred, []
        for sender, message in deferred:
            self.receive(name, sender, message)

    def conflicts(self, leavers: bool) -> bool:
        """Whether two processes own or coordinate a ticket. A process only leaves Core_C when it gets ACKCLEAVE;
        without `leavers` it does not count from CLEAVE on."""
        states = ("coordinator", "leaving") if leavers else ("coordinator",)
        owned = [p.ticket for p in self.of.values() if p.state in states]
        covered = [
            t
            for p in self.of.values()
            if p.state == "coordinator"
            for t in succeeding(self.tickets, p.ticket, p.succ[1])
        ]
        return len(set(owned)) < len(owned) or len(set(covered)) < len(covered)


def basic_walks(first: int, seeds: int, steps: int = 300) -> dict[str, float]:
    """Random schedules of Algorithm 1: in how many a ticket has two owners or coordinators, also if leavers do not
    count; and the longest chain of NEWSUCC."""
    found = {"conflicts": 0.0, "strictly": 0.0, "chain": 0.0}
    for seed in range(first, first + seeds):
        ring = Basic(8, 6, seed)
        wrong = strictly = False
        for _ in range(steps):
            if not ring.step():
                break
            wrong, strictly = wrong or ring.conflicts(True), strictly or ring.conflicts(False)
        found["conflicts"] += wrong
        found["strictly"] += strictly
        found["chain"] = max(found["chain"], ring.chain)
    return found


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
        there, sent = (a, b) not in self.cut, self.now
        self.steps.append(RingStep(sent, "send", a, b, what, sent + DELAY if there else -1))

        def arrive() -> None:
            act()
            ok = (b, a) not in self.cut and self.processes[b].ticket is not None
            if status is not None:
                self.at(sent + (2 * DELAY if ok else DELTA), partial(status, ok))

        if there:
            self.at(sent + DELAY, arrive)
        elif status is not None:
            self.at(sent + DELTA, partial(status, False))

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
            if p.temp == 0:
                self.steps.append(RingStep(self.now, "free", p.name, "", "", -1))
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

    def crash(self, name: str) -> None:
        self._out(self.processes[name], "crashed")

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
        if ticket not in succeeding(self.tickets, p.ticket, self.of_succ(p)):
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

    def of_succ(self, p: _Variables) -> int:
        """The ticket of its successor, by Cview; if that does not say, as if none were free between them."""
        assert p.ticket is not None
        return next((t for t, who in p.cview.items() if who == p.succ), (p.ticket - 1) % self.tickets)

    # -- Algorithm 4

    def _exclude(self, p: _Variables) -> None:
        """The successor is weakly detected as faulty: ask the next one for its L, then the processes in both lists."""
        later = self.following(p)
        after = later[later.index(p.succ) + 1 :] if p.succ in later else later
        self.steps.append(RingStep(self.now, "exclude", p.name, p.succ, "", -1))
        self._walk(p, after)

    def _walk(self, p: _Variables, after: list[str]) -> None:
        """The next reachable one in Cview."""
        if p.ticket is None or not after:
            self._out(p, "no successor")
            return
        (q, *others), mine = after, p.ticket
        theirs = next(t for t, who in p.cview.items() if who == q)

        def answer() -> None:
            if self.processes[q].ticket is None:
                return
            q_list = list(self.processes[q].L)
            self._send(q, p.name, "ACKEXCLUDE", lambda: request(q_list))

        def status(ok: bool) -> None:
            if not ok:
                self._walk(p, others)

        def request(q_list: list[str]) -> None:
            distance = (mine - theirs) % self.tickets
            E = [(mine - step) % self.tickets for step in range(1, distance)]
            gone = " ".join(p.cview[ticket] for ticket in E if ticket in p.cview)
            asked = [r for r in p.R if r in q_list]
            acks: list[str] = []
            for r in asked:
                self._send(p.name, r, "REQCOORD", partial(agree, r, E, distance, acks))
            self.at(self.now + 2 * DELTA, partial(decide, E, gone, distance, acks))

        def agree(r: str, E: list[int], distance: int, acks: list[str]) -> None:
            one = self.processes[r]
            if one.ticket is None or one.ticket in E:
                return
            for ticket in E:
                one.cview.pop(ticket, None)
                one.blocked[ticket] = self.now + distance * ROUND
            self._send(r, p.name, "ACKCOORD", lambda: acks.append(r))

        def decide(E: list[int], gone: str, distance: int, acks: list[str]) -> None:
            if p.ticket is None:
                return
            if len(acks) < self.k + 1:
                self._out(p, "too few ACKCOORD")
                return
            for ticket in E:
                p.cview.pop(ticket, None)
            self.steps.append(RingStep(self.now, "excluded", p.name, q, gone, -1))
            p.succ, p.temp = q, distance - 1

        self._send(p.name, q, "EXCLUDE", answer, status)
