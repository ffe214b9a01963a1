"""What a claim is, and how it is judged. Pure.

A **statement** is what a paper says at one place: a row of docs/claims.md. Its **claims** make it testable: each has a
key, a threshold and a text. The statistic of the same key is a list of estimates, each with its interval.

Claims are judged on intervals, never on means. A claim *holds* if every interval lies within the threshold. It *fails*
if an interval lies outside it. Otherwise, and without any estimate, it is *not decided*.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from whence.errors import UsageError
from whence.lab.stats import Estimate

Status = Literal["holds", "fails", "not decided"]
Verdict = Literal[
    "holds", "holds with our correction", "depends on", "refuted", "refuted, our correction not decided", "not decided"
]
Statistics = Mapping[str, Sequence[Estimate]]
"""Key of a claim -> what was measured."""

_SIGNS = {">=": operator.ge, ">": operator.gt, "<=": operator.le, "<": operator.lt}
_BOUND = r"[<>]=? -?[\d.]+"
_CLAIM = re.compile(rf"(\S+) ({_BOUND}(?: and {_BOUND})?): (.+)", re.DOTALL)


class PaperClaim(msgspec.Struct, frozen=True):
    """One testable sentence: every estimate of the statistic `key` must lie within the threshold."""

    key: str
    """Unique in its experiment."""
    text: str
    bounds: tuple[tuple[str, float], ...]
    """Signs and numbers, such as `(">=", 0.9)`."""

    @property
    def threshold(self) -> str:
        """The threshold, for people."""
        return " and ".join(f"{sign} {bound:.6g}" for sign, bound in self.bounds)

    def judge_one(self, one: Estimate) -> Status:
        """The verdict on one interval."""
        if all(_SIGNS[sign](end, bound) for sign, bound in self.bounds for end in (one.low, one.high)):
            return "holds"
        beyond = any(not _SIGNS[sign](one.high if ">" in sign else one.low, bound) for sign, bound in self.bounds)
        return "fails" if beyond else "not decided"

    def judge(self, statistics: Statistics) -> Status:
        """The verdict on a statistic. What was not measured is not decided."""
        found = {self.judge_one(one) for one in statistics.get(self.key, ())}
        return "fails" if "fails" in found else "holds" if found == {"holds"} else "not decided"

    def worst(self, statistics: Statistics) -> Estimate | None:
        """The estimate that decides: one that fails, else one that does not decide, else the one closest to the
        threshold."""
        rank = ["fails", "not decided", "holds"]
        found = statistics.get(self.key, ())
        return min(found, key=lambda e: (rank.index(self.judge_one(e)), self._room(e)), default=None)

    def _room(self, one: Estimate) -> float:
        """The distance of an interval to the nearer bound; negative beyond it."""
        return min(one.low - bound if ">" in sign else bound - one.high for sign, bound in self.bounds)


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """What a paper says at one place, and the claims that test it."""

    place: str
    says: str
    """The paper's sentence, in quotation marks; or what we say."""
    given: str = ""
    """The paper's premises, and how we read it."""
    claims: tuple[PaperClaim, ...]
    """Together they are the statement as printed."""
    correction: str = ""
    """What we correct."""
    corrected: tuple[PaperClaim, ...] = ()
    """What holds instead, or in our protocol."""
    depends: str = ""
    """What the verdict depends on, where the claims test several conditions."""
    needs: str = ""
    """What would decide it, where the data do not."""
    loosened: str = ""
    """Where a threshold was loosened after data had been seen: what it was before."""
    note: str = ""

    @property
    def tested(self) -> tuple[PaperClaim, ...]:
        return (*self.claims, *self.corrected)

    def verdict(self, statistics: Statistics) -> Verdict:
        """The verdict that the page shows."""
        printed = [claim.judge(statistics) for claim in self.claims]
        if all(status == "holds" for status in printed):
            return "holds"
        if self.depends and "holds" in printed and "fails" in printed:
            return "depends on"
        if "fails" not in printed:
            return "not decided"
        corrected = {claim.judge(statistics) for claim in self.corrected}
        if not corrected or "fails" in corrected:
            return "refuted"
        return "refuted, our correction not decided" if "not decided" in corrected else "holds with our correction"


def claim(text: str) -> PaperClaim:
    """A claim in one string: `key >= 0.9 and <= 1.1: what is measured`."""
    found = _CLAIM.fullmatch(text)
    if found is None:
        raise UsageError(f"not a claim (key, threshold, colon, text): {text}")
    bounds = [part.split() for part in found[2].split(" and ")]
    return PaperClaim(found[1], found[3], tuple((sign, float(bound)) for sign, bound in bounds))


def read(text: str) -> dict[str, tuple[Statement, ...]]:
    """Statements by experiment, from lines of text:

    * `== ccc11/ring`: the experiment (what to type after `whence paper`);
    * `# CCC11 Lemma 4.1`: the place of a statement; the line after it is what the paper says;
    * `key >= 0.9: text`: a claim; after `correction: ...` a claim that holds instead;
    * `given: ...`, `depends: ...`, `needs: ...`, `note: ...`, `loosened: ...`: fields of `Statement`.

    A line that begins with spaces continues the one before.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    fields: dict[str, Any]
    for line in filter(None, re.sub(r"\n +", " ", text).splitlines()):
        if line.startswith("== "):
            some = found[line[3:]] = []
        elif line.startswith("# "):
            fields = {"place": line[2:], "claims": (), "corrected": ()}
            some.append(fields)
        elif "says" not in fields:
            fields["says"] = line
        elif field := re.fullmatch(r"(given|correction|depends|needs|note|loosened): (.+)", line):
            fields[field[1]] = field[2]
        else:
            fields["corrected" if "correction" in fields else "claims"] += (claim(line),)
    return {name: tuple(Statement(**fields) for fields in some) for name, some in found.items()}
