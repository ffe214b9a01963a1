"""What a claim is, and how it is judged. Pure.

A **statement** is what a paper says at one place: a row of docs/claims.md. Its **claims** make it testable: each has a
wording, a statistic, a threshold and the date on which it was declared. A claim that is changed keeps its earlier
wordings, and the page shows the verdict under each.

Claims are judged on intervals, never on means. A statistic is a list of points, each with its interval. A claim *holds*
if every interval lies within the threshold. It *fails* if an interval lies outside it. Otherwise, and without any
point, it is *not decided*.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

Status = Literal["holds", "fails", "not decided"]
Verdict = Literal["holds", "holds with our correction", "depends on", "refuted", "not decided"]


class Point(msgspec.Struct, frozen=True, array_like=True):
    """A measured value with its interval; an exact value is its own interval."""

    at: str
    """Where it was measured, such as `N = 1000`."""
    value: float
    low: float
    high: float


Statistics = Mapping[str, Sequence[Point]]
"""Name of a statistic -> its points."""


class Wording(msgspec.Struct, frozen=True, kw_only=True):
    """One wording of a claim: every point of the statistic must lie within the threshold."""

    text: str
    statistic: str
    date: str
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    why: str = ""
    """Of an earlier wording: why it was replaced."""

    @property
    def threshold(self) -> str:
        """The threshold, for people."""
        signs = {">=": self.at_least, ">": self.above, "<=": self.at_most, "<": self.below}
        return " and ".join(f"{sign} {bound:.6g}" for sign, bound in signs.items() if bound is not None)

    def allows(self, value: float) -> bool:
        """Whether a value lies within the threshold."""
        return not (self._too_low(value) or self._too_high(value))

    def _too_low(self, value: float) -> bool:
        return (self.at_least is not None and value < self.at_least) or (self.above is not None and value <= self.above)

    def _too_high(self, value: float) -> bool:
        return (self.at_most is not None and value > self.at_most) or (self.below is not None and value >= self.below)

    def judge_point(self, point: Point) -> Status:
        """The verdict on one interval."""
        if self.allows(point.low) and self.allows(point.high):
            return "holds"
        if self._too_low(point.high) or self._too_high(point.low):
            return "fails"
        return "not decided"

    def judge(self, statistics: Statistics) -> Status:
        """The verdict on a statistic. What was not measured is not decided."""
        found = {self.judge_point(point) for point in statistics.get(self.statistic, ())}
        if "fails" in found:
            return "fails"
        return "holds" if found == {"holds"} else "not decided"

    def worst(self, statistics: Statistics) -> Point | None:
        """The point that decides: one that fails, else one that does not decide, else the one closest to the
        threshold."""
        rank = {"fails": 0, "not decided": 1, "holds": 2}
        points = statistics.get(self.statistic, ())
        return min(points, key=lambda p: (rank[self.judge_point(p)], self._room(p)), default=None)

    def _room(self, point: Point) -> float:
        """The distance of an interval to the nearer bound; negative beyond it."""
        lower = [point.low - bound for bound in (self.at_least, self.above) if bound is not None]
        upper = [bound - point.high for bound in (self.at_most, self.below) if bound is not None]
        return min(lower + upper)


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """One testable sentence."""

    key: str
    """Unique in its experiment."""
    now: Wording
    before: tuple[Wording, ...] = ()
    """Earlier wordings, oldest first."""
    when: str = ""
    """The condition under which this is tested, where the statement has several."""
    paper: str = ""
    """The paper's own value, where its text gives one."""
    needs: str = ""
    """What would decide it, where the data do not."""

    @property
    def wordings(self) -> tuple[Wording, ...]:
        """All of them, the present one last."""
        return (*self.before, self.now)


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """What a paper says at one place, and the claims that test it."""

    place: str
    says: str
    """The paper's sentence in our words."""
    experiment: str
    """What to type after `whence paper`."""
    claims: tuple[Claim, ...]
    """Together they are the statement as printed."""
    corrected: tuple[Claim, ...] = ()
    """What holds instead, or in our protocol."""
    correction: str = ""
    """What we correct."""
    depends: str = ""
    """What the verdict depends on, where the claims test several conditions."""
    note: str = ""

    @property
    def tested(self) -> tuple[Claim, ...]:
        return (*self.claims, *self.corrected)

    def verdict(self, judged: Callable[[Claim], Status]) -> Verdict:
        """The verdict that the page shows."""
        printed = [judged(claim) for claim in self.claims]
        if all(status == "holds" for status in printed):
            return "holds"
        if self.depends and "holds" in printed and "fails" in printed:
            return "depends on"
        if "fails" not in printed:
            return "not decided"
        if self.corrected and all(judged(claim) == "holds" for claim in self.corrected):
            return "holds with our correction"
        return "refuted"
