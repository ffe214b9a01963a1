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
def test_leq_is_entry_by_entry(vectors):
    a, b = vectors
    assert leq(a, b) is all(x <= y for x, y in zip(a, b, strict=True))
    assert precedes(a, b) is (leq(a, b) and any(x < y for x, y in zip(a, b, strict=True)))
    assert concurrent(a, b) is concurrent(b, a)


@given(triple)
def test_merge_is_the_least_upper_bound(vectors):
    a, b, c = vectors
    join = merge(a, b)
    assert leq(a, join) and leq(b, join)
    assert not (leq(a, c) and leq(b, c)) or leq(join, c)
