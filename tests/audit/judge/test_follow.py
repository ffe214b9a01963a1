"""The judge of one run at hand: nobody is accused for what is not there."""

from __future__ import annotations

import pytest
from soak.verdict import held_twice

from whence.audit.judge import judge
from whence.audit.judge.promises import TWO_OWNERS
from whence.audit.trace import Row
from whence.errors import UnknownOrder


def test_an_incomplete_trace_accuses_nobody_of_what_is_not_there() -> None:
    """a's file is not there, nor the end of c's."""
    joined = [Row("r", "c", m, 0, 0, "join", reason="genesis", order="reliable") for m in ("b#1", "c#1", "d#1")]
    rows = [
        *joined,
        Row("r", "c", "b#1", 1, 1, "publish", event="1:0.0.1:1@b#1"),
        *(Row("r", "c", m, 2 - (m > "b#1"), 2, "deliver", event="1:0.0.1:1@b#1") for m in ("b#1", "d#1")),
        Row("r", "c", "d#1", 2, 3, "deliver", event="0:0.0.1:1@a#1"),
    ]
    assert judge(rows).broken == {"integrity": 1, "agreement": 1}, "nothing is missing in a trace that is complete"
    report = judge(rows, complete=False)
    assert report.ok and report.total.unknown == 1
    late = Row("r", "c", "d#1", 3, 4, "deliver", event="1:0.0.1:1@b#1")
    assert judge([*rows, late], complete=False).broken == {"integrity": 1}, "a duplicate is one whatever is missing"


def test_an_unknown_order_is_refused() -> None:
    with pytest.raises(UnknownOrder, match="a#1: unknown order 'sequential'"):
        judge([Row("r", "c", "a#1", 0, 0, "join", reason="genesis", order="sequential")])


def test_two_owners_of_a_ticket() -> None:
    def rows(second: int, knew: bool) -> list[Row]:
        first = "0:1.0.1:1@a#1"
        return [
            Row("r", "c", "a#1", 0, 10, "ticket", ticket=0, reason="owner 1.0.1"),
            Row("r", "c", "a#1", 1, 30, "publish", event=first, ticket=0),
            Row("r", "c", "b#1", 0, 15, "deliver" if knew else "fault", event=first),
            Row("r", "c", "b#1", 1, second, "ticket", ticket=0, reason="owner 1.0.2"),
            Row("r", "c", "b#1", 2, second + 1, "publish", event="0:1.0.2:1@b#1", ticket=0),
            Row("r", "c", "c#1", 0, 50, "deliver", event=first),
        ]

    (found,) = judge(rows(20, False)).findings
    assert (found.rule, found.member, found.step, found.event) == ("two owners", "b#1", 1, "0:1.0.2:1@b#1")
    assert found.witnesses == ("0:1.0.1:1@a#1", "0:1.0.2:1@b#1")
    assert judge(rows(40, False)).ok, "one after the other"
    assert judge(rows(20, True)).ok, "its clock is slow: it had delivered the last event of the one before"


def test_a_ticket_held_twice_by_one_clock() -> None:
    """The stricter form for processes with one clock: an owner that publishes nothing counts, too."""

    def row(member: str, lseq: int, t: int, what: str) -> Row:
        return Row("r", "c", member, lseq, t, "ticket", ticket=1, reason=what)

    first, second = row("a#1", 0, 10, "owner 1.0.1"), row("b#1", 0, 21, "owner 1.0.2")
    in_time, late = row("a#1", 1, 20, "lost 1.0.1 lease"), row("a#1", 1, 22, "lost 1.0.1 lease")
    assert judge([first, second]).ok, "neither acted as the owner"
    assert held_twice([first, in_time, second], {}) == []
    (found,) = held_twice([first, late, second], {})
    assert (found.rule, found.member, found.step) == (TWO_OWNERS, "b#1", 0)
    assert len(held_twice([first, second], {})) == 1, "an owner that never lost the ticket still holds it"
    assert held_twice([first, second], {"a#1": 15}) == [], "a killed owner does not"


@pytest.mark.parametrize(
    ("order", "swapped", "wrong"), [("total", True, True), ("total", False, False), ("causal", True, False)]
)
def test_members_in_total_order_have_one_sequence(order: str, swapped: bool, wrong: bool) -> None:
    """Two publishers that know nothing of each other; c begins later than b, and is compared where both were."""
    x = [f"0:0.0.1:{n}@a#1" for n in (1, 2, 3)]
    y = "1:0.0.1:1@d#1"
    rows = [Row("r", "c", m, 0, 0, "join", reason="genesis", order=order) for m in ("a#1", "b#1", "c#1", "d#1")]
    rows += [Row("r", "c", "a#1", n, n, "publish", event=name) for n, name in enumerate(x, 1)]
    rows.append(Row("r", "c", "d#1", 1, 1, "publish", event=y))
    told = {"b#1": [x[0], x[1], y, x[2]], "c#1": [x[0], y, x[1], x[2]] if swapped else [x[0], x[1], y]}
    for member, events in told.items():
        rows += [Row("r", "c", member, n, 9 + n, "deliver", event=name) for n, name in enumerate(events, 1)]
    report = judge(rows, complete=False)
    assert ("disorder" in report.broken) == wrong
    if wrong:
        (found,) = [f for f in report.findings if f.rule == "disorder"]
        assert str(found) == f"c#1 delivered {y} right after {x[0]}; b#1 delivered {x[1]} there"
