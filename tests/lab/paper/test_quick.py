"""The quick form of the experiments, end to end: it does not contradict docs/claims.md."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from whence.cli import main
from whence.lab.paper import EXPERIMENTS
from whence.lab.paper.claims import claims
from whence.lab.paper.claims.model import Statistics
from whence.lab.paper.claims.page import stored
from whence.lab.paper.run import Recorded
from whence.lab.stats import Estimate

DELIVERED = "points of millions of deliveries, each with several seeds"
SIMULATED = "rings of 20 to 250 simulated members for hundreds of rounds, with several seeds"
LONG = {
    "ccc11/availability": SIMULATED,
    "ccc11/fig4": SIMULATED,
    "ccc11/fig5": SIMULATED,
    "ccc11/reach": SIMULATED,
    "ccc11/theorems": SIMULATED,
    "ccc11/editing": SIMULATED,
    "ccc11/planner": SIMULATED,
    "pco17/fig3": DELIVERED,
    "pco17/fig4": DELIVERED,
    "pco17/fig6": DELIVERED,
    "pco17/variance": DELIVERED,
    "pco17/churn": DELIVERED,
    "pco17/headers": "vector clocks of 3000 entries",
    "survey/table1": "eleven mechanisms, each in many groups and in the hostile world",
}
"""Left to `make test-long`, and why: each takes 10 processor seconds or more. All others together take less than a
minute."""

COUNTEREXAMPLES = {("ccc11/ring", "corollary-4.1"), ("pco17/alerts", "one-time")}
"""Claims on every run, refuted by a few of many: a quick run need not meet one of these."""


def contradictions(experiment: str, a: Statistics, b: Statistics) -> list[str]:
    """Claims that hold by one measurement and fail by the other. What one of them does not decide is no
    contradiction: a smaller run decides less."""
    found = {claim.key: {claim.judge(a), claim.judge(b)} for claim in claims(experiment)}
    return [key for key, verdicts in found.items() if verdicts == {"holds", "fails"}]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] if name in LONG else []) for name in EXPERIMENTS]
)
def test_the_quick_figure_does_not_contradict_the_page(name: str, tmp_path: Path) -> None:
    """If a verdict has changed, make the page again (`make claims`)."""
    assert main(["paper", name, "--quick", "--out", str(tmp_path)]) == 0
    found = msgspec.json.decode((tmp_path / "claims.json").read_bytes(), type=Recorded)
    assert (tmp_path / f"{name.rpartition('/')[2]}.csv").exists()
    contradicted = contradictions(name, found.statistics, stored().statistics(name))
    assert [key for key in contradicted if (name, key) not in COUNTEREXAMPLES] == []
    assert any(claim.status != "not decided" for claim in found.claims)


def test_a_contradiction_is_a_claim_that_holds_once_and_fails_once() -> None:
    def owners(low: float, high: float) -> dict[str, list[Estimate]]:
        return {"ours": [Estimate("a ticket", (low + high) / 2, low, high)]}

    one, two, either = owners(0, 0), owners(2, 2), owners(0, 2)
    assert contradictions("ccc11/ring", one, two) == ["ours"] == contradictions("ccc11/ring", two, one)
    assert contradictions("ccc11/ring", one, one) == contradictions("ccc11/ring", two, two) == []
    assert contradictions("ccc11/ring", one, either) == contradictions("ccc11/ring", either, two) == []
    assert contradictions("ccc11/ring", {}, one) == []
