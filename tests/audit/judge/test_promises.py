"""What each order forbids, decided once."""

from __future__ import annotations

from typing import get_args

import pytest

from whence.audit.judge.findings import EventName, of_delivery
from whence.audit.judge.promises import PROMISES, RULES, UNTOLD, Verdict, declared, promise, rule_broken
from whence.core.order.config import OrderName
from whence.errors import TraceError, UnknownOrder, UsageError


def test_every_order_of_the_stack_has_a_promise() -> None:
    assert tuple(PROMISES) == get_args(OrderName)


@pytest.mark.parametrize("order", PROMISES)
def test_integrity_binds_everybody(order: str) -> None:
    """Also `unordered` members: once is once."""
    assert rule_broken(order, Verdict.DUPLICATE) == rule_broken(order, Verdict.UNKNOWN) == "integrity"
    assert rule_broken(order, Verdict.IN_ORDER) is None and rule_broken(order, Verdict.AFTER_GAP) is None


def test_what_each_order_forbids() -> None:
    rules = {
        order: [rule_broken(order, v) for v in (Verdict.INVERTED, Verdict.FIFO_INVERTED, Verdict.OVER_GAP)]
        for order in PROMISES
    }
    assert rules == {
        "unordered": [None, None, None],
        "fifo": [None, "fifo", None],
        "causal": ["causal", "causal", None],
        "reliable": ["causal", "causal", "gap"],
        "total": ["causal", "causal", None],
        "probabilistic": [None, None, None],
    }
    assert [order for order in PROMISES if promise(order).agreement] == ["reliable"]
    assert {rule for order in PROMISES for rule in promise(order).forbids.values()} < set(RULES)


def test_an_order_that_is_not_known_is_refused() -> None:
    with pytest.raises(
        UnknownOrder, match=r"m3#1: unknown order 'sequential' \(known: unordered, fifo, causal"
    ) as error:
        declared("sequential", "m3#1")
    assert isinstance(error.value, TraceError) and isinstance(error.value, UsageError)
    with pytest.raises(UnknownOrder):
        rule_broken("", Verdict.DUPLICATE)
    with pytest.raises(UnknownOrder):
        declared(UNTOLD)
    assert promise(UNTOLD).forbids == promise("unordered").forbids, "it is held to what binds everybody"
    assert promise(None) is promise("causal"), "a trace that does not say is held to the default"


def test_a_finding_has_fields_and_a_sentence() -> None:
    cause, effect = EventName("c", "a#1", 2), EventName("e", "b#1", 11)
    found = of_delivery("causal", "m#1", 7, Verdict.INVERTED, cause, effect)
    assert (found.rule, found.member, found.step, found.event) == ("causal", "m#1", 7, "c")
    assert found.witnesses == ("c", "e") and found.doubt is None
    assert str(found) == (
        "m#1 delivered e of b#1 and then c of a#1; but b#1 published the former with the latter in its past"
    )
