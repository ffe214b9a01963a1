"""Short ways to declare claims."""

from __future__ import annotations

from typing import Any

from whence.lab.paper.claims.model import Claim, Wording

FIRST, SECOND = "2026-11-15", "2026-11-16"
"""The days on which the claims were declared."""


def claim(
    key: str,
    text: str,
    *,
    date: str = FIRST,
    statistic: str = "",
    before: tuple[Wording, ...] = (),
    when: str = "",
    paper: str = "",
    needs: str = "",
    **threshold: Any,
) -> Claim:
    """A claim about the statistic of the same name, unless another is named."""
    now = Wording(text=text, statistic=statistic or key, date=date, **threshold)
    return Claim(key=key, now=now, before=before, when=when, paper=paper, needs=needs)


def was(text: str, statistic: str, why: str, *, date: str = FIRST, **threshold: Any) -> Wording:
    """An earlier wording, and why it was replaced."""
    return Wording(text=text, statistic=statistic, date=date, why=why, **threshold)
