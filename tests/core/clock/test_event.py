"""Names of events and members, incarnations, frames."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whence.core.clock import EventId, Frame, Incarnation, address_of, boot_of, member_id
from whence.core.clock.event import FRAME_BYTES, FRAME_EVENTS, fitting

incarnations = st.builds(
    Incarnation, st.integers(0, (1 << 16) - 1), st.integers(0, (1 << 24) - 1), st.integers(0, (1 << 24) - 1)
)
small = st.builds(Incarnation, st.integers(0, 2), st.integers(0, 2), st.integers(0, 2))
owners = st.builds(member_id, st.from_regex(r"[a-z0-9.:@#-]{1,20}", fullmatch=True), st.integers(0, 1 << 63))


@given(st.one_of(incarnations, small), st.one_of(incarnations, small))
def test_packing_keeps_the_order(a, b):
    assert (a < b) is (a.packed < b.packed)
    assert (a == b) is (a.packed == b.packed)


@given(incarnations)
def test_packing_and_text_round_trip(a):
    assert Incarnation.unpack(a.packed) == a
    assert Incarnation.parse(str(a)) == a
    assert 0 <= a.packed < 1 << 64


@pytest.mark.parametrize(
    "wrong", [(1 << 16, 0, 0), (0, 1 << 24, 0), (0, 0, 1 << 24), (-1, 0, 0), (0, -1, 0), (0, 0, -1)]
)
def test_packing_refuses_what_would_lose_the_order(wrong):
    with pytest.raises(OverflowError, match="incarnation out of range"):
        _ = Incarnation(*wrong).packed


@given(st.integers(0, 1 << 16), incarnations, st.integers(1, (1 << 32) - 1), owners)
def test_event_id_round_trip(ticket, inc, seq, owner):
    event = EventId(ticket, inc.packed, seq, owner)
    assert EventId.parse(str(event)) == event


@pytest.mark.parametrize(
    "text",
    [
        "",
        "@",
        "1:1.1.1:1",
        "1:1.1.1@a#0",
        "1:1.1:1@a#0",
        "x:1.1.1:1@a#0",
        "1:1.1.1:y@a#0",
        "1:1.1.1:1:1@a#0",
        "1:65536.0.0:1@a#0",
        "1:0.16777216.0:1@a#0",
        "-1:1.1.1:1@a#0",
        "1:1.1.1:-1@a#0",
        " 1:1.1.1:1@a#0",
        "1_0:1.1.1:1@a#0",
    ],
)
def test_event_id_parse_refuses(text):
    with pytest.raises(ValueError):
        EventId.parse(text)


@given(owners)
def test_member_id_round_trip(owner):
    assert member_id(address_of(owner), boot_of(owner)) == owner


def test_frame_names_its_events():
    inc = Incarnation(1, 0, 2).packed
    deps = ((inc, 4), (0, 0), (7, 9))
    frame = Frame.of(0, inc, 5, "a#1", deps, [b"x", b"", b"yz"])
    assert (frame.count, frame.last, frame.key, frame.stamp) == (3, 7, (0, inc, 5), (inc, 7))
    assert frame.payloads() == [b"x", b"", b"yz"]
    assert frame.names() == [str(EventId(0, inc, s, "a#1")) for s in (5, 6, 7)]
    assert frame.timestamp(6) == ((inc, 6), (0, 0), (7, 9))
    assert frame.deps is deps


payloads = st.lists(st.binary(max_size=300), min_size=1, max_size=40)


@given(payloads, st.integers(1, 30))
def test_frame_size_is_near_the_encoded_size(bodies, tickets):
    """`size` models the bandwidth: within a few bytes per entry of the truth, and never far below it."""
    frame = Frame.of(0, 1 << 40, 1, "10.0.0.1:4000#1", ((1 << 39, 1),) * tickets, bodies)
    assert abs(frame.size - len(msgspec.msgpack.encode(frame))) <= 24 + 7 * tickets


@given(st.lists(st.sampled_from([0, 1, 60, 20_000, 47_995, 70_000]), max_size=40), st.integers(1, 3))
def test_chunks_are_full_within_bounds_and_lose_nothing(sizes, frames):
    payloads = [bytes(size) for size in sizes]
    start = 0
    while start < len(payloads):
        end = fitting(payloads, start, frames)
        held = [len(p) + 5 for p in payloads[start:end]]
        assert len(held) == 1 or sum(held) <= frames * FRAME_BYTES
        assert end == len(payloads) or sum(held) + len(payloads[end]) + 5 > frames * FRAME_BYTES
        assert end > start
        start = end
    small = [b""] * (2 * FRAME_EVENTS * frames)
    assert fitting(small, 0, frames) == FRAME_EVENTS * frames and fitting(small, len(small) - 1, frames) == len(small)
