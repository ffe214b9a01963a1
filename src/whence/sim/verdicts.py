"""What the oracle found: counts per member and per order, and the first violations in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import ClassVar


@dataclass
class Counts:
    """Events, not frames: a frame of 20 out of order counts 20."""

    PROMISES: ClassVar[dict[str, tuple[str, ...]]] = {
        "unordered": ("unknown",),
        "fifo": ("unknown", "duplicates", "fifo_inverted"),
        "causal": ("unknown", "duplicates", "inverted"),
        "reliable": ("unknown", "duplicates", "inverted", "over_gap", "lost_of_live", "disagreements"),
        "probabilistic": ("unknown", "duplicates"),
    }
    """Which of the counts below have to be zero under each order. Optimistic causal order may lose, never invert; the
    probabilistic order may invert, rarely (docs/protocols.md, "The model in words")."""

    deliveries: int = 0
    """All delivery steps, whatever the verdict."""
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

    def copy(self) -> Counts:
        return replace(self)


class Violations:
    """The first few of each kind, in words; all are counted in `Counts`."""

    LIMIT = 5

    def __init__(self, kept: dict[str, list[str]] | None = None) -> None:
        self.kept: dict[str, list[str]] = kept or {}

    def add(self, kind: str, text: Callable[[], str]) -> None:
        of = self.kept.setdefault(kind, [])
        if len(of) < self.LIMIT:
            of.append(text())

    def copy(self) -> Violations:
        return Violations({kind: list(texts) for kind, texts in self.kept.items()})


@dataclass
class OracleReport:
    """The verdict on a whole run."""

    published: int
    """Events published."""
    reused_ids: int
    """Events published under an id that was used before: never right, under any order."""
    members: dict[str, Counts]
    """What was found at each member."""
    orders: dict[str, str]
    """The order each member promises."""
    live: list[str]
    """The members that were there at the end."""
    violations: dict[str, list[str]] = field(default_factory=dict)
    """`order: count's name` -> the first few, explained; also of what that order allows (see `broken`)."""

    @cached_property
    def by_order(self) -> dict[str, Counts]:
        """The counts of all members with the same order together: an unordered member's inversions are no fault."""
        out: dict[str, Counts] = {}
        for member, counts in self.members.items():
            order = self.orders[member]
            out[order] = out.get(order, Counts()) + counts
        return out

    @cached_property
    def total(self) -> Counts:
        """The counts of all members."""
        return sum(self.by_order.values(), Counts())

    @property
    def broken(self) -> dict[str, int]:
        """Promises broken, as `order: count's name` -> how often. Empty in a good run."""
        out = {"ids: reused": self.reused_ids}
        for order, counts in self.by_order.items():
            out |= {f"{order}: {name}": getattr(counts, name) for name in Counts.PROMISES[order]}
        return {name: n for name, n in out.items() if n}

    @property
    def ok(self) -> bool:
        """Every member got what its order promises."""
        return not self.broken

    def as_dict(self) -> dict[str, object]:
        """For machines: totals, counts per order, what is broken, the first violations."""
        per_order = {order: {**asdict(c), "in_order": c.in_order} for order, c in self.by_order.items()}
        return {
            "ok": self.ok,
            "published": self.published,
            "reused_ids": self.reused_ids,
            "members": len(self.members),
            "live": len(self.live),
            "by_order": per_order,
            "broken": self.broken,
            "violations": self.violations,
        }

    def __str__(self) -> str:
        t = self.total
        lines = [
            f"{self.published} events published, {t.deliveries} deliveries at {len(self.members)} members: "
            f"{t.in_order} in order, {t.after_gap} after a gap, {t.over_gap} over a gap, {t.inverted} inverted, "
            f"{t.duplicates} twice; {t.lost} lost"
        ]
        for name, n in self.broken.items():
            lines += [f"broken: {name} ({n})", *(f"  {text}" for text in self.violations.get(name, []))]
        return "\n".join(lines)


def ordinal(n: int) -> str:
    """1st, 2nd, 3rd, 11th."""
    last = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{last}"
