"""Are the vector clocks of a foreign log well formed?

The rules of a vector clock (Fidge 1988, Mattern 1989), and what a breach of each is called:

* the entry of a host for itself counts its steps, 1, 2, 3, ... (`own entry`), no number twice (`duplicate`);
* an entry for another host names a step that this host took, and that does not in turn have the step with this clock
  in its past (`future`);
* no entry goes backwards (`backwards`): not from one line of a host to its next, not from one step of a host to its
  next, and not from a step to one that claims to follow it.

A breach is reported where it begins, not again at every step that takes it over from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from whence.audit.judge.findings import Finding

OWN_ENTRY, DUPLICATE, FUTURE, BACKWARDS = "own entry", "duplicate", "future", "backwards"
RULES: Final = (OWN_ENTRY, DUPLICATE, FUTURE, BACKWARDS)

Clock = dict[str, int]
"""Host -> count."""


class ClockStep(NamedTuple):
    """One record of a log."""

    host: str
    own: int
    """The host's own entry."""
    clock: Clock
    lseq: int
    """Its place among the host's records in the log, from 0."""
    line: int

    @property
    def event(self) -> str:
        """What the step is called elsewhere."""
        return f"{self.host}:{self.own}"

    def __str__(self) -> str:
        return f"{self.event} (line {self.line})"


def judge(steps: Iterable[ClockStep]) -> list[Finding]:
    """What is wrong in one execution, given in the order of its log. The findings are in that order, too. The first
    witness is the step itself."""
    found = sorted(_Rules(steps).found, key=lambda f: (f[0].line, f[0].lseq, f[1].rule, f[1].sentence))
    return [finding for _, finding in found]


