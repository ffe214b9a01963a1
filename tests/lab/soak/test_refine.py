"""The council steps of simulated runs are steps of the specification; a voter that breaks a rule is found."""

from __future__ import annotations

from typing import Any

import pytest
from soak.refine import SCENARIO, NotABehaviour, validate

from tests.long import few
from whence.core.ring.council import CouncilLease, Reform, Voting


@pytest.mark.parametrize("seed", few(range(1, 201), 4))
def test_every_council_step_is_a_step_of_the_specification(seed: int) -> None:
    assert validate(seed) > 1000


LATE = SCENARIO.replace("reorder = 0.1", "reorder = 0.3").replace('reorder_by = "100ms"', 'reorder_by = "600ms"')
"""Messages overtake each other by more than a round of the ring: proposals of two voters cross."""

BROKEN: dict[str, tuple[type, str, Any]] = {
    "C3: an older incarnation": (Voting, "newest", lambda self, row, holder: True),
    "C8: accepted by who was not asked": (Reform, "may_accept", lambda self, book, ballot: True),
    "C8: vouches while it stands still": (
        Voting,
        "serving",
        lambda self: self.book is not None and not self.silent and self.book.accepted is None,
    ),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_a_voter_without_a_rule_is_no_behaviour(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, name, broken = BROKEN[rule]
    for seed in range(1, 9):
        validate(seed, LATE)
    monkeypatch.setattr(kind, name, broken)
    with pytest.raises(NotABehaviour, match=rule[:2]):
        for seed in range(1, 9):
            validate(seed, LATE)


def test_a_lease_dated_by_its_answer_is_no_behaviour(monkeypatch: pytest.MonkeyPatch) -> None:
    """C2: on slow links such an owner believes in vouches that have run out."""
    monkeypatch.setattr(CouncilLease, "dated", lambda self, sent, now: now + 10**9)
    with pytest.raises(NotABehaviour):
        for seed in range(1, 6):
            validate(seed)
