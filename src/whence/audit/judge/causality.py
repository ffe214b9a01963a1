"""Judges every delivery against the true happened-before, never against the protocol's clocks. Incremental: one step at
a time, each after the steps it depends on, and from the beginning of each member. Traces of which parts are missing
are for the arrays (`batch`).

A unit is an event, or the events of one frame (the caller chooses): published in one step, hence with one past. It is
(origin, seq): its publisher, and that member's own count, from 1. Its true past is prefix-closed per origin (a
publisher's events follow one another), so one integer per origin describes it exactly, even when events are lost:

    X_q[o] = the largest seq of origin o in the past of anything q has delivered.

(o, s) arriving at q with s <= X_q[o] is a duplicate if q has delivered it before, and an inversion otherwise. If it
never arrives it is a gap. What q has skipped so far are its holes: everything up to X_q except the holes is delivered.

What makes it fast: a unit keeps only the **news** in its past, the entries that rose since its origin published last.
When q has all of (o, s-1), and X_q is closed under happened-before, only the news of (o, s) have to be compared.

What the state grows with: units published (keys and news), members x origins, states taken, ranges of what was
skipped, and what members dropped. Not with deliveries.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from whence.audit.judge import findings
from whence.audit.judge.findings import EventName, Finding
from whence.audit.judge.promises import DEFAULT, Verdict, declared, promise
from whence.errors import UsageError

Key = Hashable
"""What names a unit: the event's id, or whatever identifies a frame."""
UnitId = tuple[int, int]
"""The origin's number, and the seq."""
News = tuple[tuple[int, int], ...]

IN_ORDER, INVERTED, FIFO_INVERTED, OVER_GAP, AFTER_GAP, DUPLICATE, UNKNOWN = Verdict

Hole = tuple[int, int, int, int]
"""Seqs `first .. last` of an origin that were skipped, and the unit (origin, seq) whose delivery skipped them."""
Holes = dict[int, list[Hole]]
"""Origin -> its holes, ascending; no empty lists."""


class Unit(NamedTuple):
    """What was published in one step."""

    origin: int
    seq: int
    size: int
    """Events."""


class DeliveredState(msgspec.Struct, gc=False):
    """What a member has delivered: everything up to X, except what was skipped."""

    X: list[int] = []
    holes: Holes = {}
    """Skipped, and due to this member."""
    passed: Holes = {}
    """Skipped, and not due to it: the state that it began with lacked it."""

    def copy(self) -> DeliveredState:
        return DeliveredState(self.X.copy(), _copied(self.holes), _copied(self.passed))


class Life(DeliveredState, kw_only=True):
    """One member."""

    name: str
    order: str = DEFAULT
    alive: bool = True
    superseded: bool = False
    """A later life went on from it; its gaps are that one's now."""
    origin: int = -1
    """Its number, if it publishes."""
    said: list[int] = []
    """Its past as of its last publish."""
    seen: list[int] = []
    """What it had delivered before it installed another state."""
    delivered: int = 0
    """Events, whatever the verdict."""
    counts: list[int] = msgspec.field(default_factory=lambda: [0] * len(Verdict))
    """Verdict -> events; IN_ORDER is not counted."""

    def fill(self, origin: int, seq: int) -> Hole | None:
        """The hole that `seq` was in, if any; it is not in it any longer."""
        for table in (self.holes, self.passed):
            of = table.get(origin)
            if not of:
                continue
            at = bisect_right(of, seq, key=itemgetter(0)) - 1
            if at < 0 or of[at][1] < seq:
                continue
            first, last, o, s = hole = of[at]
            rest = [(first, seq - 1, o, s), (seq + 1, last, o, s)]
            of[at : at + 1] = [h for h in rest if h[0] <= h[1]]
            if not of:
                del table[origin]
            return hole
        return None

    def newest(self, origin: int) -> int:
        """The largest seq of the origin that is delivered."""
        seq = self.X[origin]
        for first, last, *_ in sorted(self.holes.get(origin, []) + self.passed.get(origin, []), reverse=True):
            if last < seq:
                break
            seq = first - 1
        return seq

    def undelivered(self, origin: int, upto: int, due: bool) -> set[int]:
        """Seqs up to `upto` that it has not delivered; `due`: only those that were due to it."""
        out = set(range(self.X[origin] + 1, upto + 1))
        for first, last, *_ in self.holes.get(origin, []) + ([] if due else self.passed.get(origin, [])):
            out.update(range(first, last + 1))
        return out


