"""The one moment at which a rule of the council matters, which chaos rarely meets. Not a test.

A race takes a seed and the kind of ring to build, and raises a Violation when it goes wrong.
"""

from __future__ import annotations

from typing import Any

from tests.core.ring.council.world import CouncilWorld, names, settings
from tests.core.ring.world import ROUND, Make, Violation
from whence.core.clock import Incarnation, MemberId, address_of
from whence.core.ring import CouncilRing
from whence.core.ring.council import Book
from whence.core.ring.messages import Accept, Begin, Known, Prepare, RingMessage, Sit, Tenure, Voter, Vouch


def members(seed: int, make: Make, *willing: bool) -> CouncilWorld:
    """Three voters or so, and others that are none. The first one has a ticket."""
    w = CouncilWorld(settings(4, 1), seed, make, delay=0.001)
    for name, yes in zip(names(len(willing)), willing, strict=True):
        w.enter(name, willing=yes, wants=False)
        if name == "p0":
            w.found_by(name)
    voters = {name for name, yes in zip(names(len(willing)), willing, strict=True) if yes}
    assert w.run(40, lambda: {address_of(v.member) for v in w.newest()} == voters), "no council"
    w.run(2)
    return w


def eager(w: CouncilWorld, name: str, rounds: float, every: float = 0.003) -> None:
    """It wants a ticket and asks for one again and again."""
    w.want(name)
    end = w.now + int(rounds * ROUND)

    def ask(ring: Any, now: int) -> list[Any]:
        def again() -> None:
            if ring.ctx.holder is None and (ring.reading.question is None or w.rng.random() < 0.2):
                ring.reading.forget()
                ring.applicant.asked = None
                ring.reading.read("found")

        return ring._step(now, again)

    while w.now < end:
        if name in w.lives:
            w.act(w.lives[name], ask)
        w.run(every)


def clocks(seed: int, make: Make = CouncilRing) -> None:
    """The owner's clock is slow, the voters' are fast; the owner is cut off; another is there at the first moment."""
    w = members(seed, make, True, True, True, False)
    for member, proc in w.procs.items():
        local = proc.local(w.now)
        proc.rate = 0.99 if member == w.lives["p0"] else 1.01
        proc.offset += local - proc.local(w.now)
    w.run(3 + w.rng.random())
    w.sides = {"p0": 1}
    eager(w, "p3", 2.5)


def slow_answers(seed: int, make: Make = CouncilRing) -> None:
    """The vouches reach the owner a round late; then it is cut off."""
    w = members(seed, make, True, True, True, False)

    def slow(a: MemberId, b: MemberId, m: RingMessage) -> float | None:
        return w.rng.uniform(0.9, 1.1) if isinstance(m, Vouch) else None

    w.hook = slow
    w.run(3 + w.rng.random())
    w.sides = {"p0": 1}
    eager(w, "p3", 3)


def propose(w: CouncilWorld, name: str, want: list[Voter], expected: int) -> bool:
    """Let this voter propose now, if nothing else is under way."""
    ring = w.named(name)
    book: Book | None = ring.voting.book
    if book is None or book.council.voters != w.newest() or ring.reform.proposal is not None:
        return False

    def step(ring: Any, now: int) -> list[Any]:
        return ring._step(now, lambda: ring.reform.propose(ring.voting.book, tuple(want), expected))

    w.act(w.lives[name], step)
    return True


def voter(w: CouncilWorld, name: str) -> Voter:
    return next(v for v in w.newest() if address_of(v.member) == name)


def late_accept(seed: int, make: Make = CouncilRing, asked: bool = True) -> None:
    """A proposal is accepted by a voter that has gone back to vouching since it was asked."""
    w = members(seed, make, True, True, True, False, False)
    w.drop("p0")
    w.run(2.5)
    first, other, third = (voter(w, name) for name in ("p0", "p1", "p2"))
    late = w.rng.uniform(1.1, 1.3)

    def hook(a: MemberId, b: MemberId, m: RingMessage) -> float | None:
        to = address_of(b)
        if isinstance(m, Prepare) and to == "p2":
            return -1
        if isinstance(m, Accept) and to == "p1":
            return late if asked else -1
        return late if isinstance(m, Accept) and to == "p2" else None

    w.hook = hook
    if propose(w, "p0", [first, third, other], 2):
        eager(w, "p3", late + 0.02)
        eager(w, "p4", 1.2)


def not_asked(seed: int, make: Make = CouncilRing) -> None:
    """A proposal is accepted by a voter whose table was not read."""
    late_accept(seed, make, asked=False)


def half_begun(seed: int, make: Make = CouncilRing) -> None:
    """The next council is decided, and only its proposer knows; another voter proposes a different one."""
    w = members(seed, make, True, True, True)
    a, b, c = (voter(w, name) for name in names(3))

    def hook(x: MemberId, y: MemberId, m: RingMessage) -> float | None:
        told = isinstance(m, Prepare) and (address_of(x), address_of(y)) == ("p0", "p2")
        return -1 if told or isinstance(m, Begin | Known) else None

    w.hook = hook
    if propose(w, "p0", [a, c, b], 2):
        w.run(w.rng.uniform(0.02, 0.1))
        propose_now(w, "p2", [c, b])
        w.run(1)


def propose_now(w: CouncilWorld, name: str, want: list[Voter]) -> None:
    def step(ring: Any, now: int) -> list[Any]:
        return ring._step(now, lambda: ring.reform.propose(ring.voting.book, tuple(want), 2))

    w.act(w.lives[name], step)


def restart(seed: int, make: Make = CouncilRing) -> None:
    """The only voter has vouched for an owner that it does not hear any more, and is back at once with its disk."""
    w = members(seed, make, True, False, False)
    w.has_disk["p0"] = True
    w.drop("p0")
    w.want("p1")
    assert w.run(20, lambda: w.owner_names() == ["p1"])
    w.run(w.rng.random())
    w.sides = {"p1": 1}
    w.kill("p0", back=0.01)
    w.run(0.02)
    eager(w, "p2", 2.5)


def leaver(seed: int, make: Make = CouncilRing) -> None:
    """An owner leaves while another waits for its ticket."""
    w = members(seed, make, True, True, True, False)
    w.at(w.now + int(w.rng.random() * ROUND), w.drop, "p0")
    eager(w, "p3", 2)


def old_incarnation(seed: int, make: Make = CouncilRing) -> None:
    """A poll of an older incarnation arrives when the vouch for the newer one has run out."""
    w = members(seed, make, True, False, False)
    me, number = w.lives["p0"], max(w.councils)
    new, old = Incarnation(1, 2, 1).packed, Incarnation(1, 1, 1).packed
    for sender, inc in (("x#1", new), ("y#1", old)):
        poll = Sit(number, 1, Tenure(3, inc), 0)
        w.act(me, lambda ring, now, sender=sender, poll=poll: ring.receive(sender, poll, now))
        w.run(3)
    if w.ring(me).voting.book.row(3).top != new:
        raise Violation("C3: the highest incarnation vouched for went back")


RACES = {
    race.__name__: race
    for race in (clocks, slow_answers, late_accept, not_asked, half_begun, restart, leaver, old_incarnation)
}
