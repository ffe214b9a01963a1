"""Cursors and words, without a worker."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whence.core.clock import EventId, Incarnation
from whence.live.objects.kernel import EventStamp
from whence.live.web.words import (
    KEPT,
    CloseCode,
    HangUp,
    Position,
    Spoken,
    heard,
    payload_of,
    said_in,
    stamp_text,
)

ids = st.tuples(st.integers(0, 3), st.integers(1, 5).map(lambda n: Incarnation(1, 0, n).packed), st.integers(1, 9))


@given(st.lists(ids), st.lists(ids))
def test_a_cursor_has_what_was_given_and_what_came_before_it(given_: list[tuple[int, int, int]], more: list) -> None:
    cursor = Position()
    for each in given_:
        cursor.add(*each)
    assert all(cursor.has(t, i, s) for t, i, last in given_ for s in range(1, last + 1))
    assert Position.parse(cursor.text()).upto == cursor.upto
    wider = Position(dict(cursor.upto))
    for each in more:
        wider.add(*each)
    assert wider.covers(cursor)
    assert cursor.covers(wider) == all(cursor.has(*each) for each in more)


def test_of_old_tenures_everything_was_given() -> None:
    cursor = Position()
    for n in range(1, KEPT + 3):
        cursor.add(4, Incarnation(1, 0, n).packed, 7)
    assert len(cursor.upto) == KEPT
    assert cursor.has(4, Incarnation(1, 0, 1).packed, 99), "settled: nothing of it is missing"
    assert not cursor.has(4, Incarnation(1, 0, 9).packed, 8)
    assert not cursor.has(5, Incarnation(1, 0, 1).packed, 1), "another ticket"


@pytest.mark.parametrize(
    "text",
    ["", "null", "[]", "{}", '{"t":"no"}', '{"t":"pub","n":0,"d":1}', '{"t":"pub","n":1}', '{"t":"op","n":1,"o":[1]}',
     '{"t":"hello","v":1,"key":"short"}', '{"t":"took","k":-1}', "\ud800", "[" * 5000, '{"t":"rows","r":[[1,2,3,4]]}'],
)  # fmt: skip
def test_nonsense_is_named(text: str) -> None:
    with pytest.raises(HangUp) as said:
        heard(text.encode("utf-8", "surrogatepass"))
    assert said.value.code == CloseCode.NONSENSE


def test_what_workers_publish_is_read_and_nothing_else_is() -> None:
    for said in (Spoken("r", "n", "u", 1, b"{}"), Spoken("r", "n", "u", 0, b"")):
        assert said_in(payload_of(said)) == said
    for payload in (b"", b"hello", b"\x0e\x01", b"\x0e\x02" + payload_of(said)[2:], payload_of(said)[:-1]):
        assert said_in(payload) is None


stamps = st.builds(
    lambda a, b, c, t, i, s: EventStamp(a, b, c, *EventId(t, i, s, "m#1")),
    st.integers(0, 9), st.integers(0, 1 << 40), st.integers(0, 1 << 40), st.integers(0, 7), st.integers(1, 1 << 63),
    st.integers(1, 1 << 30),
)  # fmt: skip


@given(stamps, stamps)
def test_stamps_compare_as_text_as_they_do(a: EventStamp, b: EventStamp) -> None:
    assert (a < b) == (stamp_text(a) < stamp_text(b))
