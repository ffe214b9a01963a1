"""The verdict on a whole run: counts per member and per order, promises broken, what is in doubt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property

from whence.audit.judge import findings
from whence.audit.judge.causality import Causality, Life
from whence.audit.judge.findings import Doubt, Finding
from whence.audit.judge.promises import CAUSAL, FIFO, GAP, INTEGRITY, RULES, SILENT, Verdict, promise

KEPT = 5
"""Findings of each rule that are explained. All are counted."""
_BY_VERDICT = (CAUSAL, FIFO, INTEGRITY, GAP)  # the others are counted by finding


@dataclass
class Counts:
    """Events, not frames: a frame of 20 out of order counts 20."""

    deliveries: int = 0
    """All deliveries, whatever the verdict."""
    inverted: int = 0
    """Delivered after something that it causally precedes."""
    fifo_inverted: int = 0
    """Those of them delivered after a later event of the same origin."""
    over_gap: int = 0
    """Delivered by skipping something in the event's past (that no snapshot covers)."""
    after_gap: int = 0
    """Delivered with nothing newly skipped, but with something in the past that was skipped here before: all that
    depends on a lost event, to the end of the run."""
    duplicates: int = 0
    """Delivered again."""
    unknown: int = 0
    """Delivered, but published by nobody."""
    gaps: int = 0
    """Skipped for good: never delivered, though something that follows was."""
    lost: int = 0
    """Due to a live member and never delivered: `gaps` and the tail after the last delivery."""
    lost_of_live: int = 0
    """Those of them whose publisher is alive."""
    disagreements: int = 0
    """Those of them that another live member has delivered (or has in the snapshot it began with)."""

    @property
    def in_order(self) -> int:
        """Delivered with the whole past there."""
        other = self.inverted + self.over_gap + self.after_gap + self.duplicates + self.unknown
        return self.deliveries - other

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Counts)))


@dataclass
class Report:
    """The verdict on a whole run."""

    published: int
    """Events published."""
    members: dict[str, Counts]
    """What was found at each member."""
    live: list[str]
    """The members that were there at the end."""
    broken: dict[str, int]
    """Rule -> how often it was broken, in events. Empty in a good run."""
    findings: list[Finding] = field(default_factory=list)
    """The first few of each rule, explained."""
    doubts: list[Doubt] = field(default_factory=list)
    """What cannot be judged, by member."""
    tenures: int = 0
    """How often a member owned a ticket."""

    @cached_property
    def total(self) -> Counts:
        """The counts of all members."""
        return sum(self.members.values(), Counts())

    @property
    def ok(self) -> bool:
        """Every member got what its order promises, as far as can be told."""
        return not self.broken

    def __str__(self) -> str:
        t = self.total
        lines = [
            f"{self.published} events published, {t.deliveries} deliveries at {len(self.members)} members: "
            f"{t.in_order} in order, {t.after_gap} after a gap, {t.over_gap} over a gap, {t.inverted} inverted, "
            f"{t.duplicates} twice; {t.lost} lost"
        ]
        for rule, n in self.broken.items():
            lines += [f"broken: {rule} ({n})", *(f"  {f}" for f in self.findings if f.rule == rule)]
        return "\n".join([*lines, *map(str, self.doubts)])


def report(
    judged: Causality,
    found: Iterable[Finding] = (),
    *,
    waiting: Mapping[str, Collection[object]] | None = None,
) -> Report:
    """The run so far. `found`: findings on deliveries, ids and tickets; a few of each rule are kept. What is
    not delivered is lost. `waiting`: member -> keys of what it has received and holds back, as its order may: it is not
    lost."""
    members = {name: _counts(judged, life) for name, life in judged.lives.items()}
    broken: Counter[str] = Counter()
    for life in judged.lives.values():
        for verdict, rule in promise(life.order).forbids.items():
            broken[rule] += life.counts[verdict]
    kept: dict[str, list[Finding]] = {}
    lost = [*_lost(judged, members, waiting or {}), *_silent(judged)]
    for events, finding in [*((1, f) for f in found), *lost]:
        if finding.rule not in _BY_VERDICT:
            broken[finding.rule] += events
        of = kept.setdefault(finding.rule, [])
        if len(of) < KEPT:
            of.append(finding)
    return Report(
        published=sum(origin.upto[-1] for origin in judged.origins),
        members=members,
        live=[name for name, life in judged.lives.items() if life.alive],
        broken={rule: broken[rule] for rule in RULES if broken[rule]},
        findings=[f for rule in RULES for f in kept.get(rule, ())],
    )


def _counts(judged: Causality, life: Life) -> Counts:
    by = life.counts
    holes = [] if life.superseded else [(o, range(h[0], h[1] + 1)) for o, of in life.holes.items() for h in of]
    return Counts(
        deliveries=life.delivered,
        inverted=by[Verdict.INVERTED] + by[Verdict.FIFO_INVERTED],
        fifo_inverted=by[Verdict.FIFO_INVERTED],
        over_gap=by[Verdict.OVER_GAP],
        after_gap=by[Verdict.AFTER_GAP],
        duplicates=by[Verdict.DUPLICATE],
        unknown=by[Verdict.UNKNOWN],
        gaps=sum(judged.size(o, seqs) for o, seqs in holes),
    )


def _lost(
    judged: Causality, members: dict[str, Counts], waiting: Mapping[str, Collection[object]]
) -> Iterator[tuple[int, Finding]]:
    """Counts what live members never delivered though it was due to them. Yields what of that breaks agreement: another
    live member has it, or its publisher is alive; and how many events that are."""
    live = [life for life in judged.lives.values() if life.alive]
    for o, origin in enumerate(judged.origins):
        last, published_by = len(origin.keys), judged.lives[origin.name]
        nobody = set(range(1, last + 1)).intersection(*(life.undelivered(o, last, due=False) for life in live))
        for life in live:
            held = waiting.get(life.name, ())
            due = {n for n in life.undelivered(o, last, due=True) if not held or origin.keys[n - 1] not in held}
            if not due:
                continue
            counts, lost = members[life.name], judged.size(o, due)
            counts.lost += lost
            counts.lost_of_live += lost if published_by.alive else 0
            counts.disagreements += judged.size(o, due - nobody)
            if not promise(life.order).agreement:
                continue
            for some in _runs(due if published_by.alive else due - nobody):
                events, first = judged.size(o, some), judged.event((o, some[0]))
                yield events, findings.missed(life.name, first, events - 1, some[0] not in nobody)


def _silent(judged: Causality) -> Iterator[tuple[int, Finding]]:
    """Live members without agreement that have nothing of others; and 1 each."""
    live = [life for life in judged.lives.values() if life.alive]
    most = [max(seqs) for seqs in zip(*(life.X for life in live), strict=True)]
    for life in live:
        others = [o for o in range(len(most)) if o != life.origin]
        events = sum(most[o] for o in others)
        if events >= SILENT and not promise(life.order).agreement and not any(life.X[o] for o in others):
            yield 1, findings.silent(life.name, events)


def _runs(seqs: set[int]) -> list[list[int]]:
    """Consecutive ones together, in ascending order."""
    out: list[list[int]] = []
    for seq in sorted(seqs):
        if out and out[-1][-1] == seq - 1:
            out[-1].append(seq)
        else:
            out.append([seq])
    return out
