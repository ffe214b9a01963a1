"""One `CctClock` by itself, against a model that is nothing but sets of events."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whence.core.clock import NEVER, CctClock

# ---------------------------------------------------------------------------------------------------- examples


@pytest.mark.parametrize("exact", [False, True])
def test_an_older_tenure_is_obsolete_unless_exact(exact):
    """Tenure 2 closed over (1, 3) of tenure 1; (1, 4) and (1, 5) are orphans."""
    clock = CctClock(1, exact)
    clock.advance(0, 1, 3, NEVER)
    clock.advance(0, 2, 1, (1, 3))
    assert clock.has(0, 1, 3)
    assert clock.has(0, 1, 5) is not exact
    assert clock.missing([(1, 5)]) == ([(0, 1, 4, 5)] if exact else [])
    assert clock.ready([(1, 5)]) is not exact
    if exact:
        clock.advance(0, 1, 5, (1, 3))
        assert clock.T == [(2, 1)], "an orphan does not set the clock back"
        assert clock.ready([(1, 5)]) and clock.orphans == {(0, 1): 5}


@pytest.mark.parametrize("exact", [False, True])
def test_what_goes_beyond_a_closure_is_named(exact):
    clock = CctClock(2, exact)
    clock.advance(1, 1, 5, NEVER)
    clock.advance(1, 2, 1, (1, 3))
    assert clock.orphans == {(1, 1): 5}


def test_what_a_closure_covers_is_not_named():
    clock = CctClock(2, True)
    clock.advance(1, 1, 5, NEVER)
    clock.advance(1, 2, 1, (1, 5))
    clock.advance(1, 2, 2, (2, 1))
    assert clock.orphans == {} and clock.tails == {(1, 1): 5}


def test_orphans_named_by_a_frame_bind_only_exact_orders():
    for exact in (False, True):
        clock = CctClock(2, exact)
        clock.advance(0, 2, 1, NEVER)
        assert clock.ready([(2, 1), NEVER], [(0, 1, 4)]) is not exact
        assert clock.missing([(2, 1), NEVER], [(0, 1, 4)]) == ([(0, 1, 1, 4)] if exact else [])


def test_give_up_of_a_closed_tenure_and_of_orphans():
    clock = CctClock(1, True)
    clock.advance(0, 1, 1, NEVER)
    clock.advance(0, 3, 1, (1, 1))
    clock.give_up([(1, 2)], [(0, 2, 5)])
    assert clock.ready([(1, 2)], [(0, 2, 5)]) and clock.T == [(3, 1)]
    assert clock.has(0, 1, 3), "what tenure 2 may have closed over is skipped with it"
    assert not clock.has(0, 2, 6)
    assert clock.orphans == {(0, 1): 2, (0, 2): 5}, "what was skipped is in the past of what follows, and is named"


def test_settle_forgets():
    clock = CctClock(2, True)
    for inc in (1, 2, 3):
        clock.advance(0, inc, 5, (inc - 1, 2) if inc > 1 else NEVER)
    assert not clock.has(0, 1, 6)
    clock.settle(0, 2)
    assert clock.tails == {(0, 2): 5} and clock.orphans == {(0, 2): 5}, "tenure 2 itself is not settled"
    assert clock.has(0, 1, 6) and clock.has(0, 2, 5) and not clock.has(0, 2, 6)
    clock.settle(0, 3)
    assert clock.tails == {} and clock.orphans == {} and clock.has(0, 1, 6) and clock.ready([(2, 99), NEVER])
    clock.settle(0, 1)
    assert clock.floor == [3, 0], "a floor never sinks"


def test_tails_are_bounded_over_many_tenures():
    clock = CctClock(2, True)
    for inc in range(1, 200):
        clock.advance(0, inc, 3, (inc - 1, 1) if inc > 1 else NEVER)
        clock.advance(1, inc, 1, (inc - 1, 1) if inc > 1 else NEVER)
        assert len(clock.tails) <= 2 * CctClock.MAX_TAILS
        assert len(clock.orphans) <= 2 * CctClock.MAX_TAILS
    assert not clock.has(0, 190, 4) and clock.has(0, 3, 4), "recent tenures are remembered, old ones settled"


def test_orphans_are_bounded_for_orders_that_skip():
    clock = CctClock(1, False)
    for inc in range(1, 200):
        clock.advance(0, inc, 3, (inc - 1, 1) if inc > 1 else NEVER)
    assert len(clock.orphans) <= CctClock.MAX_TAILS


def test_tails_are_bounded_when_old_tenures_come_late():
    clock = CctClock(1, True)
    clock.advance(0, 200, 1, NEVER)
    for inc in range(1, 200):
        if not clock.has(0, inc, 1):
            clock.advance(0, inc, 1, NEVER)
    assert len(clock.tails) <= CctClock.MAX_TAILS


# --------------------------------------------------------------------------------------- against a model of sets


class Model:
    """The events that are done with, one by one. Tenures have at most `MAX` events, so sets stay finite."""

    MAX = 6

    def __init__(self, tickets: int, exact: bool) -> None:
        self.exact = exact
        self.done: set[tuple[int, int, int]] = set()
        self.tickets = tickets

    def has(self, ticket: int, inc: int, seq: int) -> bool:
        if seq == 0 or (ticket, inc, seq) in self.done:
            return True
        return not self.exact and any(t == ticket and (i, s) > (inc, seq) for t, i, s in self.done)

    def upto(self, ticket: int, inc: int, seq: int) -> set[tuple[int, int, int]]:
        """What is missing of a tenure up to an event."""
        return {(ticket, inc, s) for s in range(1, seq + 1) if not self.has(ticket, inc, s)}

    def missing(self, deps, orphans) -> set[tuple[int, int, int]]:
        wanted = [(i, *d) for i, d in enumerate(deps)] + (list(orphans) if self.exact else [])
        return set().union(*(self.upto(*w) for w in wanted))

    def newest(self, ticket: int) -> tuple[int, int]:
        return max(((i, s) for t, i, s in self.done if t == ticket), default=NEVER)

    def deliver(self, ticket: int, inc: int, last: int) -> None:
        self.done |= {(ticket, inc, s) for s in range(1, last + 1)}

    def give_up(self, deps, orphans) -> None:
        wanted = [(i, *d) for i, d in enumerate(deps)] + (list(orphans) if self.exact else [])
        for ticket, inc, seq in wanted:
            if not self.has(ticket, inc, seq):
                if inc != self.newest(ticket)[0]:  # a tenure is skipped into: what came before it is skipped with it
                    self.settle(ticket, inc)
                self.deliver(ticket, inc, seq)

    def settle(self, ticket: int, inc: int) -> None:
        self.done |= {(ticket, i, s) for i in range(1, inc) for s in range(1, self.MAX + 1)}


TICKETS = 3
entries = st.one_of(st.just(NEVER), st.tuples(st.integers(1, 4), st.integers(1, Model.MAX)))
vectors = st.tuples(*[entries] * TICKETS)
orphan_lists = st.lists(
    st.tuples(st.integers(0, TICKETS - 1), st.integers(1, 4), st.integers(1, Model.MAX)), max_size=2
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("deliver"), st.integers(0, TICKETS - 1), st.integers(1, 4), st.integers(1, 3), entries),
        st.tuples(st.just("give up"), vectors, orphan_lists),
        st.tuples(st.just("settle"), st.integers(0, TICKETS - 1), st.integers(0, 4)),
    ),
    max_size=25,
)


@settings(max_examples=300)
@given(st.booleans(), steps, st.lists(st.tuples(vectors, orphan_lists), min_size=1, max_size=3))
def test_clock_agrees_with_the_sets(exact, schedule, questions):
    clock, model = CctClock(TICKETS, exact), Model(TICKETS, exact)
    for step in schedule:
        before = list(clock.T)
        match step:
            case "deliver", ticket, inc, count, closes:
                # The next frame of this tenure, if the order would deliver it: not there yet, nothing missing.
                got = max((s for t, i, s in model.done if (t, i) == (ticket, inc)), default=0)
                if got + count > Model.MAX or model.has(ticket, inc, got + 1):
                    continue
                own = (inc, got) if got else min(closes, (inc - 1, Model.MAX) if inc > 1 else NEVER)
                if not model.has(ticket, *own):
                    continue
                clock.advance(ticket, inc, got + count, own)
                model.deliver(ticket, inc, got + count)
            case "give up", deps, orphans:
                clock.give_up(deps, orphans)
                model.give_up(deps, orphans)
                assert clock.ready(deps, orphans)
            case "settle", ticket, inc:
                clock.settle(ticket, min(inc, clock.T[ticket][0]))  # never beyond the present: finding 5
                model.settle(ticket, min(inc, model.newest(ticket)[0]))
        assert all(a <= b for a, b in zip(before, clock.T, strict=True)), "the present never goes back"
        assert [model.newest(i) for i in range(TICKETS)] == clock.T
        for deps, orphans in questions:
            ranges = clock.missing(deps, orphans)
            events = [(t, i, s) for t, i, first, last in ranges for s in range(first, last + 1)]
            assert set(events) == model.missing(deps, orphans)
            assert clock.ready(deps, orphans) is (not events)
    for ticket in range(TICKETS):
        for inc in range(1, 5):
            for seq in range(Model.MAX + 1):
                assert clock.has(ticket, inc, seq) is model.has(ticket, inc, seq)
