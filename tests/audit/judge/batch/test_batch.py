"""The batch form of the judge, without Spark."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

import pytest

from tests.audit.judge.batch.rows import HOSTILE, A, B, C, judge, spoiled, step, triangle, verdicts, violations
from tests.audit.judge.follower import Follower
from tests.audit.judge.traces import cut, mixed_up, trace
from tests.lab.sim.runs import Run
from tests.long import few
from whence.audit.judge import Counts, Doubt, Finding
from whence.audit.judge.batch import audited, tables
from whence.audit.judge.findings import MISSING_STEPS, OPEN_END
from whence.audit.judge.promises import AGREEMENT, IMPOSSIBLE, SILENCE, SILENT
from whence.audit.trace import Row
from whence.lab.sim.scenario import Loaded, parse


def in_words(a: audited.Audited) -> list[Doubt]:
    return [Doubt(member, why, n) for (_, member, why), n in sorted(audited.doubts(a).items())]


def agree(rows: list[Row]) -> Counts:
    """Every verdict, every finding, every doubt and every count of every member are those of the incremental judge."""
    rows = random.Random(len(rows)).sample(rows, len(rows))
    follower = Follower(rows)
    judged, found = follower.judged, follower.findings
    a = judge(rows, complete=True)
    for room in (0, 500):  # as where all publishers at once would take too much memory: a column or a few at a time
        other = audited.audited(a.coded, room)
        assert all((mine == theirs).all() for mine, theirs in zip(other.found, a.found, strict=True))
        assert sorted(other.lacks.tolist()) == sorted(a.lacks.tolist())
    wrong = {(f.member, f.step) for f in found if f.doubt is None}
    expected = {
        (j.member, j.step): (j.event, j.origin, j.seq, j.verdict.text, j.order, j.cause and j.cause.id, at in wrong)
        for j in judged
        for at in [(j.member, j.step)]
    }
    names = ("event", "origin", "seq", "verdict", "order", "cause_event", "violation")
    table = tables.verdicts(a).to_pylist()
    assert {(v["member"], v["lseq"]): tuple(v[name] for name in names) for v in table} == expected
    assert len(table) == len(expected)
    every = [f for _, f in audited.found(a)]
    of_steps = _set(f for f in every if f.rule not in (AGREEMENT, SILENCE))
    assert of_steps == _set(f for f in found if f.doubt is None)
    report = follower.report()
    assert not in_words(a)
    assert [f for f in every if f.rule == SILENCE] == [f for f in report.findings if f.rule == SILENCE]
    agreement = {f.sentence for f in every if f.rule == AGREEMENT}
    assert {f.sentence for f in report.findings if f.rule == AGREEMENT} <= agreement
    lacked = Counter[bool]()
    for m, first, last, _ in a.lacks.tolist():
        accused = not a.found.vague[m] and a.coded.order[m] == "reliable"
        lacked[accused] += last - first + 1
    assert report.broken.get(AGREEMENT, 0) == lacked[True]
    for row in tables.members(a).to_pylist():
        counts = report.members.get(row["member"], Counts())
        for field in fields(Counts):
            assert row[field.name] == getattr(counts, field.name), (row["member"], field.name)
        assert row["in_order"] == counts.in_order
        assert row["alive"] == (row["member"] in report.live)
    return report.total


def doubted(rows: list[Row]) -> list[Doubt]:
    return in_words(judge(rows))


def _set(found: Iterable[Finding]) -> list[Finding]:
    return sorted(found, key=lambda f: (f.rule, f.member, f.step or 0, f.sentence))


@pytest.mark.parametrize("part", few(range(4), 1))
def test_batch_and_incremental_agree_on_generated_traces(part: int) -> None:
    """500 traces: runs with every kind of wrong, and correct ones."""
    total = Counts()
    for seed in range(250 * part, 250 * (part + 1)):
        for wrong in (True, False):
            total += agree(trace(seed, wrong=wrong))
    assert min(total.inverted, total.fifo_inverted, total.over_gap, total.after_gap, total.duplicates) > 100
    assert min(total.unknown, total.gaps, total.lost, total.disagreements) > 100


@pytest.mark.parametrize("part", few(range(4), 1))
def test_whoever_is_accused_in_a_part_is_accused_in_the_whole(part: int) -> None:
    """Traces with every kind of wrong, and parts cut out. (The rule may be another one: where it is not known what a
    member began with, a duplicate can look inverted.) What is cut out is in doubt."""
    accused = 0
    for seed in range(250 * part, 250 * (part + 1)):
        rows = trace(seed)
        whole = {f.member for _, f in audited.found(judge(rows, complete=True))}
        a = judge(cut(rows, random.Random(seed)))
        found = {f.member for _, f in audited.found(a)}
        assert found <= whole, seed
        accused += len(found)
        torn = {str(a.coded.members[m]) for m in a.coded.missing.nonzero()[0]}
        assert torn <= {doubt.member for doubt in in_words(a)}
    assert accused > 300


@pytest.mark.parametrize("part", few(range(4), 1))
def test_a_correct_run_with_parts_cut_out_accuses_nobody(part: int) -> None:
    for seed in range(500 * part, 500 * (part + 1)):
        rng = random.Random(seed)
        rows = cut(trace(seed, rng.choice([30, 60, 120]), wrong=False), rng)
        assert [str(f) for _, f in audited.found(judge(rows))] == [], seed


@pytest.mark.parametrize("part", few(range(4), 2))
def test_batch_and_incremental_agree_on_simulated_runs(part: int) -> None:
    """60 traces: 15 random runs with crashes, restarts, churn and snapshots, each as it was, and spoiled in 3 ways."""
    total = Counts()
    joined: set[str | None] = set()
    for seed in range(part, 60, 4):
        rows = Run(parse(HOSTILE), seed).rows
        joined |= {row.reason for row in rows if row.kind == "join"}
        total += agree(rows)
        rng = random.Random(seed)
        for _ in range(3):
            total += agree(spoiled(rows, rng))
    assert joined == {"genesis", "snapshot", "checkpoint"}
    assert min(total.inverted, total.fifo_inverted, total.over_gap, total.after_gap, total.duplicates) > 100
    assert min(total.unknown, total.gaps, total.lost, total.disagreements) > 10


def test_the_packaged_hostile_scenario_is_clean() -> None:
    loaded: Loaded = parse(
        (Path(__file__).parents[4] / "src" / "whence" / "lab" / "scenarios" / "hostile.toml").read_text()
    )
    for seed in range(2):
        rows = Run(loaded, seed).clean().rows
        agree(rows)
        assert not violations(rows)


def test_an_effect_before_its_cause_is_explained() -> None:
    rows = triangle(
        step("q#1", 0, "join", order="causal", reason="genesis"),
        step("q#1", 1, "deliver", B),
        step("q#1", 2, "deliver", A),
    )
    first, second = verdicts(rows, "q#1")
    assert (first["verdict"], first["cause_event"], first["violation"]) == ("over a gap", A, False)
    assert (second["verdict"], second["cause_event"], second["cause_origin"]) == ("inverted", B, "b#1")
    assert second["violation"] and second["cause_seq"] == 1 and second["origin"] == "a#1"
    found = violations(rows)
    assert [(v["rule"], v["member"], v["lseq"], v["event"]) for v in found] == [("causal", "q#1", 2, A)]
    assert found[0]["witness"] == [A, B]
    assert found[0]["detail"] == (
        f"q#1 delivered {B} and then {A}; but b#1 published the former with the latter in its past"
    )


def test_missing_steps_are_counted_and_nobody_is_accused_for_them() -> None:
    """q's step 1, which delivered A, is missing: B is not over a gap then. b's publish is missing: B is unknown, which
    is no reproach, because b's rows are not all there."""
    q = [step("q#1", 0, "join", order="reliable", reason="genesis"), step("q#1", 2, "deliver", B)]
    assert [(row["verdict"], row["violation"]) for row in verdicts(triangle(*q), "q#1")] == [("in order", False)]
    rows = [row for row in triangle(*q) if (row.member, row.kind) != ("b#1", "publish")]
    assert [(row["verdict"], row["violation"]) for row in verdicts(rows, "q#1")] == [("unknown", False)]
    found = tables.members(judge(rows)).to_pylist()
    assert {row["member"]: row["missing"] for row in found} == {"a#1": 0, "b#1": 1, "q#1": 1}


