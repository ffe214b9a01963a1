"""The histories of docs/histories.md on which other checkers differ from the definitions."""

from __future__ import annotations

from pathlib import Path

from tests.audit.history import cases
from whence.audit.history import check
from whence.audit.history.formats import read_edn
from whence.audit.history.levels import TRANSACTIONAL


def held(text: str) -> set[str]:
    report = check(cases.history(text), TRANSACTIONAL)
    return {level for level, good in report.levels.items() if good}


def test_the_initial_state_comes_before_everything() -> None:
    assert held("w(1,1,0,0) r(1,0,0,1)") == {"RC"}


def test_read_committed_has_commit_cycles() -> None:
    assert held("w(1,1,0,0) w(1,2,0,1) w(2,2,0,1) r(2,2,1,2) r(1,1,1,2)") == set()


def test_read_atomic_has_only_its_own_edges() -> None:
    assert held("w(1,1,0,0) w(1,2,0,1) w(2,2,0,1) r(2,2,1,2) r(1,1,1,3)") == {"RC", "RA"}


def test_an_indeterminate_transaction_that_was_read_has_committed() -> None:
    text = "{:type :info :process 0 :value [[:append 1 1]]} {:type :ok :process 1 :value [[:r 1 [1]]]}"
    assert check(read_edn(Path("a.edn"), text.encode())).holds
