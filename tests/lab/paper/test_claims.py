"""Claims: how they are judged; each can fail; the page agrees with the declared claims and the stored results."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from whence.cli import main
from whence.lab.paper import EXPERIMENTS, LIVE
from whence.lab.paper.claims import PAPERS, claims, judged, statements
from whence.lab.paper.claims.declare import claim, was
from whence.lab.paper.claims.intervals import (
    difference,
    exact,
    mean,
    means,
    paired_quotient,
    quotient,
    rare,
    ratio,
    share,
    student,
)
from whence.lab.paper.claims.model import Claim, Point, Statement, Statistics
from whence.lab.paper.claims.page import Results, encode, page, stored

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
    c = claim("x", "", below=0.5)
    assert c.now.judge({"x": [Point("", (low + high) / 2, low, high)]}) == status


def test_a_closed_threshold_allows_its_end() -> None:
    c = claim("x", "", at_least=0, at_most=1)
    assert c.now.judge({"x": [exact("", 0), exact("", 1)]}) == "holds"
    assert c.now.judge({"x": [exact("", 1.001)]}) == "fails"


def test_what_was_not_measured_is_not_decided() -> None:
    c = claim("x", "", above=0)
    assert c.now.judge({}) == c.now.judge({"x": []}) == "not decided"
    assert c.now.worst({}) is None


def test_one_point_outside_fails_a_claim_about_many() -> None:
    c = claim("x", "", above=0)
    good, open_, bad = Point("g", 2, 1, 3), Point("o", 1, -1, 3), Point("b", -2, -3, -1)
    assert c.now.judge({"x": [good, good]}) == "holds"
    assert c.now.judge({"x": [good, open_]}) == "not decided"
    assert c.now.judge({"x": [good, open_, bad]}) == "fails"
    assert c.now.worst({"x": [good, open_, bad]}) == bad
    assert c.now.worst({"x": [good, Point("closer", 2, 0.5, 3)]}) == Point("closer", 2, 0.5, 3)


def statement(depends: str = "", corrected: tuple[Claim, ...] = ()) -> Statement:
    some = (claim("a", "", above=0), claim("b", "", above=0))
    return Statement(place="", says="", experiment="x", claims=some, corrected=corrected, depends=depends)


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
    ],
)
def test_verdicts(a: int, b: int | None, c: int, depends: str, verdict: str) -> None:
    found: dict[str, list[Point]] = {k: [exact("", v)] for k, v in (("a", a), ("b", b), ("c", c)) if v is not None}
    s = statement(depends, (claim("c", "", above=0),))
    assert s.verdict(lambda one: one.now.judge(found)) == verdict


def test_a_changed_claim_is_judged_under_every_wording() -> None:
    c = claim("x", "new", at_most=0.25, before=(was("old", "x", "loosened", at_most=0.2),))
    assert [w.judge({"x": [exact("", 0.22)]}) for w in c.wordings] == ["fails", "holds"]


# -- intervals


def test_students_t() -> None:
    for df, t in ((1, 12.706), (2, 4.303), (4, 2.776), (9, 2.262), (30, 2.042)):
        assert student(df) == pytest.approx(t, abs=0.002)
    assert student(4, of=10) > student(4, of=2) > student(4)
    assert student(1000) == pytest.approx(1.96, abs=0.001)


def test_intervals_cover_as_often_as_they_say() -> None:
    rng = random.Random(5)
    hit = sum(p.low <= 3 <= p.high for p in (mean("", [rng.gauss(3, 2) for _ in range(5)]) for _ in range(1000)))
    assert 930 <= hit <= 970


def test_pairs_remove_what_runs_share() -> None:
    rng = random.Random(6)
    load = [rng.uniform(0, 100) for _ in range(6)]
    a, b = [x + rng.gauss(1, 0.1) for x in load], load
    assert claim("x", "", above=0).now.judge({"x": [difference("", a, b)]}) == "holds"
    apart = [Point("", 0, x.low - y.high, x.high - y.low) for x, y in [(mean("", a), mean("", b))]]
    assert claim("x", "", above=0).now.judge({"x": apart}) == "not decided"
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
        assert claim("x", "", above=-1e9).now.judge({"x": [point]}) == "not decided"


def test_points_judged_together_have_wider_intervals() -> None:
    [one] = means({"a": [1.0, 2.0, 3.0]})
    two = means({"a": [1.0, 2.0, 3.0], "b": [1.0, 2.0, 3.0]})
    assert two[0].high > one.high and share("", 5, 10, 3).high > share("", 5, 10).high


def test_none_of_many_is_not_zero() -> None:
    assert 0 < rare("", [0.0, 0.0, 0.0], [100, 100, 100]).high < 0.02
    assert share("", 0, 0) == Point("", 0.0, 0.0, 1.0)


# -- every declared claim


def outside(c: Claim) -> list[float]:
    """Values beyond each bound of a threshold."""
    now = c.now
    below = [b - 1 for b in (now.at_least, now.above) if b is not None]
    return below + [b + 1 for b in (now.at_most, now.below) if b is not None]


@pytest.mark.parametrize(("name", "c"), ALL, ids=[f"{n}:{c.key}" for n, c in ALL])
def test_every_claim_can_fail(name: str, c: Claim) -> None:
    assert outside(c), "a claim without a threshold cannot fail"
    for value in outside(c):
        assert c.now.judge({c.now.statistic: [exact("", value)]}) == "fails"
    assert c.now.judge({c.now.statistic: []}) == "not decided"
    assert all(w.why for w in c.before) and c.now.text and c.now.date


def test_keys_are_unique_and_every_experiment_has_claims() -> None:
    for name in NAMES:
        by_key: dict[str, Claim] = {}
        for s in statements(name):
            for c in s.tested:
                assert by_key.setdefault(c.key, c) == c
        assert by_key, f"{name} tests nothing"
    assert {s.experiment for s in statements()} == set(NAMES)
    assert all(s.place and s.says and s.claims for s in statements())
    assert all(bool(s.corrected) == bool(s.correction) for s in statements())


# -- the page


def test_the_page_is_made_from_the_claims_and_the_stored_results() -> None:
    """A verdict cannot change without the page: `whence paper all` writes both."""
    assert page(stored()) == (ROOT / "docs/claims.md").read_text(encoding="utf-8")


def test_the_stored_results_hold_what_the_claims_need() -> None:
    results = stored()
    for name, found in results.experiments.items():
        for c in claims(name):
            assert c.now.statistic in found.statistics, f"{name}: {c.key}"


def test_what_is_not_decided_says_what_would_decide_it() -> None:
    results = stored()
    for s in statements():
        for c in s.tested:
            if results.status(s, c) == "not decided" and results.verdict(s) == "not decided":
                assert c.needs, f"{s.experiment}: {c.key}"


def test_results_survive_their_file(tmp_path: Path) -> None:
    import msgspec

    results = stored()
    again = msgspec.json.decode(encode(results), type=Results)
    assert page(again) == page(results)


def test_a_changed_result_changes_the_page() -> None:
    results = stored()
    before = page(results)
    name, found = next(iter(results.experiments.items()))
    c = claims(name)[0]
    found.statistics[c.now.statistic] = [exact("", value) for value in outside(c)]
    assert page(results) != before


def test_without_arguments_the_table_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paper"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Theorem 4.2" in shown and "ccc11/ring" in shown and "Figure 3" in shown
    for name in NAMES:
        assert name.split("/")[1].split()[0] in shown


def test_the_table_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    import json

    assert main(["paper", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["statements"]) == sum(map(len, PAPERS.values()))
    assert {"place", "says", "verdict", "command", "claims"} <= set(found["statements"][0])


def test_judged_lists_every_wording() -> None:
    empty: Statistics = {}
    found = judged("pco17/headers", empty)
    assert [j.earlier for j in found if j.key == "of-vector-1000"] == [True, False]
    assert {j.status for j in found} == {"not decided"}
