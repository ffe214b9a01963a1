"""The incremental judge against brute force: the transitive closure of an explicit happened-before."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from whence.audit.judge import Causality, Counts, Report, Verdict, judge
from whence.audit.judge.report import report as report_on
from whence.audit.trace import Row
from whence.errors import TraceError, UnknownOrder, UsageError

IN_ORDER, INVERTED, FIFO_INVERTED, OVER_GAP, AFTER_GAP, DUPLICATE, UNKNOWN = Verdict

Step = tuple[str, ...]
"""publish p e | deliver p e | snapshot p token | join p how peer token | crash p"""


@dataclass
class Brute:
    """Happened-before by its definition. No vectors, no prefixes: sets of events and a walk over a graph."""

    parents: dict[str, set[str]] = field(default_factory=dict)
    told: dict[str, set[str]] = field(
        default_factory=dict
    )  # what a member has published or delivered: its program order
    has: dict[str, set[str]] = field(default_factory=dict)  # delivered here or in the state it began with
    began: dict[str, set[str]] = field(default_factory=dict)  # in that state, or passed over by it
    tokens: dict[str, tuple[set[str], set[str]]] = field(default_factory=dict)
    live: dict[str, bool] = field(default_factory=dict)

    def past(self, event: str) -> set[str]:
        seen: set[str] = set()
        todo = list(self.parents[event])
        while todo:
            cause = todo.pop()
            if cause not in seen:
                seen.add(cause)
                todo += self.parents[cause]
        return seen

    def horizon(self, events: set[str]) -> set[str]:
        return events.union(*(self.past(e) for e in events)) if events else set()

    def step(self, step: Step) -> Verdict | None:
        kind, p = step[0], step[1]
        for table in (self.told, self.has, self.began):
            table.setdefault(p, set())
        self.live.setdefault(p, True)
        match kind:
            case "publish":
                self.parents[step[2]] = set(self.told[p])
                self.told[p].add(step[2])
            case "deliver":
                verdict = self.verdict(p, step[2])
                if verdict is UNKNOWN:
                    return verdict
                self.told[p].add(step[2])
                self.has[p].add(step[2])
                return verdict
            case "snapshot":
                self.tokens[step[2]] = (set(self.has[p]), self.horizon(self.has[p]))
            case "join" if step[2] == "snapshot":
                has, horizon = self.tokens[step[4]]
                self.has[p], self.began[p] = set(has), set(horizon)
                self.told[p] |= has
            case "join" if step[2] == "checkpoint":
                self.has[p], self.began[p] = set(self.has[step[3]]), set(self.began[step[3]])
                self.told[p] |= self.has[p]
                self.live[step[3]] = False
            case "crash":
                self.live[p] = False
        return None

    def verdict(self, q: str, event: str) -> Verdict:
        if event not in self.parents:
            return UNKNOWN
        if event in self.has[q]:
            return DUPLICATE
        if after := [other for other in self.has[q] if event in self.past(other)]:
            owner = event.partition("@")[2]
            return FIFO_INVERTED if any(other.partition("@")[2] == owner for other in after) else INVERTED
        missing = self.past(event) - self.has[q] - self.began[q]
        if missing - self.horizon(self.has[q]):
            return OVER_GAP
        return AFTER_GAP if missing else IN_ORDER

    def lost(self, q: str) -> set[str]:
        return set(self.parents) - self.has[q] - self.began[q]


@st.composite
def histories(draw: st.DrawFn) -> list[Step]:
    """Any interleaving of publishes, deliveries (early, late, double, never), snapshots, restarts and crashes. `tidy`
    members mostly take the events in the order in which they were published, so that good runs are there, too."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    members = [f"m{i}#1" for i in range(draw(st.integers(3, 5)))]
    tidy, events, steps = rng.choice([0.0, 0.7, 0.95]), [], []
    got: dict[str, list[str]] = {m: [] for m in members}
    tokens: dict[str, list[str]] = {}
    for _ in range(draw(st.integers(5, 60))):
        p, dice = rng.choice(members), rng.random()
        if dice < 0.25:
            events.append(f"0:0.0.1:{len(events) + 1}@{p}")
            steps.append(("publish", p, events[-1]))
            if rng.random() < 0.8:
                steps.append(("deliver", p, events[-1]))
                got[p].append(events[-1])
        elif dice < 0.9 and events:
            new = [e for e in events if e not in got[p]]
            event = new[0] if new and rng.random() < tidy else rng.choice(events)
            steps.append(("deliver", p, event))
            got[p].append(event)
        elif dice < 0.93:
            token = f"t{len(tokens)}"
            steps.append(("snapshot", p, token))
            tokens[token] = list(got[p])
            new_member = f"j{len(tokens)}#1"
            if rng.random() < 0.7:
                members.append(new_member)
                got[new_member] = tokens[token]
                steps.append(("join", new_member, "snapshot", p, token))
        elif dice < 0.96:
            address, boot = p.split("#")
            again = f"{address}#{int(boot) + 1}"
            members[members.index(p)] = again
            got[again] = got[p]
            steps += [("crash", p), ("join", again, "checkpoint", p, "")]
        elif dice < 0.98 and len(members) > 3:
            members.remove(p)
            steps.append(("crash", p))
        elif dice > 0.995:
            steps.append(("deliver", p, "9:0.0.1:1@nobody#1"))
    return steps


