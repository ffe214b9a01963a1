"""The partial order of vectors, and the lattice under `merge`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whence.core.clock import concurrent, leq, merge, precedes

# Few values, so that equal and comparable vectors turn up often.
plain = st.tuples(*[st.integers(0, 2)] * 3)
entry = st.tuples(st.integers(0, 2), st.integers(0, 2))
cct = st.tuples(entry, entry, entry)
pair = st.one_of(st.tuples(plain, plain), st.tuples(cct, cct))
triple = st.one_of(st.tuples(plain, plain, plain), st.tuples(cct, cct, cct))


@pytest.mark.parametrize(
    ("a", "b", "relation"),
    [
        ((1, 0, 0), (1, 1, 0), "<"),
        ((1, 1, 0), (1, 0, 0), ">"),
        ((1, 0, 0), (0, 1, 0), "||"),
        ((2, 2, 2), (2, 2, 2), "="),
        (((1, 9), (1, 1)), ((2, 1), (1, 1)), "<"),  # a later incarnation is later, whatever its seq
        (((1, 9), (1, 2)), ((2, 1), (1, 1)), "||"),
    ],
)
def test_examples(a, b, relation):
    assert precedes(a, b) is (relation == "<")
    assert precedes(b, a) is (relation == ">")
    assert concurrent(a, b) is (relation == "||")
    assert (leq(a, b) and leq(b, a)) is (relation == "=")


@given(pair)
def test_exactly_one_relation_holds(vectors):
    a, b = vectors
    assert [precedes(a, b), precedes(b, a), concurrent(a, b), a == b].count(True) == 1


@given(pair)
def test_leq_is_entry_by_entry(vectors):
    a, b = vectors
    assert leq(a, b) is all(x <= y for x, y in zip(a, b, strict=True))
    assert precedes(a, b) is (leq(a, b) and any(x < y for x, y in zip(a, b, strict=True)))
    assert concurrent(a, b) is concurrent(b, a)


@given(triple)
def test_leq_is_a_partial_order(vectors):
    a, b, c = vectors
    assert leq(a, a)
    assert not (leq(a, b) and leq(b, a)) or a == b
    assert not (leq(a, b) and leq(b, c)) or leq(a, c)
    assert not precedes(a, a)
    assert not (precedes(a, b) and precedes(b, c)) or precedes(a, c)


@given(triple)
def test_merge_is_the_least_upper_bound(vectors):
    a, b, c = vectors
    join = merge(a, b)
    assert leq(a, join) and leq(b, join)
    assert not (leq(a, c) and leq(b, c)) or leq(join, c)


@given(triple)
def test_merge_laws(vectors):
    a, b, c = vectors
    assert merge(a, b) == merge(b, a)
    assert merge(a, merge(b, c)) == merge(merge(a, b), c)
    assert merge(a, a) == a
    assert leq(a, b) is (merge(a, b) == b)


def test_lists_and_tuples_compare_alike():
    assert leq([1, 2], (1, 2)) and not precedes([1, 2], (1, 2)) and precedes([1, 1], (1, 2))
