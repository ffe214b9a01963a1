"""The audit of a run that is still going on: the verdicts of `judge`, one row at a time, from a state that can be kept.

The rules are those of the batch (`kernel`, `judge`): X_q[o] is the largest seq of origin o in the past of anything q
has delivered; what is skipped is a hole. The batch has all rows and takes them in arrays; here they come in pieces and
in any order between members, so a member **waits**: for a step of its own that is not there yet, for the publish of
what it delivers, for the state it begins with. A verdict depends only on the member's own steps and on the past of
events, so it is the same whenever it is given. What waits at the end of the trace is let go by `settled`, as the batch
does.

What the state grows with: events published (ids and news), members x origins, steps that wait, and what is skipped. Not
with deliveries.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Final

import msgspec

from whence.spark.claims import Claim, Known, Owners
from whence.spark.state import HOLE, PASSED, Changes, Judged, Life, Published, Skipped, State, Step

CHECKPOINTS: Final = 16
"""States under tokens of a member's own checkpoints that are kept: a live member takes one after every batch, and its
next life goes on from the last or the one before. Those taken for others are all kept."""

ROOT: Final = "checkpoint "  # how the tokens of a member's own checkpoints begin (recorder)


class _Origin:
    __slots__ = ("_index", "events", "name", "published")

    def __init__(self, name: str) -> None:
        self.name = name
        self.events: list[str] = []
        self.published: list[Published] = []
        self._index: tuple[int, dict[int, tuple[list[int], list[int], list[int]]]] = (0, {})

    def _of(self, other: int) -> tuple[list[int], list[int], list[int]]:
        """When the entry of `other` rose: seqs of ours, its values, and our steps. Only where something is skipped is
        this asked, so it is made when it is."""
        done, index = self._index
        for s in range(done + 1, len(self.published) + 1):
            for i, value, lseq in self.published[s - 1].news:
                for column, x in zip(index.setdefault(i, ([], [], [])), (s, value, lseq), strict=True):
                    column.append(x)
        self._index = (len(self.published), index)
        return index.get(other, ([], [], []))

    def past(self, seq: int, other: int) -> int:
        """The entry of `other` in the past of this origin's event `seq`."""
        seqs, values, _ = self._of(other)
        at = bisect_right(seqs, seq)
        return values[at - 1] if at else 0

    def knew(self, other: int, seq: int) -> int | None:
        """The publisher's step by which it had (other, seq) in its past."""
        _, values, steps = self._of(other)
        at = bisect_left(values, seq)
        return steps[at] if at < len(steps) else None