def delivered(judge: Causality, member: str, events: list[str]) -> list[Verdict]:
    return [judge.delivered(member, event) for event in events]


def published(judge: Causality, member: str, events: list[str]) -> None:
    for event in events:
        judge.published(member, event)


def feed(oracle: Causality, step: Step) -> Verdict | None:
    match step:
        case ("publish", p, event):
            oracle.published(p, event)
        case ("deliver", p, event):
            return oracle.delivered(p, event)
        case ("snapshot", p, token):
            oracle.snapshot(p, token)
        case ("join", p, how, peer, token):
            oracle.joined(p, how, peer=peer, token=token or None)
        case ("crash", p):
            oracle.left(p)
    return None


def rows_of(steps: list[Step]) -> list[Row]:
    lseq: Counter[str] = Counter()
    rows = []
    for t, (kind, p, *rest) in enumerate(steps):
        match kind:
            case "join":
                more = {"reason": rest[0], "peer": rest[1], "token": rest[2] or None}
            case "snapshot":
                more = {"token": rest[0]}
            case _:
                more = {"event": rest[0] if rest else None}
        rows.append(Row("r", "c", p, lseq[p], t, kind, **more))
        lseq[p] += 1
    return rows


@settings(max_examples=400)
@given(histories(), st.randoms(use_true_random=False))
def test_every_verdict_is_that_of_brute_force(steps: list[Step], rng: random.Random) -> None:
    oracle, brute = Causality(), Brute()
    found: Counter[Verdict] = Counter()
    for step in steps:
        expected = brute.step(step)
        assert feed(oracle, step) == expected, step
        if expected is not None:
            found[expected] += 1
    report = report_on(oracle)
    total = report.total
    assert (total.in_order, total.inverted) == (found[IN_ORDER], found[INVERTED] + found[FIFO_INVERTED])
    assert total.fifo_inverted == found[FIFO_INVERTED]
    assert (total.over_gap, total.after_gap) == (found[OVER_GAP], found[AFTER_GAP])
    assert (total.duplicates, total.unknown) == (found[DUPLICATE], found[UNKNOWN])
    live = [m for m in brute.live if brute.live[m]]
    assert report.live == live
    for q in live:
        lost = brute.lost(q)
        elsewhere = {e for e in lost if any(e in brute.has[r] for r in live)}
        gaps = {e for e in lost if e in brute.horizon(brute.has[q])}
        of_live = {e for e in lost if brute.live[e.partition("@")[2]]}
        got = report.members[q]
        assert (got.lost, got.gaps) == (len(lost), len(gaps))
        assert (got.disagreements, got.lost_of_live) == (len(elsewhere), len(of_live))

    rows = [replace(row, t_ns=rng.randrange(3)) for row in rows_of(steps)]  # clocks that are as good as none
    rng.shuffle(rows)
    assert counted(judge(rows)) == counted(report)


def counted(report: Report) -> tuple[object, ...]:
    """What two reports on one run have in common: which violation was seen first may differ."""
    found = {m: c for m, c in report.members.items() if c != Counts()}
    return found, report.published


@settings(max_examples=150)
@given(histories(), st.integers(2, 4))
def test_a_frame_counts_as_its_events_do(steps: list[Step], size: int) -> None:
    frames, events = Causality(), Causality()
    for step in steps:
        match step:
            case ("publish", p, event):
                frames.published(p, event, size)
                published(events, p, [f"{i}{event}" for i in range(size)])
            case ("deliver", p, event) if "nobody" not in event:
                verdict = frames.delivered(p, event)
                rest = {OVER_GAP: AFTER_GAP}.get(verdict, verdict)  # the first event skips, the others come after
                each = delivered(events, p, [f"{i}{event}" for i in range(size)])
                assert each == [verdict] + [rest] * (size - 1)
            case ("deliver", *_):
                pass
            case _:
                assert feed(frames, step) is feed(events, step) is None
    assert counted(report_on(frames)) == counted(report_on(events))


def test_the_triangle() -> None:
    """a publishes cause, b delivers it and publishes effect; c gets effect first. Two processes cannot show this."""
    oracle = Causality()
    for member in "abc":
        oracle.joined(member)
    published(oracle, "a", ["cause"])
    delivered(oracle, "a", ["cause"])
    assert delivered(oracle, "b", ["cause"]) == [IN_ORDER]
    published(oracle, "b", ["effect"])
    assert delivered(oracle, "b", ["effect"]) == [IN_ORDER]
    assert delivered(oracle, "c", ["effect", "cause", "cause"]) == [OVER_GAP, INVERTED, DUPLICATE]
    assert delivered(oracle, "a", ["effect"]) == [IN_ORDER]
    report = report_on(oracle)
    assert report.broken == {"causal": 1, "integrity": 1} and not report.ok
    assert report.total.lost == 0 and report.total.fifo_inverted == 0
    assert "broken: causal (1)" in str(report)


