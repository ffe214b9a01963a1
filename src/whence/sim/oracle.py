"""The causal oracle: judges every delivery against the true happened-before, never against the protocol's clocks.

It is fed with the steps of all members, each after the steps it depends on. An event is (origin, seq): the member that
published it and that member's own count. The true past of an event is prefix-closed per origin (a publisher's events
follow one another), so one integer per origin describes it exactly, even when events are lost:

    X_q[o] = the largest seq of origin o in the past of anything q has delivered.

(o, s) arriving at q with s <= X_q[o] is a duplicate if q has delivered it before and an inversion otherwise; if it
never arrives it is a gap. What q has skipped so far are its holes: all up to X_q except the holes is delivered.

What makes it fast: an event keeps only the **news** in its past, the entries that rose since its origin published last.
When q has all of (o, s-1), and X_q is closed under happened-before, only the news of (o, s) have to be compared.
A frame (events of one publish step, with one past) is judged in one go.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Sequence
from enum import Enum
from functools import partial
from typing import NamedTuple

from whence.errors import UsageError
from whence.sim.verdicts import Counts, OracleReport, Violations, ordinal
from whence.trace import Row, in_causal_order

Key = Hashable
"""What names an event or a frame: an event id, its text, or (ticket, incarnation, first seq, ...) of a frame."""


class Verdict(Enum):
    """What happened-before says of one delivery, whatever order the member promises."""

    IN_ORDER = "in order"
    INVERTED = "inverted"
    OVER_GAP = "over a gap"
    """It skips something in its past that is not delivered here, nor covered by the snapshot the member began with."""
    AFTER_GAP = "after a gap"
    """It skips nothing new, but something in its past was skipped here before, and has not come since."""
    DUPLICATE = "duplicate"
    UNKNOWN = "unknown"
    """Nobody has published it."""


IN_ORDER, INVERTED, OVER_GAP, AFTER_GAP, DUPLICATE, UNKNOWN = Verdict


class _Unit(NamedTuple):
    """An event, or the events of a frame: published in one step, hence with one past."""

    origin: int
    seq: int
    size: int
    news: tuple[tuple[int, int], ...]


class _Origin:
    """One publishing member and all it has published."""

    __slots__ = ("keys", "life", "name", "news", "risen", "upto")

    def __init__(self, name: str, life: _Life) -> None:
        self.name = name
        self.life = life
        self.keys: list[Key] = []
        self.news: list[tuple[tuple[int, int], ...]] = []
        self.upto: list[int] = [0]  # events in the first s units: the size of any range is a difference
        self.risen: tuple[int, dict[int, tuple[list[int], list[int]]]] = (0, {})

    def past(self, seq: int, other: int) -> int:
        """The entry of `other` in the past of this origin's event `seq`. Asked only of members with holes, so the
        index over the news is built when it is."""
        done, index = self.risen
        for s in range(done + 1, len(self.news) + 1):
            for i, value in self.news[s - 1]:
                seqs, values = index.setdefault(i, ([], []))
                seqs.append(s)
                values.append(value)
        self.risen = (len(self.news), index)
        seqs, values = index.get(other, ([], []))
        at = bisect_right(seqs, seq)
        return values[at - 1] if at else 0


class _Hole(NamedTuple):
    """Events `first .. last` of an origin that were skipped, and the delivery that skipped them."""

    first: int
    last: int
    opener: Key


_Holes = dict[int, list[_Hole]]
"""Origin -> its holes, ascending; no empty lists."""


class _Life:
    """One member: what it has delivered, which order it promises, and what was found of it."""

    __slots__ = (
        "X",
        "alive",
        "counts",
        "delivered",
        "holes",
        "name",
        "order",
        "origin",
        "passed",
        "said",
        "seen",
        "tainted",
    )

    def __init__(self, name: str, origins: int) -> None:
        self.name = name
        self.order = "causal"
        self.alive = True
        self.X = [0] * origins
        self.holes: _Holes = {}
        self.passed: _Holes = {}  # holes of the snapshot it began with: not delivered, but not due to it either
        self.tainted: set[int] = set()  # origins known to have a hole in the past of all they will publish
        self.origin: int | None = None
        self.said: list[int] = []  # X as of the last own publish
        self.seen: list[int] = []  # what it had delivered before it installed another state
        self.delivered = 0
        self.counts = Counts()

    def fill(self, origin: int, seq: int) -> _Hole | None:
        """The hole that `seq` was in, if any; it is not in it any longer."""
        for table in (self.holes, self.passed):
            for at, hole in enumerate(table.get(origin, ())):
                if hole.first <= seq <= hole.last:
                    rest = [hole._replace(last=seq - 1), hole._replace(first=seq + 1)]
                    table[origin][at : at + 1] = [h for h in rest if h.first <= h.last]
                    if not table[origin]:
                        del table[origin]
                    self.tainted.clear()
                    return hole
        return None

    def has_above(self, origin: int, seq: int) -> bool:
        """A later event of the same origin is delivered."""
        skipped = self.undelivered(origin, self.X[origin], mine=False)
        return self.X[origin] - seq > sum(b - max(a, seq + 1) + 1 for a, b in skipped if b > seq)

    def undelivered(self, origin: int, upto: int, mine: bool) -> list[tuple[int, int]]:
        """Ranges of events up to `upto` that it has not delivered; `mine`: only those that were due to it."""
        holes = self.holes.get(origin, []) + ([] if mine else self.passed.get(origin, []))
        ranges = [(h.first, min(h.last, upto)) for h in sorted(holes, key=lambda h: h.first)]
        return [(a, b) for a, b in [*ranges, (self.X[origin] + 1, upto)] if a <= b]


class Oracle:
    """Feed it the steps of one run of one cluster, then ask for the `report`."""

    def __init__(self) -> None:
        self._lives: dict[str, _Life] = {}
        self._origins: list[_Origin] = []
        self._units: dict[Key, _Unit] = {}
        self._snapshots: dict[str, tuple[list[int], _Holes, _Holes]] = {}  # X, holes, passed
        self._used: dict[tuple[Key, Key], int] = {}  # (ticket, incarnation) -> last seq used
        self._bare: dict[str, Key] = {}  # event id without its owner -> whole id
        self._published = 0
        self._reused = 0
        self._violations = Violations()

    # -- members come and go

    def joined(
        self,
        member: str,
        how: str = "genesis",
        *,
        order: str = "causal",
        peer: str | None = None,
        token: str | None = None,
    ) -> None:
        """The member begins. `genesis`: with nothing. `snapshot`: with what was delivered where `token` was taken.
        `checkpoint`: it goes on after the deliveries of its previous life `peer`, those up to `token` if there is one.
        """
        if order not in Counts.PROMISES:
            raise UsageError(f"{member}: unknown order {order!r} (known: {', '.join(Counts.PROMISES)})")
        life = self._life(member)
        life.order, life.alive = order, True
        if how == "genesis":
            return
        if how == "checkpoint" and peer in self._lives:
            old = self._lives[peer]
            old.alive = False
            if token is None:
                life.X, life.passed = old.X.copy(), _copy(old.passed)
                life.holes, old.holes = old.holes, {}  # they are the new life's now: it may still fill them
                return
        if how not in ("snapshot", "checkpoint") or token not in self._snapshots:
            raise UsageError(f"{member} cannot join by {how!r} from peer {peer!r} with token {token!r}: unknown here")
        X, holes, passed = self._snapshots[token]
        life.seen = list(map(max, life.X, life.seen)) if life.seen else life.X
        life.X = X + [0] * (len(self._origins) - len(X))
        if how == "checkpoint":  # its own: what was due to it still is
            life.holes, life.passed = _copy(holes), _copy(passed)
            if peer in self._lives:
                self._lives[peer].holes = {}
        else:
            life.holes, life.passed = {}, _copy(passed)
            for origin, of in holes.items():
                life.passed[origin] = sorted(life.passed.get(origin, []) + of, key=lambda h: h.first)
        life.tainted.clear()

    def snapshot(self, member: str, token: str, used: bool = True) -> None:
        """The member's state is taken here, under this token; `used`: somebody will join with it."""
        life = self._life(member)
        if used:
            self._snapshots[token] = (life.X.copy(), _copy(life.holes), _copy(life.passed))

    def left(self, member: str) -> None:
        """The member has left: nothing more is due to it."""
        self._life(member).alive = False

    crashed = left

    # -- events

    def published(self, member: str, events: Sequence[Key]) -> None:
        """The member published these events, one after the other."""
        for event in events:
            bare = str(event).partition("@")[0]
            if bare in self._bare:
                self._reuse(member, event, f"{self._bare[bare]} was published before")
            self._bare.setdefault(bare, event)
            self._publish(member, event, 1)

    def published_frame(self, member: str, key: Key, count: int) -> None:
        """The member published `count` events in one step. If `key` begins with (ticket, incarnation, first seq), the
        ids of all of them are checked for an earlier use."""
        if isinstance(key, tuple) and len(key) >= 3 and isinstance(key[2], int):
            last = self._used.get((key[0], key[1]), 0)
            if key[2] <= last:
                self._reuse(member, key, f"ids up to {last} of this incarnation were used before", last - key[2] + 1)
            self._used[key[0], key[1]] = max(last, key[2] + count - 1)
        self._publish(member, key, count)

    def delivered(self, member: str, events: Sequence[Key]) -> list[Verdict]:
        """The member delivered these events in this order."""
        return [self.delivered_frame(member, event) for event in events]

    def delivered_frame(self, member: str, key: Key) -> Verdict:
        """The member delivered a frame (or the one event `key`)."""
        life = self._lives.get(member) or self._life(member)
        unit = self._units.get(key)
        if unit is None:
            return self._unknown(life, key)
        origin, seq, size, news = unit
        life.delivered += size
        X = life.X
        if X[origin] == seq - 1:
            for i, value in news:
                if X[i] < value:
                    break
            else:
                X[origin] = seq
                return self._after_holes(life, unit) if life.holes else IN_ORDER
        if seq <= X[origin]:
            return self._too_late(life, key, unit)
        return self._skip(life, key, unit)

    # -- how

    def _life(self, member: str) -> _Life:
        if member not in self._lives:
            self._lives[member] = _Life(member, len(self._origins))
        return self._lives[member]

    def _publish(self, member: str, key: Key, count: int) -> None:
        self._published += count
        if key in self._units:  # counted by the caller; the first one keeps the name
            return
        life = self._life(member)
        if life.origin is None:
            life.origin = len(self._origins)
            self._origins.append(_Origin(member, life))
            for other in self._lives.values():
                other.X.append(0)
        X = list(map(max, life.X, life.seen + [0] * (len(life.X) - len(life.seen)))) if life.seen else life.X
        life.seen = []
        said = life.said + [0] * (len(X) - len(life.said))
        news = tuple((i, x) for i, (x, old) in enumerate(zip(X, said, strict=True)) if x > old and i != life.origin)
        life.said = list(map(max, X, said))
        origin = self._origins[life.origin]
        origin.keys.append(key)
        origin.news.append(news)
        origin.upto.append(origin.upto[-1] + count)
        self._units[key] = _Unit(life.origin, len(origin.keys), count, news)

    def _reuse(self, member: str, key: Key, why: str, count: int = 1) -> None:
        self._reused += count
        self._violations.add("ids: reused", lambda: f"{member} published {key}, but {why}")

    def _unknown(self, life: _Life, key: Key) -> Verdict:
        life.delivered += 1
        life.counts.unknown += 1
        self._found(life, "unknown", lambda: f"{life.name} delivered {key}, which nobody has published")
        return UNKNOWN

    def _after_holes(self, life: _Life, unit: _Unit) -> Verdict:
        """The next event of its origin, with nothing newly skipped: is anything in its past missing from before?"""
        if unit.origin not in life.tainted:
            origin = self._origins[unit.origin]
            for i, holes in life.holes.items():
                if holes[0].first <= (unit.seq - 1 if i == unit.origin else origin.past(unit.seq, i)):
                    life.tainted.add(unit.origin)
                    break
            else:
                return IN_ORDER
        life.counts.after_gap += unit.size
        return AFTER_GAP

    def _skip(self, life: _Life, key: Key, unit: _Unit) -> Verdict:
        """Something before the event is missing here: X rises to its past, and what that skips becomes holes."""
        X, origin = life.X, self._origins[unit.origin]
        risen = {unit.origin: unit.seq - 1}
        for seq in range(X[unit.origin] + 1, unit.seq + 1):
            risen.update(origin.news[seq - 1])
        for i, value in risen.items():
            if X[i] < value:
                skipped = (i, X[i] + 1)
                life.holes.setdefault(i, []).append(_Hole(X[i] + 1, value, key))
                X[i] = value
        X[unit.origin] = unit.seq
        life.tainted.add(unit.origin)
        life.counts.over_gap += 1
        life.counts.after_gap += unit.size - 1
        self._found(
            life,
            "over_gap",
            lambda: f"{life.name} delivered {self._name(unit)} without {self._name(skipped)} before it",
        )
        return OVER_GAP

    def _too_late(self, life: _Life, key: Key, unit: _Unit) -> Verdict:
        """The event is in the past of what was delivered before: once more, or after its effect."""
        hole = life.fill(unit.origin, unit.seq)
        if hole is None:
            life.counts.duplicates += unit.size
            self._found(life, "duplicates", lambda: f"{life.name} delivered {key} a second time")
            return DUPLICATE
        life.counts.inverted += unit.size
        self._found(life, "inverted", lambda: self._explain(life, unit, hole))
        if life.has_above(unit.origin, unit.seq):
            life.counts.fifo_inverted += unit.size
            self._found(life, "fifo_inverted", lambda: self._explain(life, unit, hole))
        return INVERTED

    def _found(self, life: _Life, what: str, text: Callable[[], str]) -> None:
        self._violations.add(f"{life.order}: {what}", text)

    def _name(self, event: _Unit | tuple[int, int]) -> str:
        origin = self._origins[event[0]]
        return f"{origin.keys[event[1] - 1]} ({origin.name}'s {ordinal(event[1])})"

    def _explain(self, life: _Life, cause: _Unit, hole: _Hole) -> str:
        """The triangle in words: who published the cause, who published the effect knowing it, who saw them turned."""
        effect = self._units[hole.opener]
        knew = self._origins[effect.origin].name
        return (
            f"{life.name} delivered {self._name(effect)} and then {self._name(cause)}; "
            f"but {knew} published the former with the latter in its past"
        )

    # -- the whole run

    def report(self, settled: bool = True) -> OracleReport:
        """The run so far. `settled`: nothing is under way any more, so that what is not delivered is lost."""
        members = {}
        for name, life in self._lives.items():
            members[name] = life.counts.copy()
            members[name].deliveries = life.delivered
            members[name].gaps = sum(self._size(o, [(h.first, h.last)]) for o, of in life.holes.items() for h in of)
        violations = self._violations.copy()
        if settled:
            self._count_losses(members, violations)
        return OracleReport(
            published=self._published,
            reused_ids=self._reused,
            members=members,
            orders={name: life.order for name, life in self._lives.items()},
            live=[name for name, life in self._lives.items() if life.alive],
            violations=violations.kept,
        )

    def _size(self, origin: int, ranges: Iterable[tuple[int, int]]) -> int:
        upto = self._origins[origin].upto
        return sum(upto[b] - upto[a - 1] for a, b in ranges)

    def _count_losses(self, members: dict[str, Counts], violations: Violations) -> None:
        """What live members never delivered though it was due to them, and on what they disagree: what one of them
        has and another, to whom it was due, has not."""
        live = [life for life in self._lives.values() if life.alive]
        for o, origin in enumerate(self._origins):
            last = len(origin.keys)
            nobody = [(1, last)]
            for life in live:
                nobody = _intersect(nobody, life.undelivered(o, last, mine=False))
            for life in live:
                due = life.undelivered(o, last, mine=True)
                lost = self._size(o, due)
                if not lost:
                    continue
                counts = members[life.name]
                disagreed = _subtract(due, nobody)
                counts.lost += lost
                counts.lost_of_live += lost if origin.life.alive else 0
                counts.disagreements += self._size(o, disagreed)
                if disagreed:
                    missed = self._name((o, disagreed[0][0]))
                    text = f"{life.name} never delivered {missed}; another live member did"
                    violations.add(f"{life.order}: disagreements", partial(str, text))