class Follower:
    """One run of one cluster. `feed` it rows in any order; a row may come twice."""

    def __init__(self) -> None:
        self.lives: dict[str, Life] = {}
        self.origins: list[_Origin] = []
        self.repeated = 0
        """Rows that came again, since the state was loaded."""
        self._units: dict[str, tuple[str, int, int]] = {}  # id without its owner -> id, origin, seq
        self._others: dict[str, tuple[int, int]] = {}  # ids of which that is taken
        self._earliest: dict[str, tuple[int, str, int, str]] = {}  # of these: the first use by time
        self._owners = Owners()
        self._claims: list[Claim] = []
        self._taken: dict[str, State] = {}
        self._waiting: dict[tuple[str, str], list[str]] = {}
        self._ready: list[str] = []
        self._gone: set[tuple[str, str, str]] = set()
        self.torn: dict[str, None] = {}
        """Members with steps that are missing for good."""
        self._complete = False
        self._out: list[Judged] = []
        self._new = Changes([], [], [], {}, [])
        self._dirty: dict[str, None] = {}

    # -- rows

    def feed(self, rows: Iterable[tuple[str, int, Step | None]]) -> list[Judged]:
        """(member, lseq, step; None: a row of another kind) -> verdicts on what does not wait."""
        lives = self.lives
        for member, lseq, step in rows:
            life = lives.get(member) or self._life(member)
            if lseq < life.next or lseq in life.ahead:
                self.repeated += 1
                continue
            life.ahead[lseq] = step
            self._dirty[member] = None
            if lseq == life.next:
                self._ready.append(member)
        return self._run()

    @property
    def waiting(self) -> dict[str, tuple[int, str]]:
        """Members that wait -> (steps that do, what for)."""
        out = {}
        for life in self.lives.values():
            if life.ahead:
                what = f"{life.blocked[0]} {life.blocked[1]}" if life.blocked else f"its step {life.next}"
                out[life.name] = (len(life.ahead), what)
        return out

    def settled(self) -> tuple[Follower, list[Judged]]:
        """A copy for which the trace is complete, and the verdicts on what waited: nobody waits for what no row gives;
        steps that are missing are missing. What this one will be fed later does not change."""
        end = self.copy()
        end._complete = True
        end._ready = sorted(end.lives)
        out = end._run()
        while stuck := sorted(life.name for life in end.lives.values() if life.blocked):
            given = {cause for life in end.lives.values() for step in life.ahead.values() for cause in _gives(step)}
            given |= {("life", life.name) for life in end.lives.values() if life.ahead}
            free = [m for m in stuck if end.lives[m].blocked not in given]
            # Only a false trace has a circle. The first whom others may wait for is let go.
            circle = [m for m in stuck if any(map(_gives, end.lives[m].ahead.values()))] or stuck
            for member in free or circle[:1]:
                end._let_go(end.lives[member])
            out += end._run()
        return end, out

    def _let_go(self, life: Life) -> None:
        """It waits no longer, although what it waits for has not happened."""
        if life.blocked is not None:
            self._gone.add((life.name, *life.blocked))
            self._waiting[life.blocked].remove(life.name)
            life.blocked = None
            self._ready.append(life.name)

    def copy(self) -> Follower:
        """Another one in the same state."""
        other = Follower()
        other.apply(msgspec.msgpack.decode(msgspec.msgpack.encode(self.whole()), type=Changes))
        return other

    def _run(self) -> list[Judged]:
        while self._ready:
            self._go_on(self.lives[self._ready.pop()])
        out, self._out = self._out, []
        return out

    def _go_on(self, life: Life) -> None:
        """All steps of the member that need not wait."""
        ahead = life.ahead
        self._dirty[life.name] = None
        while ahead:
            lseq = life.next
            if lseq not in ahead:
                if not self._complete:
                    return
                life.next = lseq = min(ahead)
                life.have.sure = []
                self.torn[life.name] = None
            step = ahead[lseq]
            if step is not None:
                life.blocked = self._step(life, lseq, step)
                if life.blocked is not None:
                    self._waiting.setdefault(life.blocked, []).append(life.name)
                    return
            del ahead[lseq]
            life.next += 1

    def _happened(self, cause: tuple[str, str]) -> None:
        for member in self._waiting.pop(cause, ()):
            self.lives[member].blocked = None
            self._ready.append(member)

    def _life(self, member: str) -> Life:
        life = self.lives[member] = Life(member)
        return life

    def _step(self, life: Life, lseq: int, step: Step) -> tuple[str, str] | None:
        """Carry out a step, or say what it has to wait for."""
        match step.kind:
            case "deliver":
                unit = self._unit(step.event or "")
                if unit is None:
                    cause = ("event", step.event or "")
                    if step.event is not None and (life.name, *cause) not in self._gone:
                        return cause
                    self._judged(life, lseq, step, "unknown")
                else:
                    self._deliver(life, lseq, step, *unit)
            case "publish" if step.event is not None:
                self._publish(life, lseq, step.event, step.t)
            case "ticket":
                at = Known(life.name, lseq, step.t, life.have.X, life.have.lacks())
                self._claims += self._owners.changed(step.ticket, step.reason, at)
            case "snapshot":
                self._snapshot(life, step.token or "")
            case "join":
                return self._join(life, lseq, step)
            case "leave" | "crash":
                life.alive, life.ended = False, True
                self._happened(("life", life.name))
        return None

    # -- members come and go

    def _join(self, life: Life, lseq: int, step: Step) -> tuple[str, str] | None:
        """With nothing, with a state taken under a token, or after all that a previous life has delivered."""
        how, mine = step.reason, step.reason == "checkpoint"
        begin: State | None = None
        if how != "genesis":
            cause: tuple[str, str] | None = None
            if step.token is not None:
                cause, begin = ("token", step.token), self._taken.get(step.token)
            elif mine and step.peer is not None and step.peer != life.name:
                old = self.lives.get(step.peer)
                cause, begin = ("life", step.peer), (old.have if old is not None and self._over(old) else None)
            if begin is None and cause is not None and (life.name, *cause) not in self._gone:
                return cause
        life.order, life.alive = step.order or "causal", True
        if mine and step.peer in self.lives:
            self.lives[step.peer].alive = False
            self._dirty[step.peer] = None
        if how == "genesis":
            return None
        if begin is None:
            life.have.sure = []
            return None
        life.seen = _maximum(life.seen, life.have.X)
        self._begin_with(life, lseq, begin.copy(), mine)
        return None

    def _over(self, life: Life) -> bool:
        return life.ended or (self._complete and not life.ahead)

    def _begin_with(self, life: Life, lseq: int, state: State, mine: bool) -> None:
        """Go on from a state. What it lacks is still due to the member if it is `mine`: its own, from before."""
        state.rose = [lseq] * len(state.X)
        life.have, life.taint, life.other_taint, life.hole, life.last = state, {}, -2, {}, {}
        for o, of in state.skipped.items():
            if not mine:
                state.skipped[o] = {s: Skipped(PASSED, k.origin, k.seq, k.lseq) for s, k in of.items()}
            else:
                holes = [s for s, k in of.items() if k.how == HOLE]
                if holes:
                    life.hole[o] = min(holes)
        for o, s in enumerate(state.X):
            of = state.skipped.get(o, {})
            while s and s in of:
                s -= 1
            life.last[o] = s

    def _snapshot(self, life: Life, token: str) -> None:
        state = life.have.copy()
        self._taken[token] = self._new.taken[token] = state
        if token.startswith(ROOT):
            if token in life.checkpoints:
                life.checkpoints.remove(token)
            life.checkpoints.append(token)
            if len(life.checkpoints) > CHECKPOINTS:
                old = life.checkpoints.pop(0)
                del self._taken[old]
                if self._new.taken.pop(old, None) is None:
                    self._new.dropped.append(old)
        self._happened(("token", token))

    # -- events

    def _unit(self, event: str) -> tuple[int, int] | None:
        """Origin and seq of an event that was published."""
        known = self._units.get(event.partition("@")[0])
        return known[1:] if known is not None and known[0] == event else self._others.get(event)

    def _publish(self, life: Life, lseq: int, event: str, t: int) -> None:
        bare = event.partition("@")[0]
        if bare in self._units:
            self._reused(bare, (t, life.name, lseq, event))
        if self._unit(event) is not None:
            return  # the first one keeps the name
        if life.origin < 0:
            life.origin = len(self.origins)
            self.origins.append(_Origin(life.name))
            self._new.origins.append(life.name)
        n = len(self.origins)
        x = _maximum(life.have.X, life.seen) if life.seen else life.have.X
        said = life.said
        said.extend([0] * (n - len(said)))
        rose = life.have.rose + [lseq] * (len(x) - len(life.have.rose))
        news = tuple((i, v, rose[i]) for i, v in enumerate(x) if v > said[i] and i != life.origin)
        for i, v, _ in news:
            said[i] = v
        published = Published(life.origin, event, lseq, t, news)
        self._new.published.append(published)
        unit = self._add(published)
        self._claims += self._owners.published(event, unit, Known(life.name, lseq, t, life.have.X, life.have.lacks()))
        self._happened(("event", event))

    def _add(self, published: Published) -> tuple[int, int]:
        origin, event = self.origins[published.origin], published.event
        origin.events.append(event)
        origin.published.append(published)
        bare, seq = event.partition("@")[0], len(origin.events)
        if bare in self._units:
            self._others[event] = (published.origin, seq)
        else:
            self._units[bare] = (event, published.origin, seq)
        return published.origin, seq

    def _reused(self, bare: str, use: tuple[int, str, int, str]) -> None:
        """An id, whoever its owner is, is used once more; the first use by time was right."""
        event, o, s = self._units[bare]
        before = self.origins[o].published[s - 1]
        first = self._earliest.get(bare, (before.t, self.origins[o].name, before.lseq, event))
        self._earliest[bare], (_, member, lseq, again) = min(first, use), max(first, use)
        detail = f"{member} published {again}, but the id {bare} was used before"
        self._claims.append(Claim("reused id", member, lseq, again, detail, [again]))

    def claims(self) -> list[Claim]:
        """Violations that no delivery shows, found since this was asked last."""
        out, self._claims = self._claims, []
        return out

    def _deliver(self, life: Life, lseq: int, step: Step, o: int, s: int) -> None:
        have = life.have
        X = have.X
        if len(X) < len(self.origins):
            X.extend([0] * (len(self.origins) - len(X)))
            have.rose.extend([0] * (len(X) - len(have.rose)))
        if s == X[o] + 1:
            for i, value, _ in self.origins[o].published[s - 1].news:
                if value > X[i]:
                    return self._skip(life, lseq, step, o, s)
            X[o] = life.last[o] = s
            have.rose[o] = lseq
            if have.sure is not None and o not in have.sure:
                have.sure.append(o)
            return self._as_next(life, lseq, step, o, s)
        if s > X[o]:
            return self._skip(life, lseq, step, o, s)
        hole = have.skipped.get(o, {}).get(s)
        if hole is None:
            return self._judged(life, lseq, step, "duplicate", (o, s), (o, s))
        self._fill(life, o, s, hole)
        fifo = life.last.get(o, 0) > s
        if not fifo:
            life.last[o] = s
        return self._judged(life, lseq, step, "inverted", (o, s), (hole.origin, hole.seq), fifo, hole.lseq)

    def _skip(self, life: Life, lseq: int, step: Step, o: int, s: int) -> None:
        """(o, s) comes without all of its past: X rises to it, and what that skips becomes holes."""
        have, X = life.have, life.have.X
        risen = {o: s - 1}
        for published in self.origins[o].published[X[o] : s]:
            risen.update((i, value) for i, value, _ in published.news)
        first: dict[int, int] = {}  # origin -> the first one skipped that was due
        for i, value in risen.items():
            if value > X[i]:
                unsure = have.sure is not None and i not in have.sure
                of = have.skipped.setdefault(i, {})
                for seq in range(X[i] + 1, value + 1):
                    of[seq] = Skipped(PASSED if unsure else HOLE, o, s, lseq)
                if not unsure:
                    first[i] = X[i] + 1
                    life.hole.setdefault(i, X[i] + 1)
                X[i] = value
                have.rose[i] = lseq
        X[o] = life.last[o] = s
        have.rose[o] = lseq
        if have.sure is not None and o not in have.sure:
            have.sure.append(o)
        if not first:
            life.taint[o] = -2
            return self._as_next(life, lseq, step, o, s)
        i = life.taint[o] = o if o in first else min(first, key=lambda i: self.origins[i].name)
        return self._judged(life, lseq, step, "over a gap", (o, s), (i, first[i]))

    def _as_next(self, life: Life, lseq: int, step: Step, o: int, s: int) -> None:
        """Nothing is newly skipped: is anything in its past missing from before?"""
        if not life.hole:
            return self._judged(life, lseq, step, "in order", (o, s))
        i = self._tainted(life, o, s)
        if i < 0:
            return self._judged(life, lseq, step, "in order", (o, s))
        return self._judged(life, lseq, step, "after a gap", (o, s), (i, life.hole[i]))

    def _tainted(self, life: Life, o: int, s: int) -> int:
        """An origin with a hole in the past of (o, s), or -1."""
        taint, origin, hole = life.taint.get(o, life.other_taint), self.origins[o], life.hole
        if taint >= 0:
            return taint
        if o in hole and hole[o] < s:
            found = [o]
        elif taint == -1:  # nothing up to (o, s-1), and holes made since are above its past: the news can meet one
            found = [i for i, value, _ in origin.published[s - 1].news if i in hole and hole[i] <= value]
        else:
            found = [i for i, first in hole.items() if i != o and first <= origin.past(s, i)]
        life.taint[o] = min(found, key=lambda i: self.origins[i].name, default=-1)
        return life.taint[o]

    def _fill(self, life: Life, o: int, s: int, hole: Skipped) -> None:
        """What was skipped is delivered after all."""
        of = life.have.skipped[o]
        del of[s]
        if not of:
            del life.have.skipped[o]
        if life.taint.get(o, life.other_taint) == -1:
            life.taint[o] = -2  # what was skipped together with (o, s) may be in its past, and was not looked for
        if hole.how == HOLE:
            if life.hole[o] == s:
                rest = [seq for seq, k in of.items() if k.how == HOLE]
                if rest:
                    life.hole[o] = min(rest)
                else:
                    del life.hole[o]
            for i, taint in life.taint.items():
                if taint >= 0:
                    life.taint[i] = -2

    def _judged(
        self,
        life: Life,
        lseq: int,
        step: Step,
        verdict: str,
        unit: tuple[int, int] | None = None,
        cause: tuple[int, int] | None = None,
        fifo: bool = False,
        opener: int | None = None,
    ) -> None:
        claimed = (step.event or "").partition("@")[2] or None  # whose event it is, by its id
        origin, seq = (claimed, None) if unit is None else (self.origins[unit[0]].name, unit[1])
        why: tuple[str | None, int | None, str | None] = (None, None, None)
        if cause is not None:
            of = self.origins[cause[0]]
            why = (of.name, cause[1], of.events[cause[1] - 1])
        self._out.append(Judged(life.name, lseq, step.event, origin, seq, verdict, life.order, *why, fifo, opener))

    # -- in words

    def why(self, found: Judged) -> tuple[str, list[str]]:
        """What is wrong with a delivery: at most three events, at which members, at which steps; and the events."""
        me, event = found.member, found.event or "nothing"
        if found.verdict == "unknown":
            return f"{me} delivered {event} at its step {found.lseq}, but nobody has published it", [event]
        if found.verdict == "duplicate":
            return f"{me} delivered {event} a second time, at its step {found.lseq}", [event]
        if found.cause_event is None:
            return f"{me} delivered {event} at its step {found.lseq}", [event]
        inverted = found.verdict == "inverted"
        cause, effect = (event, found.cause_event) if inverted else (found.cause_event, event)
        if inverted:
            here = f"{me} delivered {effect} at its step {found.opener_lseq}, and {cause} only at step {found.lseq}"
        else:
            here = f"{me} delivered {effect} at its step {found.lseq} without {cause} before it"
        return f"{here}; but {self._past(cause, effect)}", [cause, effect]

    def _past(self, cause: str, effect: str) -> str:
        """Why the cause is in the past of the effect."""
        one, other = self._unit(cause), self._unit(effect)
        if one is None or other is None:
            return "a publish is not in this trace"
        (c_origin, c_seq), (e_origin, e_seq) = one, other
        publisher = self.origins[e_origin]
        published = f"published {effect} at step {publisher.published[e_seq - 1].lseq}"
        if c_origin == e_origin:
            return (
                f"{publisher.name} published {cause} at its step {publisher.published[c_seq - 1].lseq} and {published}"
            )
        return f"{publisher.name} had {cause} in its past by its step {publisher.knew(c_origin, c_seq)} and {published}"

    # -- the state

    def changes(self) -> Changes:
        """What is new since this was asked last."""
        new, self._new = self._new, Changes([], [], [], {}, [])
        new.lives = [self.lives[member] for member in self._dirty]
        self._dirty = {}
        return self._with_claims(new)

    def _with_claims(self, changes: Changes) -> Changes:
        """They are few: all of them, each time."""
        changes.tenures, changes.told = list(self._owners.tenures.values()), list(self._owners.told)
        changes.earliest = self._earliest
        return changes

    def whole(self) -> Changes:
        """Everything, as changes to nothing."""
        published = [p for origin in self.origins for p in origin.published]
        lives = list(self.lives.values())
        return self._with_claims(Changes([o.name for o in self.origins], published, lives, self._taken, []))

    def apply(self, changes: Changes) -> None:
        """Take over what another one has written down."""
        self.origins += map(_Origin, changes.origins)
        for published in changes.published:
            self._add(published)
        for life in changes.lives:
            self.lives[life.name] = life
        self._taken.update(changes.taken)
        for token in changes.dropped:
            self._taken.pop(token, None)
        self._owners.load(changes.tenures, changes.told)
        self._earliest = changes.earliest
        self._waiting = {}
        for life in self.lives.values():
            if life.blocked is not None:
                self._waiting.setdefault(life.blocked, []).append(life.name)


def _gives(step: Step | None) -> list[tuple[str, str]]:
    """What others may be waiting for."""
    if step is not None and step.kind == "publish":
        return [("event", step.event or "")]
    if step is not None and step.kind == "snapshot":
        return [("token", step.token or "")]
    return []


def _maximum(a: list[int], b: list[int]) -> list[int]:
    short, long = sorted((a, b), key=len)
    return [max(x, y) for x, y in zip(short, long, strict=False)] + long[len(short) :]
