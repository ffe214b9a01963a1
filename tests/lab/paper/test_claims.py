"""Claims: how they are judged; each can fail; the page agrees with the declared claims and the stored results."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from whence.cli import main
from whence.errors import UsageError
from whence.lab.paper import EXPERIMENTS, LIVE
from whence.lab.paper.claims import STATEMENTS, claims
from whence.lab.paper.claims.model import PaperClaim, claim, read
from whence.lab.paper.claims.page import page, stored
from whence.lab.stats import (
    Estimate,
    clustered,
    difference,
    exact,
    mean,
    means,
    paired_quotient,
    quotient,
    ratio,
    share,
    student,
)

ROOT = Path(__file__).parents[3]
NAMES = [*EXPERIMENTS, *(f"{name} --live" for name in LIVE)]
ALL = [(name, c) for name in NAMES for c in claims(name)]


# -- judging


@pytest.mark.parametrize(
    ("low", "high", "status"),
    [
        (0.2, 0.4, "holds"),
        (0.6, 0.9, "fails"),
        (0.4, 0.6, "not decided"),
        (0.5, 0.5, "fails"),
        (0.1, 0.5, "not decided"),
    ],
)
def test_a_claim_is_judged_on_the_interval(low: float, high: float, status: str) -> None:
    c = claim("x < 0.5: y")
    assert c.judge({"x": [Estimate("", (low + high) / 2, low, high)]}) == status


def test_a_closed_threshold_allows_its_end() -> None:
    c = claim("x >= 0 and <= 1: y")
    assert c.judge({"x": [exact("", 0), exact("", 1)]}) == "holds"
    assert c.judge({"x": [exact("", 1.001)]}) == "fails"


def test_what_was_not_measured_is_not_decided() -> None:
    c = claim("x > 0: y")
    assert c.judge({}) == c.judge({"x": []}) == "not decided"
    assert c.worst({}) is None


def test_one_point_outside_fails_a_claim_about_many() -> None:
    c = claim("x > 0: y")
    good, open_, bad = Estimate("g", 2, 1, 3), Estimate("o", 1, -1, 3), Estimate("b", -2, -3, -1)
    assert c.judge({"x": [good, good]}) == "holds"
    assert c.judge({"x": [good, open_]}) == "not decided"
    assert c.judge({"x": [good, open_, bad]}) == "fails"
    assert c.worst({"x": [good, open_, bad]}) == bad
    assert c.worst({"x": [good, Estimate("closer", 2, 0.5, 3)]}) == Estimate("closer", 2, 0.5, 3)


@pytest.mark.parametrize(
    ("a", "b", "c", "depends", "verdict"),
    [
        (1, 1, -1, "", "holds"),
        (1, -1, -1, "", "refuted"),
        (1, -1, 1, "", "holds with our correction"),
        (1, -1, 1, "the weather", "depends on"),
        (-1, -1, -1, "the weather", "refuted"),
        (1, None, 1, "", "not decided"),
        (-1, None, 1, "", "holds with our correction"),
        (-1, 1, None, "", "refuted, our correction not decided"),
    ],
)
def test_verdicts(a: int, b: int | None, c: int | None, depends: str, verdict: str) -> None:
    found = {k: [exact("", v)] for k, v in (("a", a), ("b", b), ("c", c)) if v is not None}
    text = "== x\n# here\nthis\ngiven: that it is so\na > 0: x\nb > 0: x\ncorrection: that\nc > 0: x\n  and more"
    [s] = read(f"{text}\ndepends: {depends}" if depends else text)["x"]
    assert s.verdict(found) == verdict
    assert (s.place, s.says, s.correction, s.corrected[0].text) == ("here", "this", "that", "x and more")
    assert s.given == "that it is so"


def test_a_claim_says_key_threshold_and_text() -> None:
    c = claim("off-R1 >= -0.05 and <= 0.05: R1: success")
    assert (c.key, c.text, c.threshold) == ("off-R1", "R1: success", ">= -0.05 and <= 0.05")
    for text in ("x: no threshold", "x about 3: y", "x > 0", "> 0: no key"):
        with pytest.raises(UsageError, match="not a claim"):
            claim(text)


# -- intervals


def test_students_t() -> None:
    for df, t in ((1, 12.706), (2, 4.303), (4, 2.776), (9, 2.262), (30, 2.042)):
        assert student(df) == pytest.approx(t, abs=0.002)
    assert student(4, of=10) > student(4, of=2) > student(4)
    assert student(1000) == pytest.approx(1.9623, abs=0.0001)


def test_intervals_cover_as_often_as_they_say() -> None:
    rng = random.Random(5)
    hit = sum(p.low <= 3 <= p.high for p in (mean("", [rng.gauss(3, 2) for _ in range(5)]) for _ in range(1000)))
    assert 930 <= hit <= 970


def test_pairs_remove_what_runs_share() -> None:
    rng = random.Random(6)
    load = [rng.uniform(0, 100) for _ in range(6)]
    a, b = [x + rng.gauss(1, 0.1) for x in load], load
    assert claim("x > 0: y").judge({"x": [difference("", a, b)]}) == "holds"
    apart = [Estimate("", 0, x.low - y.high, x.high - y.low) for x, y in [(mean("", a), mean("", b))]]
    assert claim("x > 0: y").judge({"x": apart}) == "not decided"
    assert ratio("", a, b).value > 1


def test_a_quotient_of_short_runs_has_no_bias() -> None:
    """Both count the same rare errors, half of them apart; the mean of the ratios is 1.3 where the quotient is 1."""
    rng = random.Random(7)

    def runs() -> tuple[list[float], list[float]]:
        shared = [rng.expovariate(1) for _ in range(64)]
        return [x + rng.expovariate(2) for x in shared], [x + rng.expovariate(2) for x in shared]

    found = [(paired_quotient("", a, b), ratio("", a, b).value) for a, b in (runs() for _ in range(400))]
    assert 0.92 <= sum(p.low <= 1 <= p.high for p, _ in found) / len(found) <= 0.98
    assert sum(p.value for p, _ in found) / len(found) == pytest.approx(1, abs=0.01)
    assert sum(r for _, r in found) / len(found) > 1.1


def test_a_single_run_decides_nothing() -> None:
    alone = (quotient("", [1.0], [2.0]), paired_quotient("", [1.0], [2.0]), ratio("", [1.0], [0.0]))
    for point in (mean("", [5.0]), *alone, paired_quotient("", [1.0, 2.0], [0.0, 0.0])):
        assert claim("x > -1000000000: y").judge({"x": [point]}) == "not decided"


def test_points_judged_together_have_wider_intervals() -> None:
    [one] = means({"a": [1.0, 2.0, 3.0]})
    two = means({"a": [1.0, 2.0, 3.0], "b": [1.0, 2.0, 3.0]})
    assert two[0].high > one.high and share("", 5, 10, 3).high > share("", 5, 10).high


def test_none_of_many_is_not_zero() -> None:
    assert 0 < clustered("", [0.0, 0.0, 0.0], [100, 100, 100]).high < 0.02
    assert share("", 0, 0) == Estimate("", 0.0, 0.0, 1.0)
    assert 0.88 < share("", 95, 100).low < 0.9 and 0.97 < share("", 95, 100).high < 0.99


def test_what_runs_share_widens_their_interval() -> None:
    """Half of five runs fail altogether: 500 trials, but five observations."""
    even, apart = clustered("", [50, 49, 51, 50, 50], [100] * 5), clustered("", [100, 0, 100, 0, 50], [100] * 5)
    assert even.value == apart.value == 0.5 and even.high - even.low < 0.03
    assert apart.low < 0.1 and apart.high > 0.9 and share("", 250, 500).low > 0.45
    assert clustered("", [9, 0], [10, 0]) == share("", 9, 10)  # a run without trials says nothing


# -- every declared claim


def outside(c: PaperClaim) -> list[float]:
    """Values beyond each bound of a threshold."""
    return [bound - 1 if ">" in sign else bound + 1 for sign, bound in c.bounds]


def test_every_claim_can_fail() -> None:
    for _, c in ALL:
        assert c.bounds and c.text
        for value in outside(c):
            assert c.judge({c.key: [exact("", value)]}) == "fails"


def test_keys_are_unique_and_every_experiment_has_claims() -> None:
    assert list(STATEMENTS) != [] and set(STATEMENTS) == set(NAMES)
    for some in STATEMENTS.values():
        by_key: dict[str, PaperClaim] = {}
        for s in some:
            assert s.place and s.says and s.claims and bool(s.corrected) == bool(s.correction)
            for c in s.tested:
                assert by_key.setdefault(c.key, c) == c


# -- the page


def test_the_page_is_made_from_the_claims_and_the_stored_results() -> None:
    """A verdict cannot change without the page: `whence paper all` writes both."""
    assert page(stored()) == (ROOT / "docs/claims.md").read_text(encoding="utf-8")


def test_the_stored_results_hold_what_the_claims_need() -> None:
    results = stored()
    for name, found in results.experiments.items():
        for c in claims(name):
            assert c.key in found.statistics, f"{name}: {c.key}"


def test_a_quick_run_decides_nothing() -> None:
    results = stored()
    name, some = next(iter(STATEMENTS.items()))
    assert "holds" in {results.verdict(name, s) for s in some}
    results.experiments[name].quick = True
    assert {results.verdict(name, s) for s in some} == {"not decided"}
    assert f"whence paper {name} --quick" in page(results)


def test_results_say_where_they_were_measured() -> None:
    for name, found in stored().experiments.items():
        assert found.made.commit and found.made.date and found.made.machine, name


def test_what_is_not_decided_says_what_would_decide_it() -> None:
    for line in page(stored()).splitlines():
        assert "| **not decided** |" not in line or "*To decide it:*" in line, line


def test_without_arguments_the_table_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paper"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Theorem 4.2" in shown and "ccc11/ring" in shown and "Figure 3" in shown
    for name in NAMES:
        assert name.split("/")[1].split()[0] in shown
