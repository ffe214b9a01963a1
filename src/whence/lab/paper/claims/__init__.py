"""Every statement of the papers and the claims that test it; declared here, measured by the experiments."""

from __future__ import annotations

import msgspec

from whence.lab.paper.claims import ccc11, pco17, survey
from whence.lab.paper.claims.model import PaperClaim, Statement, Statistics, Status
from whence.lab.stats import Estimate

STATEMENTS: dict[str, tuple[Statement, ...]] = ccc11.STATEMENTS | pco17.STATEMENTS | survey.STATEMENTS
"""What to type after `whence paper` -> the statements it tests."""


class JudgedClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A claim and its verdict."""

    key: str
    text: str
    threshold: str
    status: Status
    worst: Estimate | None
    """The estimate that decides."""


def claims(experiment: str) -> list[PaperClaim]:
    """All claims of an experiment, by key; one that two statements share is there once."""
    return list({c.key: c for s in STATEMENTS[experiment] for c in s.tested}.values())


def judged(experiment: str, statistics: Statistics) -> list[JudgedClaim]:
    """Every claim of an experiment, judged."""
    return [
        JudgedClaim(
            key=claim.key,
            text=claim.text,
            threshold=claim.threshold,
            status=claim.judge(statistics),
            worst=claim.worst(statistics),
        )
        for claim in claims(experiment)
    ]