def test_a_join_from_an_unknown_snapshot() -> None:
    """What q began with is not known: what it skips first may have been in it, what it skips later was not."""
    rows = triangle(
        step("a#1", 3, "publish", C),
        step("a#1", 4, "publish", "0:1.0.1:3@a#1"),
        step("q#1", 0, "join", order="reliable", reason="snapshot", token="never taken"),
        step("q#1", 1, "deliver", B),
        step("q#1", 2, "deliver", "0:1.0.1:3@a#1"),
    )
    assert [row["verdict"] for row in verdicts(rows, "q#1")] == ["in order", "in order"]


def test_a_trace_of_a_circle_does_not_hang() -> None:
    """a publishes A after B, b publishes B after A."""
    rows = [
        step("a#1", 0, "deliver", B),
        step("a#1", 1, "publish", A),
        step("b#1", 0, "deliver", A),
        step("b#1", 1, "publish", B),
        step("c#1", 0, "deliver", B),
        step("c#1", 1, "publish", "2:1.0.1:1@c#1"),
        step("q#1", 0, "deliver", A),
        step("q#1", 1, "deliver", B),
        step("x#1", 0, "deliver", "3:1.0.1:9@x#1"),
        step("x#1", 1, "publish", "3:1.0.1:9@x#1"),
        step("y#1", 0, "join", reason="checkpoint", peer="z#1"),
        step("z#1", 0, "join", reason="checkpoint", peer="y#1"),
    ]
    a = judge(rows, complete=True)
    found = {(row["member"], row["event"]): row["verdict"] for row in tables.verdicts(a).to_pylist()}
    assert ("a#1", B) not in found and found["b#1", A] == "in order"
    assert found["c#1", B] == "over a gap", "only one member of the circle is let go; c waits until B is there"
    assert ("x#1", "3:1.0.1:9@x#1") not in found
    assert found["q#1", A] == "in order" and found["q#1", B] == "in order"
    wrong = [(f.rule, f.member, f.step, f.event) for _, f in audited.found(a)]
    assert wrong == [
        ("impossible", "a#1", 0, B),
        ("impossible", "x#1", 0, "3:1.0.1:9@x#1"),
        ("impossible", "y#1", 0, None),
    ]