def _copy(holes: _Holes) -> _Holes:
    return {origin: list(of) for origin, of in holes.items()}


def _intersect(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """What two ascending lists of ranges have in common."""
    out: list[tuple[int, int]] = []
    i = j = 0
    while i < len(a) and j < len(b):
        first, last = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if first <= last:
            out.append((first, last))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return out


def _subtract(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """What an ascending list of ranges has and the other has not."""
    out: list[tuple[int, int]] = []
    for first, last in a:
        for low, high in b:
            if low <= last and high >= first:
                if first < low:
                    out.append((first, low - 1))
                first = high + 1
        if first <= last:
            out.append((first, last))
    return out


def judge(
    rows: Iterable[Row], settled: bool = True, each: Callable[[Row, Verdict], None] | None = None
) -> OracleReport:
    """The verdict on the trace of one run of one cluster, rows in any order; `each` is told that of every delivery."""
    oracle = Oracle()
    rows = list(rows)
    used = {row.token for row in rows if row.kind == "join"}  # of the checkpoints of a live member, one at most
    for row in in_causal_order(rows):
        match row.kind:
            case "deliver":
                verdict = oracle.delivered_frame(row.member, row.event)
                if each is not None:
                    each(row, verdict)
            case "publish":
                oracle.published(row.member, (row.event,))
            case "join":
                oracle.joined(row.member, row.reason or "", order=row.order or "causal", peer=row.peer, token=row.token)
            case "snapshot":
                oracle.snapshot(row.member, row.token or "", row.token in used)
            case "leave" | "crash":
                oracle.left(row.member)
    return oracle.report(settled)