class _Rules:
    """The rules, applied one after the other; a later one does not repeat what an earlier one has found."""

    def __init__(self, steps: Iterable[ClockStep]) -> None:
        self.found: list[tuple[ClockStep, Finding]] = []
        self._at: dict[tuple[str, int], ClockStep] = {}
        self._by_host: dict[str, list[ClockStep]] = {}
        self._false: dict[tuple[str, int], dict[str, None]] = {}
        """ClockStep -> its entries that are `future`. What they say is not held against anybody else."""
        self._cycles: dict[tuple[str, str], None] = {}
        self._counted(steps)
        for mine in self._by_host.values():
            mine.sort(key=lambda step: step.own)  # from here on: in the order in which the host counted
            self._gaps(mine)
        for impossible in (self._never_taken, self._came_later):
            false = [found for mine in self._by_host.values() for found in self._changed(mine, impossible)]
            for step, other in false:  # after all have been asked: of two in a cycle each is told by the other
                self._false.setdefault((step.host, step.own), {})[other] = None
        for mine in self._by_host.values():
            self._backwards(mine)

    def _find(self, rule: str, step: ClockStep, detail: str, *others: ClockStep | str) -> None:
        witnesses = (step.event, *(o.event if isinstance(o, ClockStep) else o for o in others))
        finding = Finding(
            rule=rule, member=step.host, step=step.lseq, event=step.event, witnesses=witnesses, sentence=detail
        )
        self.found.append((step, finding))

    def _counted(self, steps: Iterable[ClockStep]) -> None:
        """Line by line: a number twice, or one that comes too late."""
        highest: dict[str, ClockStep] = {}
        for step in steps:
            first = self._at.setdefault((step.host, step.own), step)
            if first is not step:
                how = "with the same clock" if first.clock == step.clock else "with another clock"
                self._find(DUPLICATE, step, f"{step} was already on line {first.line}, {how}.", first)
                continue
            self._by_host.setdefault(step.host, []).append(step)
            top = highest.setdefault(step.host, step)
            if step.own < top.own:
                self._find(BACKWARDS, step, f"{step} stands after {top} in the log.", top)
            else:
                highest[step.host] = step

    def _gaps(self, mine: Sequence[ClockStep]) -> None:
        """Own entries that do not count 1, 2, 3, ..."""
        before = 0
        for step in mine:
            if step.own < 1:
                self._find(OWN_ENTRY, step, f"{step}: a host counts its steps from 1.")
                continue
            if step.own > before + 1:
                missing = f"{before + 1}" if step.own == before + 2 else f"{before + 1} to {step.own - 1}"
                detail = f"{step} comes next after {step.host}:{before}" if before else f"{step} is the first"
                known = [f"{step.host}:{before}"] if before else []
                self._find(OWN_ENTRY, step, f"{detail}: {step.host} has no step {missing}.", *known)
            before = step.own

    def _changed(
        self, mine: Sequence[ClockStep], impossible: Callable[[ClockStep, str, int, Clock], bool]
    ) -> Iterator[tuple[ClockStep, str]]:
        """The entries of a host that are impossible. Only one that is not as in the step before is asked about; what
        it is it stays, while nothing changes it."""
        previous: Clock = {}
        false_before: dict[str, None] = {}
        for step in mine:
            false: dict[str, None] = {}
            for other, count in step.clock.items():
                if other == step.host or other in self._false.get((step.host, step.own), ()):
                    continue
                same = count == previous.get(other, 0)
                if other in false_before if same else impossible(step, other, count, previous):
                    false[other] = None
                    yield step, other
            previous, false_before = step.clock, false

    def _never_taken(self, step: ClockStep, other: str, count: int, previous: Clock) -> bool:
        theirs = self._by_host.get(other, [])
        if theirs and count <= theirs[-1].own:
            return False
        if not self._taken_over(step, other, count, previous):
            came = f"{other} only came to {theirs[-1]}" if theirs else f"the log has no step of {other}"
            self._find(FUTURE, step, f"{step} knows {other} up to {count}, but {came}.", *theirs[-1:])
        return True

    def _came_later(self, step: ClockStep, other: str, count: int, previous: Clock) -> bool:
        named = self._at.get((other, count))
        if named is None or self._knows(named, step.host) < step.own:
            return False
        # The two steps by which the hosts are in each other's past: found from either side, reported once.
        back = self._first_to_know(other, count, step)
        ours = self._first_to_know(step.host, step.own, back)
        first, second = sorted((ours, back), key=lambda s: s.line)
        if (first.event, second.event) not in self._cycles and not self._taken_over(step, other, count, previous):
            self._cycles[first.event, second.event] = None
            what = f"{first} has {second.host}:{first.clock[second.host]} in its past"
            its = f"{second} had {first.host}:{second.clock[first.host]} in its own"
            self._find(FUTURE, first, f"{what}, but before that {its}.", second)
        return True

    def _knows(self, step: ClockStep, other: str) -> int:
        """An entry, unless it is false."""
        return 0 if other in self._false.get((step.host, step.own), ()) else step.clock.get(other, 0)

    def _first_to_know(self, host: str, own: int, step: ClockStep) -> ClockStep:
        """The first step of `host`, going back from `own`, that has `step` in its past."""
        first = self._at[host, own]
        while (before := self._at.get((host, first.own - 1))) and before.clock.get(step.host, 0) >= step.own:
            first = before
        return first

    def _taken_over(self, step: ClockStep, other: str, count: int, previous: Clock) -> bool:
        """Whether a step that this one has just taken in had the entry already: then it begins there."""
        for third, at in step.clock.items():
            if third not in (step.host, other) and at != previous.get(third, 0):
                source = self._at.get((third, at))
                if source is not None and source.clock.get(other, 0) >= count:
                    return True
        return False

    def _backwards(self, mine: Sequence[ClockStep]) -> None:
        """Entries below those of the host's step before, or of a step that has just been taken in."""
        held: dict[str, tuple[int, ClockStep]] = {}
        for step in mine:
            false = self._false.get((step.host, step.own), {})
            told = [other for other in step.clock if other != step.host and other not in false]
            lost: dict[str, ClockStep | None] = {}
            for other in [*told, *(o for o in held if o not in step.clock)]:
                before, since = held.get(other, (0, None))
                if step.clock.get(other, 0) < before:
                    lost[other] = since
            for other in told:
                count = step.clock[other]
                source = self._at.get((other, count))
                if source is not None and count > (held[other][0] if other in held else 0):
                    self._not_taken_in(step, source, lost)
            for other, since in lost.items():
                knows = f"{step} knows {other} up to {step.clock.get(other, 0)}"
                if since is None:
                    self._find(BACKWARDS, step, f"{knows}, less than nothing.")
                    continue
                then = since.clock.get(other, 0)
                self._find(BACKWARDS, step, f"{knows}, but follows {since}, which knows it up to {then}.", since)
            held.update((other, (step.clock.get(other, 0), step)) for other in [*told, *lost])

    def _not_taken_in(self, step: ClockStep, source: ClockStep, lost: dict[str, ClockStep | None]) -> None:
        """Add what `source` knew and `step`, which has it in its past, does not."""
        false = self._false.get((step.host, step.own), {})
        for other in source.clock:
            if other not in (step.host, *false) and step.clock.get(other, 0) < self._knows(source, other):
                lost.setdefault(other, source)