def test_impossible_traces() -> None:
    """Steps change places. Members that are let go from a circle are not accused of what they lack."""
    circles = 0
    for seed in range(120):
        rows = trace(seed, wrong=seed % 2 == 0, everybody=seed % 3 == 0)
        rows = mixed_up(rows, random.Random(seed), {"publish", "deliver"})
        a = judge(rows, complete=True)
        let_go = {f.member for _, f in audited.found(a) if f.rule == IMPOSSIBLE}
        assert not let_go.intersection(f.member for _, f in audited.found(a) if f.rule in (AGREEMENT, SILENCE))
        circles += len(let_go)
    assert circles > 20


def test_a_sentence_does_not_count_events() -> None:
    """The publish of a's second event is not there: the third is not called its second."""
    ids = [f"0:1.0.1:{n}@a#1" for n in (1, 2, 3, 4)]
    rows = [step("a#1", n, "publish", event) for n, event in enumerate(ids)]
    rows += [step("q#1", n, "deliver", ids[k]) for n, k in enumerate((3, 2))]
    (found,) = violations([row for row in rows if row.event != ids[1] or row.kind != "publish"])
    assert found["detail"].startswith(f"q#1 delivered {ids[3]} and then {ids[2]}; but a#1 published")


def test_many_holes_cost_no_more_than_rows() -> None:
    """One member gets 20,000 events in random order, another in reverse: linear, or this would not end."""
    n = 20_000
    ids = [f"0:1.0.1:{k + 1}@a#1" for k in range(n)]
    order = random.Random(1).sample(ids, n)
    rows = [step("a#1", k, "publish", event) for k, event in enumerate(ids)]
    rows += [step("q#1", k, "deliver", event) for k, event in enumerate(order)]
    rows += [step("s#1", k, "deliver", event) for k, event in enumerate(reversed(ids))]
    rows += [
        step("t#1", 0, "deliver", ids[-1]),
        *(step("t#1", k + 1, "deliver", event) for k, event in enumerate(ids[:-1])),
    ]
    found = {row["member"]: row for row in tables.members(judge(rows)).to_pylist()}
    assert found["s#1"]["fifo_inverted"] == found["t#1"]["fifo_inverted"] == n - 1
    assert (
        found["q#1"]["inverted"] + found["q#1"]["over_gap"] + found["q#1"]["after_gap"] + found["q#1"]["in_order"] == n
    )


