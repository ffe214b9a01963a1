"""Interval tree clocks against causal histories: the order of stamps is the inclusion of the sets of events behind
them."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import whence.core.clock.interval as itc
from whence.core.clock.interval import SEED, Event, Id, TreeStamp, decode, encode, event, fork, join, leq, peek
from whence.errors import BadMessage, UsageError


def is_normal_id(i: Id) -> bool:
    return i in (0, 1) if isinstance(i, int) else i not in ((0, 0), (1, 1)) and all(map(is_normal_id, i))


def is_normal(e: Event) -> bool:
    if isinstance(e, int):
        return e >= 0
    n, left, right = e
    smaller = min(itc.base(left), itc.base(right))
    return (
        n >= 0
        and smaller == 0
        and not (isinstance(left, int) and left == right)
        and is_normal(left)
        and is_normal(right)
    )


def whole(i: Id) -> float:
    return float(i) if isinstance(i, int) else (whole(i[0]) + whole(i[1])) / 2


History = list[tuple[TreeStamp, frozenset[int]]]


def history(steps: list[tuple[int, int, int]], merge_events: bool = True) -> History:
    """Processes fork, count, learn from each other's messages, and join, as `steps` say; each with the set of the
    events it knows. Returns all processes as they were at any time."""
    live: History = [(SEED, frozenset())]
    seen: History = []
    count = 0
    for what, a, b in steps:
        a %= len(live)
        stamp, known = live[a]
        if what == 0 and len(live) < 8:
            left, right = fork(stamp)
            live[a] = (left, known)
            live.append((right, known))
        elif what == 1:
            count += 1
            live[a] = (event(stamp), known | {count})
        elif what == 2:
            other, theirs = live[b % len(live)]
            live[a] = (join(stamp, peek(other)) if merge_events else stamp, known | theirs)
        elif len(live) > 1 and (b := b % len(live)) != a:
            other, theirs = live[b]
            live[a] = (join(stamp, other), known | theirs)
            del live[b]
        seen += live
    assert sum(whole(s.id) for s, _ in live) == 1  # no share is lost or owned twice
    return seen


STEPS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 7), st.integers(0, 7)), max_size=40)


def disagreements(seen: History) -> int:
    return sum(leq(a, b) != (x <= y) for a, x in seen for b, y in seen)


@settings(max_examples=60)
@given(STEPS)
def test_stamps_are_ordered_as_their_histories(steps: list[tuple[int, int, int]]) -> None:
    seen = history(steps)
    few = seen if len(seen) < 60 else Random(0).sample(seen, 60)
    assert disagreements(few) == 0
    for stamp, _ in few:
        assert is_normal_id(stamp.id) and is_normal(stamp.event)
        assert decode(encode(stamp)) == stamp


def test_a_dropped_merge_is_seen() -> None:
    rng = Random(1)
    steps = [(rng.randrange(4), rng.randrange(8), rng.randrange(8)) for _ in range(40)]
    assert disagreements(history(steps)) == 0
    assert disagreements(history(steps, merge_events=False)) > 0


def test_a_run_by_hand() -> None:
    """Seed, forks, events, joins: a run such as the article draws, computed by hand from its rules."""
    a, b = fork(SEED)
    assert (a, b) == (TreeStamp((1, 0), 0), TreeStamp((0, 1), 0))
    a, b = event(a), event(event(b))
    assert (a, b) == (TreeStamp((1, 0), (0, 1, 0)), TreeStamp((0, 1), (0, 0, 2)))
    a, c = fork(a)
    assert (a, c) == (TreeStamp(((1, 0), 0), (0, 1, 0)), TreeStamp(((0, 1), 0), (0, 1, 0)))
    a = event(a)
    assert a == TreeStamp(((1, 0), 0), (0, (1, 1, 0), 0))
    b = join(c, b)
    assert b == TreeStamp(((0, 1), 1), (1, 0, 1))
    c, b = fork(b)
    assert (c, b) == (TreeStamp(((0, 1), 0), (1, 0, 1)), TreeStamp((0, 1), (1, 0, 1)))
    a = join(a, c)
    assert a == TreeStamp((1, 0), (1, (0, 1, 0), 1))
    assert event(a) == TreeStamp((1, 0), 2)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(UsageError, match="without id"):
        event(peek(SEED))
    with pytest.raises(UsageError, match="overlap"):
        join(SEED, SEED)


@settings(max_examples=200)
@given(st.binary(max_size=40))
def test_hostile_bytes_are_a_stamp_or_a_named_error(data: bytes) -> None:
    try:
        stamp = decode(data)
    except BadMessage:
        return
    assert encode(stamp) == data and is_normal_id(stamp.id) and is_normal(stamp.event)


def test_trees_too_deep_and_numbers_too_large_are_refused() -> None:
    for data in (b"\xff" * 100, b"\x00" * 100, b""):
        with pytest.raises(BadMessage):
            decode(data)