class Origin(msgspec.Struct):
    """One publishing member and everything it has published."""

    name: str
    keys: list[Any] = []
    news: list[News] = []
    upto: list[int] = msgspec.field(default_factory=lambda: [0])
    """Events in the first s units: the size of any range is a difference."""
    indexed: int = 0
    rises: dict[int, tuple[list[int], list[int]]] = {}
    """An index over the news of the first `indexed` units: origin -> seqs at which its entry rises, and to what. It is
    needed for members with holes only, and made when it is."""

    def add(self, key: Key, news: News, size: int) -> int:
        """The next unit; returns its seq."""
        self.keys.append(key)
        self.news.append(news)
        self.upto.append(self.upto[-1] + size)
        return len(self.keys)

    def past(self, seq: int, other: int) -> int:
        """The entry of `other` in the past of this origin's unit `seq`."""
        while self.indexed < len(self.news):
            self.indexed += 1
            for i, value in self.news[self.indexed - 1]:
                seqs, values = self.rises.setdefault(i, ([], []))
                seqs.append(self.indexed)
                values.append(value)
        if other not in self.rises:
            return 0
        seqs, values = self.rises[other]
        at = bisect_right(seqs, seq)
        return values[at - 1] if at else 0


class Causality(msgspec.Struct):
    """The steps of one run of one cluster, and the verdict on each delivery."""

    lives: dict[str, Life] = {}
    origins: list[Origin] = []
    units: dict[Any, Unit] = {}
    taken: dict[str, DeliveredState] = {}
    """Token -> the state taken under it."""
    _cause: UnitId | None = None
    _behind: tuple[str, Unit] | None = None
    """The member and unit of the last delivery, if that was `AFTER_GAP`: its cause is looked for when it is asked."""

    # -- members come and go

    def joined(
        self,
        member: str,
        how: str = "genesis",
        *,
        order: str | None = None,
        peer: str | None = None,
        token: str | None = None,
    ) -> None:
        """The member begins. `genesis`: with nothing. `snapshot`: with what was delivered where `token` was taken.
        `checkpoint`: it goes on after the deliveries of its previous life `peer`, those up to `token` if there is one.
        UsageError if that is not known here."""
        order = declared(order, member)
        life = self.life(member)
        mine = how == "checkpoint"
        state: DeliveredState | None = None
        if token is not None:
            state = self.taken.get(token)
        elif mine and peer is not None and peer != member:
            state = self.lives.get(peer)
        if how != "genesis" and state is None:
            raise UsageError(f"{member} cannot join by {how!r} from peer {peer!r} with token {token!r}: unknown here")
        life.alive = True
        life.order = order
        if mine and peer in self.lives and peer != member:
            self.lives[peer].alive, self.lives[peer].superseded = False, True
        if how != "genesis" and state is not None:
            self._install(life, DeliveredState.copy(state), mine)

    def _install(self, life: Life, state: DeliveredState, mine: bool) -> None:
        """Go on from a state. What it lacks is still due to the member if it is `mine`: its own, from before."""
        life.seen = _maximum(life.seen, life.X)
        life.X = state.X + [0] * (len(self.origins) - len(state.X))
        life.holes, life.passed = state.holes, state.passed
        if not mine:
            for origin, of in life.holes.items():
                life.passed[origin] = sorted(life.passed.get(origin, []) + of)
            life.holes = {}

    def snapshot(self, member: str, token: str) -> None:
        """The member's state is taken here, under this token."""
        self.taken[token] = DeliveredState.copy(self.life(member))

    def left(self, member: str) -> None:
        """The member has left or crashed: nothing more is due to it."""
        self.life(member).alive = False

    def life(self, member: str) -> Life:
        life = self.lives.get(member)
        if life is None:
            life = self.lives[member] = Life(name=member, X=[0] * len(self.origins))
        return life

    # -- units

    def published(self, member: str, key: Key, size: int = 1) -> Unit | None:
        """The member published `size` events in one step; None: under a key that was used before, and that stays the
        first one's."""
        if key in self.units:
            return None
        life = self.life(member)
        if life.origin < 0:
            life.origin = len(self.origins)
            self.origins.append(Origin(member))
            for other in self.lives.values():
                other.X.append(0)
        X = _maximum(life.X, life.seen) if life.seen else life.X
        life.seen = []
        said = life.said
        said.extend([0] * (len(X) - len(said)))
        news = tuple((i, x) for i, (x, old) in enumerate(zip(X, said, strict=True)) if x > old and i != life.origin)
        life.said = list(map(max, X, said))
        unit = self.units[key] = Unit(life.origin, self.origins[life.origin].add(key, news, size), size)
        return unit

    def delivered(self, member: str, key: Key) -> Verdict:
        """The member delivered a unit."""
        life = self.lives.get(member) or self.life(member)
        unit = self.units.get(key)
        if unit is None:
            life.delivered += 1
            return self._counted(life, UNKNOWN, 1, None)
        origin, seq, size = unit
        life.delivered += size
        X = life.X
        if X[origin] == seq - 1:
            for i, value in self.origins[origin].news[seq - 1]:
                if X[i] < value:
                    break
            else:
                X[origin] = seq
                if not life.holes:
                    return IN_ORDER
                return self._behind_holes(life, unit)
        if seq <= X[origin]:
            return self._too_late(life, unit)
        return self._skip(life, unit)

    @property
    def cause(self) -> UnitId | None:
        """What the last verdict that was not `IN_ORDER` is wrong with respect to: the effect that was delivered first,
        or the cause that is missing: that of the event's own origin, or the first by the name of its origin."""
        if self._behind is None:
            return self._cause
        life, unit = self.lives[self._behind[0]], self._behind[1]
        origin = self._first_named(unit.origin, self._holes_before(life, unit))
        return origin, life.holes[origin][0][0]

    def _first_named(self, own: int, origins: Iterable[int]) -> int:
        """`own` if it is one of these origins, else the first by name."""
        return min(origins, key=lambda i: (i != own, self.origins[i].name))

    def _holes_before(self, life: Life, unit: Unit) -> Iterator[int]:
        """The origins of which something in the past of the unit is a hole of the member."""
        past = self.origins[unit.origin].past
        for i, of in life.holes.items():
            if of[0][0] <= (unit.seq - 1 if i == unit.origin else past(unit.seq, i)):
                yield i

    def _counted(self, life: Life, verdict: Verdict, size: int, cause: UnitId | None) -> Verdict:
        life.counts[verdict] += size
        self._behind, self._cause = None, cause
        return verdict

    def _skip(self, life: Life, unit: Unit) -> Verdict:
        """Something before the unit is missing here: X rises to its past, and what that skips becomes holes."""
        o, s, size = unit
        X = life.X
        risen = {o: s - 1}
        for news in self.origins[o].news[X[o] : s]:
            risen.update(news)
        first: dict[int, int] = {}  # origin -> the first one skipped
        for i, value in risen.items():
            if value > X[i]:
                life.holes.setdefault(i, []).append((X[i] + 1, value, o, s))
                first[i] = X[i] + 1
                X[i] = value
        X[o] = s
        if not first:
            return self._behind_holes(life, unit)
        i = self._first_named(o, first)
        life.counts[AFTER_GAP] += size - 1  # the first event skips, the others of its frame come after it
        return self._counted(life, OVER_GAP, 1, (i, first[i]))

    def _behind_holes(self, life: Life, unit: Unit) -> Verdict:
        """Nothing is newly skipped: is anything in its past missing from before?"""
        if next(self._holes_before(life, unit), None) is None:
            return IN_ORDER
        life.counts[AFTER_GAP] += unit.size
        self._behind = life.name, unit
        return AFTER_GAP

    def _too_late(self, life: Life, unit: Unit) -> Verdict:
        """The unit is in the past of what was delivered before: a second time, or after its effect."""
        o, s, size = unit
        hole = life.fill(o, s)
        if hole is None:
            return self._counted(life, DUPLICATE, size, (o, s))
        verdict = FIFO_INVERTED if life.newest(o) > s else INVERTED
        return self._counted(life, verdict, size, (hole[2], hole[3]))

    # -- in words

    def event(self, unit: UnitId) -> EventName:
        """As a sentence names it."""
        origin = self.origins[unit[0]]
        return EventName(str(origin.keys[unit[1] - 1]), origin.name, unit[1])

    def explained(self, member: str, step: int | None, key: Key, verdict: Verdict) -> Finding | None:
        """The finding on the delivery just judged; None if the member's order allows it."""
        rule = promise(self.lives[member].order).forbids.get(verdict)
        if rule is None:
            return None
        cause = self.cause
        if verdict is UNKNOWN or cause is None:
            return findings.unknown(member, step, None if key is None else str(key))
        return findings.of_delivery(rule, member, step, verdict, self.event(self.units[key][:2]), self.event(cause))

    def size(self, origin: int, seqs: Iterable[int]) -> int:
        """Events in these units."""
        upto = self.origins[origin].upto
        return sum(upto[s] - upto[s - 1] for s in seqs)


def _copied(holes: Holes) -> Holes:
    return {origin: list(of) for origin, of in holes.items()}


def _maximum(a: list[int], b: list[int]) -> list[int]:
    short, long = sorted((a, b), key=len)
    return [*map(max, short, long), *long[len(short) :]]