# -- two owners


def tenure(member: str, lseq: int, t: int, change: str, incarnation: str) -> Row:
    return Row("r", "c", member, lseq, t, "ticket", ticket=0, reason=f"{change} {incarnation}")


def owners(*rows: Row) -> list[str]:
    found = violations(rows)
    return [f"{v['rule']} {v['member']}" for v in found]


def test_two_owners_at_one_time() -> None:
    first = tenure("a#1", 0, 100, "owner", "1.0.1")
    second = tenure("b#1", 0, 200, "owner", "1.0.2")
    assert owners(first, tenure("a#1", 1, 150, "released", "1.0.1"), second) == []
    assert owners(first, tenure("a#1", 1, 250, "released", "1.0.1"), second) == ["two owners b#1"]
    # Who loses it notices late; what counts is what it did.
    assert owners(first, tenure("a#1", 1, 250, "lost", "1.0.1"), second) == []
    late = Row("r", "c", "a#1", 1, 240, "publish", "0:1.0.1:1@a#1")
    assert owners(first, late, second) == ["two owners b#1"]
    # One incarnation is one owner's, whenever.
    assert owners(first, tenure("a#1", 1, 150, "released", "1.0.1"), tenure("b#1", 0, 300, "owner", "1.0.1")) == [
        "two owners b#1"
    ]


def test_an_owner_with_steps_missing_leaves_a_doubt() -> None:
    """It may have delivered the other's last event in its step 1, which is missing."""
    rows = [
        tenure("a#1", 0, 100, "owner", "1.0.1"),
        Row("r", "c", "a#1", 1, 240, "publish", A),
        step("b#1", 0, "join", order="causal", reason="genesis"),
        tenure("b#1", 2, 200, "owner", "1.0.2"),
    ]
    assert owners(*rows) == []
    assert doubted(rows) == [Doubt("b#1", MISSING_STEPS, 2)], "the step, and the second owner"


# -- what is missed easily


def test_an_event_that_was_dropped_is_not_delivered() -> None:
    q = [step("q#1", 0, "join", order="causal", reason="genesis"), step("q#1", 1, "drop", A, reason="late")]
    rows = triangle(*q, step("q#1", 2, "deliver", A))
    assert [(v["rule"], v["member"], v["lseq"], v["event"]) for v in violations(rows)] == [("drop", "q#1", 2, A)]
    assert [(v["verdict"], v["violation"]) for v in verdicts(rows, "q#1")] == [("in order", True)]
    assert violations(triangle(*q, step("q#1", 2, "deliver", B))) == []
    again = triangle(*q, step("q#1", 2, "join", reason="snapshot", token="never taken"), step("q#1", 3, "deliver", A))
    assert violations(again) == [], "it goes on from a state in which the event is still due"
    torn = triangle(*q, step("q#1", 3, "deliver", A))
    assert violations(torn) == [], "it may have gone on from such a state in step 2"


def test_a_member_that_has_nothing_of_others() -> None:
    ids = [f"0:1.0.1:{k + 1}@a#1" for k in range(SILENT)]
    rows = [step(m, 0, "join", order="causal", reason="genesis") for m in ("a#1", "b#1", "q#1")]
    rows += [step("a#1", k + 1, "publish", event) for k, event in enumerate(ids)]
    rows += [step("b#1", k + 1, "deliver", event) for k, event in enumerate(ids)]
    (found,) = violations(rows, complete=True)
    assert (found["rule"], found["member"]) == ("silence", "q#1") and "20 events" in found["detail"]
    assert violations(rows) == [] and doubted(rows) == [Doubt("q#1", OPEN_END, 1)]
    assert violations([*rows, step("q#1", 1, "deliver", ids[-1])], complete=True) == [], "causal may lose"
    assert violations([*rows, step("q#1", 1, "leave")], complete=True) == []
    assert violations([row for row in rows if row.event != ids[-1]], complete=True) == [], "too few to tell"
