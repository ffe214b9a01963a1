"""The council steps of simulated runs are steps of the specification; a voter that breaks a rule is found."""

from __future__ import annotations

import pytest
from soak.mutants import HARD, LATE, MUTANTS, UNSEEN, Mutant, noticed
from soak.refine import validate

from tests.long import few


@pytest.mark.parametrize("seed", few(range(1, 201), 4))
def test_every_council_step_is_a_step_of_the_specification(seed: int) -> None:
    assert validate(seed) > 1000


@pytest.mark.parametrize("seed", few(range(1, 61), 1))
def test_councils_that_change_faster_than_news_spread(seed: int) -> None:
    """Seed 52: a voter that had retired began an old council again."""
    assert validate(seed, HARD) > 1000


QUICK = {"an older incarnation is vouched for", "vouches while it stands still", "accepted by who has vouched since"}


@pytest.mark.parametrize("mutant", [m for m in MUTANTS if m.what in QUICK], ids=lambda mutant: mutant.what)
def test_a_voter_without_a_rule_is_no_behaviour(mutant: Mutant) -> None:
    for seed in (1, 2):
        validate(seed, LATE)
    assert len(QUICK) == 3 and noticed(mutant, 2) is not None


@pytest.mark.long
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.what)
def test_mutants_are_noticed(mutant: Mutant) -> None:
    assert (noticed(mutant, 40) is None) == (mutant.what in UNSEEN)