def test_concurrent_events_have_no_order() -> None:
    oracle = Causality()
    published(oracle, "a", ["x"])
    published(oracle, "b", ["y"])
    assert delivered(oracle, "c", ["x", "y"]) == delivered(oracle, "d", ["y", "x"]) == [IN_ORDER, IN_ORDER]


def test_the_past_goes_through_what_the_publisher_itself_skipped() -> None:
    """b publishes after e2 without having e1; e1 is in the past of b's event all the same."""
    oracle = Causality()
    published(oracle, "a", ["e1", "e2"])
    assert delivered(oracle, "b", ["e2"]) == [OVER_GAP]
    published(oracle, "b", ["f"])
    assert delivered(oracle, "c", ["e1", "f", "e2"]) == [IN_ORDER, OVER_GAP, INVERTED]


def test_each_order_is_held_to_its_own_promise() -> None:
    def broken(order: str, deliveries: list[str]) -> dict[str, int]:
        oracle = Causality()
        for member in ("a", "b"):
            oracle.joined(member)
        oracle.joined("c", order=order)
        published(oracle, "a", ["a1", "a2"])
        delivered(oracle, "a", ["a1", "a2"])
        delivered(oracle, "b", ["a1", "a2"])
        published(oracle, "b", ["b1"])
        delivered(oracle, "b", ["b1"])
        delivered(oracle, "a", ["b1"])
        delivered(oracle, "c", deliveries)
        return report_on(oracle).broken

    turned, turned_twice = ["b1", "a1", "a2"], ["a2", "a1", "b1"]
    assert broken("unordered", turned_twice) == {}
    assert broken("unordered", [*turned_twice, "a1"]) == {"integrity": 1}
    assert broken("fifo", turned) == {}
    assert broken("fifo", turned_twice) == {"fifo": 1}
    assert broken("causal", turned) == {"causal": 2}
    assert broken("causal", ["b1"]) == {}  # optimistic: may lose
    assert broken("probabilistic", turned) == {}
    assert broken("reliable", ["a1", "a2", "b1"]) == {}
    assert broken("reliable", ["a1"]) == {"agreement": 2}
    assert broken("reliable", ["b1"])["gap"] == 1


def test_ids_used_twice() -> None:
    uses = (("a#1", "0:0.0.1:1@a#1"), ("b#1", "0:0.0.1:1@b#1"), ("a#1", "0:0.0.1:1@a#1"))  # b: two owners
    rows = [Row("r", "c", m, n // 2, n, "publish", event=e) for n, (m, e) in enumerate(uses)]
    report = judge(rows)
    assert report.broken == {"reused id": 2, "two owners": 1} and report.published == 2
    assert sorted((f.member, f.step) for f in report.findings if f.rule == "reused id") == [("a#1", 1), ("b#1", 0)]


def test_a_member_that_takes_a_second_snapshot() -> None:
    """It may get again what its newer state does not have; what it had seen stays in the past of what it publishes."""
    oracle = Causality()
    published(oracle, "a", ["a1"])
    oracle.snapshot("b", "empty")
    assert delivered(oracle, "c", ["a1"]) == [IN_ORDER]
    oracle.joined("c", "snapshot", token="empty")
    published(oracle, "c", ["c1"])
    assert delivered(oracle, "c", ["a1"]) == [IN_ORDER]
    assert delivered(oracle, "d", ["c1"]) == [OVER_GAP]


def test_misuse_is_named() -> None:
    oracle = Causality()
    with pytest.raises(UnknownOrder, match="a: unknown order 'sequential'"):
        oracle.joined("a", order="sequential")
    with pytest.raises(UsageError, match="token 'x'"):
        oracle.joined("a", "snapshot", token="x")
    with pytest.raises(UsageError, match="ghost"):
        oracle.joined("a", "checkpoint", peer="ghost")


def test_a_trace_with_a_hole_is_not_judged() -> None:
    rows = [Row("r", "c", "a", n, 0, "publish", event=f"e{n}") for n in (0, 1, 3)]
    with pytest.raises(TraceError, match=r"member a: step 2 is missing \(the next is 3\)"):
        judge(rows)
    with pytest.raises(TraceError, match="step 1 is there twice"):
        judge([*rows[:2], rows[1]])
    with pytest.raises(TraceError, match="two runs or clusters"):
        judge([rows[0], Row("r2", "c", "a", 0, 0, "publish")])


def test_a_false_trace_does_not_stall_the_judge() -> None:
    """a delivers y before it publishes x, b delivers x before it publishes y: no run did that."""
    kinds = (("a", "deliver", "y"), ("a", "publish", "x"), ("b", "deliver", "x"), ("b", "publish", "y"))
    rows = [Row("r", "c", m, i % 2, i, kind, event=e) for i, (m, kind, e) in enumerate(kinds)]
    report = judge(rows)
    assert report.broken == {"impossible": 1} and report.total.unknown == 0, "both were published"
    assert str(report.findings[0]).startswith("an impossible trace: a delivered y before")
