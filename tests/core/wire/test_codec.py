"""Messages survive the wire, keep their numbers, and hostile bytes raise only RemoteErrors."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.core.wire.messages import (
    EXAMPLES,
    FREE_EXAMPLES,
    KINDS,
    NEWS_EXAMPLES,
    NEWS_KINDS,
    STAMPED_EXAMPLES,
    TOTAL_EXAMPLES,
    messages,
    messages_of,
    news,
)
from whence.core.clock.bounds import MAX_MESSAGE_BYTES
from whence.core.wire import decode, decode_news, encode, pack, unpack
from whence.errors import BadMessage, RemoteError, TooLarge

ids = [type(m).__name__ for m in EXAMPLES]


def survives(data: bytes) -> Any:
    """Decode; a RemoteError is fine, anything else is not. What is accepted can be sent on and is accepted again."""
    try:
        message = decode(data)
    except RemoteError:
        return None
    again = encode(message)
    assert decode(again) == message and encode(decode(again)) == again
    return message


# -------------------------------------------------------------------------------------------------- round trips


def test_there_is_an_example_of_every_kind():
    assert [type(m) for m in EXAMPLES] == KINDS
    assert [type(m) for m in NEWS_EXAMPLES] == NEWS_KINDS


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.__name__)
def test_round_trip_of_generated_messages(kind):
    @settings(max_examples=30)
    @given(messages_of(kind))
    def check(message):
        assert decode(encode(message)) == message
        packet = unpack(pack("c", "a:1#2", message))
        assert packet == ("c", "a:1#2", message) and type(packet.message) is kind

    check()


@given(news)
def test_round_trip_of_news(item):
    assert decode_news(encode(item)) == item


# ------------------------------------------------------------------------------------------------- numbers, bytes

NUMBERS = {
    "Gossip": 1, "Subscribe": 2, "Welcome": 3, "IHave": 4, "Graft": 5, "Prune": 6, "Neighbor": 7, "NeighborReply": 8,
    "Disconnect": 9,
    "CJoin": 32, "Reject": 33, "AckCJoin": 34, "NewSucc": 35, "AckSucc": 36, "CLeave": 37, "AckCLeave": 38,
    "NackLeave": 39, "Poll": 40, "Alive": 41, "Update": 42, "AckUpdate": 43, "Exclude": 44, "AckExclude": 45,
    "ReqCoord": 46, "AckCoord": 47, "NackCoord": 48, "Cancel": 49, "Decline": 50, "Who": 51,
    "Sit": 96, "Vouch": 97, "Read": 98, "Seats": 99, "Claim": 100, "Agree": 101, "Vacate": 102, "Known": 103,
    "Attend": 104, "Volunteer": 105, "Missing": 106, "Prepare": 107, "Promise": 108, "Higher": 109, "Accept": 110,
    "Accepted": 111, "Begin": 112, "CloseLog": 113, "ClosedLog": 114, "EndLog": 115,
    "Recover": 64, "AckRecover": 65, "SnapshotRequest": 66, "SnapshotRefused": 67, "Snapshot": 68,
    "Tick": 69, "LogReport": 70, "Follow": 71, "LogReports": 72,
    "StateRequest": 73, "StatePart": 74, "DirectMessage": 75, "DirectAck": 76,
}  # fmt: skip


def test_numbers_are_only_ever_appended():
    assert {k.__name__: k.__struct_config__.tag for k in KINDS} == NUMBERS
    for kind in KINDS:
        room = kind.__module__.split(".")[2]
        allotted = {"cast": [(1, 15)], "ring": [(32, 63), (96, 127)], "order": [(64, 95)], "clock": [(64, 95)]}[room]
        assert any(low <= kind.__struct_config__.tag <= high for low, high in allotted)


@pytest.mark.parametrize("message", FREE_EXAMPLES + STAMPED_EXAMPLES + TOTAL_EXAMPLES, ids=lambda m: type(m).__name__)
def test_messages_of_clusters_without_tickets_come_back_as_they_were(message):
    assert decode(encode(message)) == message


def test_an_unknown_last_field_is_ignored():
    """A peer of tomorrow has appended a field."""
    recover = next(m for m in EXAMPLES if type(m).__name__ == "Recover")
    longer = msgspec.msgpack.encode([*msgspec.msgpack.decode(encode(recover)), {"new": [1, 2]}])
    assert decode(longer) == recover


# ------------------------------------------------------------------------------------------------- hostile bytes


@settings(max_examples=500)
@given(st.binary(max_size=200))
@example(b"")
@example(b"\xc1")
def test_random_bytes(data):
    survives(data)
    with pytest.raises(RemoteError):
        decode_news(b"\xc1" + data)


@pytest.mark.parametrize("message", EXAMPLES, ids=ids)
def test_truncated_at_every_length(message):
    data = encode(message)
    for length in range(len(data)):
        with pytest.raises(BadMessage):
            decode(data[:length])


@pytest.mark.parametrize("message", EXAMPLES, ids=ids)
def test_every_bit_flipped(message):
    data = encode(message)
    for at in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[at] ^= 1 << bit
            survives(bytes(flipped))


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.floats() | st.binary(max_size=5)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@settings(max_examples=400)
@given(messages, st.data())
def test_one_value_replaced_by_another_of_any_type(message, data):
    """The structure is kept, so the wrong value gets past the first length."""
    tree = msgspec.msgpack.decode(encode(message))
    node = tree
    while True:
        at = data.draw(st.integers(0, len(node) - 1))
        if isinstance(node[at], list) and node[at] and data.draw(st.booleans()):
            node = node[at]
        else:
            break
    node[at] = data.draw(plain)
    survives(msgspec.msgpack.encode(tree))


HUGE = [b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff",
        b"\xc9\xff\xff\xff\xff\x01", b"\xdd\x7f\xff\xff\xff", b"\xdc\xff\xff", b"\xde\xff\xff"]  # fmt: skip


def test_announced_lengths_cost_nothing():
    tracemalloc.start()
    try:
        for message in EXAMPLES:
            data = encode(message)
            for at in range(len(data)):
                for head in HUGE:
                    survives(data[:at] + head + data[at:])
                    survives(data[:at] + head)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20, "a header of five bytes must not make room for what it announces"


@pytest.mark.parametrize("nest", [b"\x91", b"\xdd\x00\x00\x00\x01", b"\x81\x01", b"\x92\x00"], ids=repr)
@pytest.mark.parametrize("head", [b"", b"\x94\x40\x01\x90", b"\x97\x01", b"\x92\x44"], ids=repr)
def test_deep_nesting(head, nest):
    with pytest.raises(BadMessage):
        decode(head + nest * 100_000)


def test_an_expanding_message_stays_within_the_documented_factor():
    """`bounds` says: at most about 32 bytes of objects per byte. The worst there is: tiny entries and tiny strings."""
    n = 100_000
    vector = b"\xdd" + n.to_bytes(4, "big") + b"\x92\x01\x01" * n
    pairs = b"\xdd" + n.to_bytes(4, "big") + b"\x92\xa2\xc4\x80\x00" * n
    strings = b"\xdd" + n.to_bytes(4, "big") + b"\xa2\xc4\x80" * n  # one character that is not Latin-1: 76 bytes
    gossip = b"\x96\x01\x90\x90\x92" + vector + b"\x90\x90\x90"
    snapshot = b"\x97\x44\x01\xa0\x98\x01\x90\x90\x90\x90\x90\x90\x90\x90" + strings + b"\xc4\x00"
    for data in (gossip, b"\x92\x03" + pairs, snapshot):
        tracemalloc.start()
        try:
            with pytest.raises(RemoteError):
                decode(data)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 32 * len(data)


@pytest.mark.parametrize("message", EXAMPLES, ids=ids)
def test_garbage_behind_a_message(message):
    for tail in (b"\x00", b"\xc0", encode(message)):
        with pytest.raises(BadMessage):
            decode(encode(message) + tail)


@pytest.mark.parametrize("number", [0, 4, 15, 16, 31, 52, 63, 69, 127, 128, -1, 1 << 40, (1 << 64) - 1])
def test_unknown_numbers(number):
    with pytest.raises(BadMessage):
        decode(msgspec.msgpack.encode([number, 1, 2, 3]))


@pytest.mark.parametrize("tree", [[], {}, None, 1, "x", b"x", [None], [True], ["1"], [1.0], [[1]], {"type": 1}])
def test_what_is_no_message_at_all(tree):
    with pytest.raises(BadMessage):
        decode(msgspec.msgpack.encode(tree))


def test_a_name_that_is_no_utf8():
    with pytest.raises(BadMessage):
        decode(b"\x92\x03\x91\x92\xa4\xff\xfe#1\x00")


def test_too_long_is_refused_before_it_is_decoded():
    with pytest.raises(TooLarge, match="message of 4194305 bytes"):
        decode(bytes(MAX_MESSAGE_BYTES + 1))
    with pytest.raises(TooLarge, match="8193 bytes"):
        decode_news(bytes(8193))
