"""The council steps of a live cluster are steps of the specification; a voter that breaks a rule is found."""

from __future__ import annotations

import pytest
from soak.refine_live import validate

from whence.core.ring.council import Voting


@pytest.mark.long
def test_every_council_step_of_a_live_cluster_is_a_step_of_the_specification() -> None:
    assert validate(60, 5, 1)


@pytest.mark.long
def test_a_live_voter_that_vouches_while_it_stands_still_is_no_behaviour(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = lambda self: self.book is not None and not self.silent and self.book.accepted is None  # noqa: E731
    monkeypatch.setattr(Voting, "serving", broken)
    assert not validate(120, 5, 1)
    assert "it stands still (C8)" in capsys.readouterr().out
