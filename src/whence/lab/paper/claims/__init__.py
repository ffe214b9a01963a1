"""Every statement of the papers and the claims that test it; declared here, measured by the experiments."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from whence.lab.paper.claims import ccc11, clusters, loads, pco17, survey
from whence.lab.paper.claims.model import Claim, Point, Statement, Statistics, Status

PAPERS: dict[str, tuple[Statement, ...]] = {
    "CCC11 and CCC05, cluster management": clusters.STATEMENTS,
    "CCC11 and CCC05, the two layers": ccc11.STATEMENTS,
    "CCC11 beyond the paper": loads.STATEMENTS,
    "PCO17": pco17.STATEMENTS,
    "SURVEY": survey.STATEMENTS,
}
"""Title of a section of docs/claims.md -> its statements."""


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """One wording of a claim and its verdict; of a claim with earlier wordings there are several."""

    key: str
    text: str
    threshold: str
    date: str
    status: Status
    worst: Point | None
    """The point that decides."""
    earlier: bool = False
    """Not the present wording."""


def statements(experiment: str = "") -> Iterable[Statement]:
    """All of them, or those of one experiment."""
    return (s for some in PAPERS.values() for s in some if not experiment or s.experiment == experiment)


def claims(experiment: str) -> list[Claim]:
    """All claims of an experiment, by key; one that two statements share is there once."""
    return list({c.key: c for s in statements(experiment) for c in s.tested}.values())


def contradictions(experiment: str, a: Statistics, b: Statistics) -> list[str]:
    """Claims that hold by one measurement and fail by the other. What one of them does not decide is no
    contradiction: a smaller run decides less."""
    found = {claim.key: {claim.now.judge(a), claim.now.judge(b)} for claim in claims(experiment)}
    return [key for key, verdicts in found.items() if verdicts == {"holds", "fails"}]


def judged(experiment: str, statistics: Statistics) -> list[Judged]:
    """Every wording of every claim of an experiment, judged."""
    return [
        Judged(
            key=claim.key,
            text=wording.text,
            threshold=wording.threshold,
            date=wording.date,
            status=wording.judge(statistics),
            worst=wording.worst(statistics),
            earlier=wording is not claim.now,
        )
        for claim in claims(experiment)
        for wording in claim.wordings
    ]
