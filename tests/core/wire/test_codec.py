"""Messages survive the wire, keep their numbers, and hostile bytes raise only RemoteErrors."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.core.wire.messages import (
    CLOCK,
    EXAMPLES,
    FREE_CLOCK,
    FREE_EXAMPLES,
    KINDS,
    NEWS_EXAMPLES,
    NEWS_KINDS,
    STAMPED_CLOCK,
    STAMPED_EXAMPLES,
    messages,
    messages_of,
    news,
)
from whence.core.cast.messages import News
from whence.core.clock import Digest, Frame, FreeFrame, Packed, StampedFrame
from whence.core.order.messages import (
    FreeState,
    GenerationState,
    OwnerState,
    SavedState,
    Snapshot,
    SnapshotRequest,
    StampedState,
    TicketState,
)
from whence.core.ring.messages import Holder, Row, Tenure
from whence.core.wire import Limits, decode, decode_news, encode, encode_news, pack, unpack, validate
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
        validate(message)
        assert decode(encode(message)) == message
        packet = unpack(pack("c", "a:1#2", message))
        assert packet == ("c", "a:1#2", message) and type(packet.message) is kind

    check()


@given(news)
def test_round_trip_of_news(item):
    assert decode_news(encode_news(item)) == item


# ------------------------------------------------------------------------------------------------- numbers, bytes

NUMBERS = {
    "Gossip": 1, "Subscribe": 2, "Welcome": 3, "IHave": 4, "Graft": 5, "Prune": 6, "Neighbor": 7, "NeighborReply": 8,
    "Disconnect": 9,
    "CJoin": 32, "Reject": 33, "AckCJoin": 34, "NewSucc": 35, "AckSucc": 36, "CLeave": 37, "AckCLeave": 38,
    "NackLeave": 39, "Poll": 40, "Alive": 41, "Update": 42, "AckUpdate": 43, "Exclude": 44, "AckExclude": 45,
    "ReqCoord": 46, "AckCoord": 47, "NackCoord": 48, "Cancel": 49, "Decline": 50, "Who": 51,
    "Rally": 52, "Witness": 53,
    "Sit": 96, "Vouch": 97, "Read": 98, "Seats": 99, "Claim": 100, "Agree": 101, "Vacate": 102, "Known": 103,
    "Attend": 104, "Volunteer": 105, "Missing": 106, "Prepare": 107, "Promise": 108, "Higher": 109, "Accept": 110,
    "Accepted": 111, "Begin": 112,
    "Recover": 64, "AckRecover": 65, "SnapshotRequest": 66, "SnapshotRefused": 67, "Snapshot": 68,
}  # fmt: skip


def test_numbers_are_only_ever_appended():
    assert {k.__name__: k.__struct_config__.tag for k in KINDS} == NUMBERS
    for kind in KINDS:
        room = kind.__module__.split(".")[2]
        allotted = {"cast": [(1, 15)], "ring": [(32, 63), (96, 127)], "order": [(64, 95)]}[room]
        assert any(low <= kind.__struct_config__.tag <= high for low, high in allotted)


GOLDEN = {
    "Gossip": (
        "9701929b0101cf00010000020000030302a5623a3123329392050692cf0001000002000003029200009193000409c40892c4"
        "0178c402797a93000402c4009502a5613a31233204c4016ec400920102929192050691930004099192a5613a312332039192a562"
        "3a3123320090"
    ),
    "Subscribe": "920214",
    "Welcome": "92039192a5613a31233203",
    "IHave": "9304939301cf00010000020000030393a5613a312332000592a5613a3123320493010203",
    "Graft": "9205929301cf00010000020000030392a5613a31233204",
    "Prune": "920692a5613a312332a0",
    "Neighbor": "9207c3",
    "NeighborReply": "9208c2",
    "Disconnect": "9109",
    "CJoin": "932009ff",
    "Reject": "962109a466756c6cc305919200a5613a312332",
    "AckCJoin": (
        "9922090a9200079201cf000100000200000393a5613a31233200079193a5613a3123320007929193a5613a31233200079091"
        "9501a00703920700"
    ),
    "Decline": "9332099201cf0001000002000003",
    "Who": "923309",
    "Rally": "953409029193a5613a312332000791a5613a312332",
    "Witness": "983509c2050291a5613a312332919293a5613a312332000793a5613a31233200079193a5613a3123320007",
    "NewSucc": "93239200079201cf0001000002000003",
    "AckSucc": "93249200079201cf0001000002000003",
    "CLeave": "9825099200079201cf000100000200000393a5613a312332000708919193a5613a3123320007919501a00703920700",
    "AckCLeave": "9326099201cf0001000002000003",
    "NackLeave": "9327099201cf0001000002000003",
    "Poll": "9628099200079201cf00010000020000030506",
    "Alive": "9629099200079201cf00010000020000030508",
    "Update": "972a099200079201cf0001000002000003059193a5613a3123320007919201cf0001000002000003",
    "AckUpdate": "962b099200079201cf000100000200000308c2",
    "Exclude": "942c0992000702",
    "AckExclude": "962d099200079201cf0001000002000003059193a5613a3123320007",
    "ReqCoord": "962e099200079201cf00010000020000030205",
    "AckCoord": "942f099201cf0001000002000003919501a00703920700",
    "NackCoord": "9430099201cf000100000200000305",
    "Cancel": "933109920007",
    "Sit": "956003099201cf000100000200000306",
    "Vouch": "94610309a5613a312332",
    "Read": "93620309",
    "Seats": "95630309a5613a31233293059193a5613a3123320007919501a00703920700",
    "Claim": "9564030905920102",
    "Agree": "94650309a5613a312332",
    "Vacate": "93669201cf000100000200000306",
    "Known": "926793039292a5613a312332c292a5623a312332c39192a5613a312332c2",
    "Attend": "946803a5613a312332c2",
    "Volunteer": "926992a5623a312332c3",
    "Missing": "926a03",
    "Prepare": "936b039204a5623a312332",
    "Promise": (
        "966c039204a5623a312332a5613a312332929204a5623a3123329292a5613a312332c292a5623a312332c393059193a5613a"
        "3123320007919501a00703920700"
    ),
    "Higher": "936d039204a5623a312332",
    "Accept": "946e039204a5623a3123329292a5613a312332c292a5623a312332c3",
    "Accepted": "946f039204a5623a312332a5613a312332",
    "Begin": ("937093039292a5613a312332c292a5623a312332c39192a5613a312332c293059193a5613a3123320007919501a00703920700"),
    "Recover": "94400991940007010490",
    "AckRecover": (
        "954109929b0101cf00010000020000030302a5623a3123329392050692cf0001000002000003029200009193000409c40892"
        "c40178c402797a93000402c4009b0100070101a5613a3123329192000090c40391c400c0c40091940007020490"
    ),
    "SnapshotRequest": "96420902c2c2a0",
    "SnapshotRefused": "934309a462757379",
    "Snapshot": (
        "974409a7613a3123322f319992920506920000920400919300040891930004099292050692000091930005a5613a31233291"
        "93010203c0c0919200a5613a31233292a5613a312332a5623a312332c4057374617465"
    ),
    "JoinedNews": "920193a5613a3123320007",
    "GoneNews": "940292010208a5613a312332",
    "ReleasedNews": "930393a5613a312332000706",
}

FREE_GOLDEN = {
    "Gossip": (
        "9701919c03a5613a312332030502cf000000010000000002920002930301c406030000002b01c40792c40178c40179919200"
        "930107c40100c4009101c09192a5613a31233203909192a5613a31233203"
    ),
    "Recover": "944009909193a5613a3123320104",
    "AckRecover": (
        "954109919c03a5613a312332030502cf000000010000000002920002930301c406030000002b01c40792c40178c401799192"
        "00930107c40100c400909193a5613a3123320104"
    ),
    "SnapshotRequest": "96420904c2c3a0",
    "Snapshot": (
        "974409a7613a3123322f3199909090909090909592960001930107c401009090930108c4010096cf00000001000000000293"
        "0301c4030300089301000093030000c09195a5613a31233202cf000000010000000002920002919c03a5613a312332030502"
        "cf000000010000000002920002930301c406030000002b01c40792c40178c40179919200930107c40100c4009193a5613a31"
        "2332050601c09092a5613a312332a5623a312332c4057374617465"
    ),
}

BEFORE_FREE = {
    "Gossip": (
        "9601929b0101cf00010000020000030302a5623a3123329392050692cf0001000002000003029200009193000409c40892c4"
        "0178c402797a93000402c4009402a5613a31233204c4016e920102929192050691930004099192a5613a312332039192a562"
        "3a31233200"
    ),
    "Recover": "934009919400070104",
    "AckRecover": (
        "944109929b0101cf00010000020000030302a5623a3123329392050692cf0001000002000003029200009193000409c40892"
        "c40178c402797a93000402c4009b0100070101a5613a3123329192000090c40391c400c0c400919400070204"
    ),
    "SnapshotRequest": "94420902c2",
    "Snapshot": (
        "974409a7613a3123322f319792920506920000920400919300040891930004099292050692000091930005a5613a31233291"
        "93010203919200a5613a31233292a5613a312332a5623a312332c4057374617465"
    ),
}
"""What these were before there were clusters without tickets."""

STAMPED_GOLDEN = {
    "Gossip": (
        "9701919a04a5613a31233203050292a5623a312332a5613a312332c4059203920403c40792c40178c40179c2c4009101c091"
        "92a5613a31233203909192a5613a31233203"
    ),
    "AckRecover": (
        "954109919a04a5613a31233203050292a5623a312332a5613a312332c4059203920403c40792c40178c40179c2c400909193"
        "a5613a3123320104"
    ),
    "SnapshotRequest": "96420902c2c3a6766563746f72",
    "Snapshot": (
        "974409a7613a3123322f319990909090909090c094a6766563746f7292a5613a312332a5623a312332920304c40592039203"
        "049092a5613a312332a5623a312332c4057374617465"
    ),
}

BEFORE_MECHANISMS = [
    "95420902c2c2",
    (
        "974409a7613a3123322f319892920506920000920400919300040891930004099292050692000091930005a5613a31233291"
        "93010203c0919200a5613a31233292a5613a312332a5623a312332c4057374617465"
    ),
    "95420904c2c3",
    (
        "974409a7613a3123322f3198909090909090909592960001930107c401009090930108c4010096cf00000001000000000293"
        "0301c4030300089301000093030000c09195a5613a31233202cf000000010000000002920002919c03a5613a312332030502"
        "cf000000010000000002920002930301c406030000002b01c40792c40178c40179919200930107c40100c4009193a5613a31"
        "23320506019092a5613a312332a5623a312332c4057374617465"
    ),
]
"""SnapshotRequest and Snapshot, with and without tickets, before a mechanism could order a cluster."""


@pytest.mark.parametrize("message", EXAMPLES + NEWS_EXAMPLES, ids=lambda m: type(m).__name__)
def test_golden_bytes(message):
    """A peer of yesterday sends these bytes. A field may be appended (change the golden bytes then, and keep the old
    ones in a test that they still decode); anything else needs a new VERSION."""
    data = encode(message)
    assert data.hex() == GOLDEN[type(message).__name__]


@pytest.mark.parametrize("message", FREE_EXAMPLES, ids=lambda m: type(m).__name__)
def test_golden_bytes_without_tickets(message):
    data = encode(message)
    assert data.hex() == FREE_GOLDEN[type(message).__name__] and decode(data) == message


def test_what_was_sent_before_there_were_clusters_without_tickets_still_decodes():
    of = {type(m).__name__: m for m in EXAMPLES}
    for kind, data in BEFORE_FREE.items():
        assert decode(bytes.fromhex(data)) == of[kind]


@pytest.mark.parametrize("message", STAMPED_EXAMPLES, ids=lambda m: type(m).__name__)
def test_golden_bytes_of_a_mechanism(message):
    data = encode(message)
    assert data.hex() == STAMPED_GOLDEN[type(message).__name__] and decode(data) == message


def test_what_was_sent_before_there_were_mechanisms_still_decodes():
    known = [*EXAMPLES, *FREE_EXAMPLES]
    wanted = [m for m in known if isinstance(m, SnapshotRequest)], [m for m in known if isinstance(m, Snapshot)]
    found = [decode(bytes.fromhex(data)) for data in BEFORE_MECHANISMS]
    assert (found[0::2], found[1::2]) == wanted


FIELDS = {
    "Gossip": "items ages digest members unsubs heads",
    "Subscribe": "wanted",
    "Welcome": "members",
    "IHave": "keys ages",
    "Graft": "keys",
    "Prune": "origins",
    "Neighbor": "urgent",
    "NeighborReply": "linked",
    "Disconnect": "",
    "CJoin": "nonce wish",
    "Reject": "nonce reason owner era known",
    "AckCJoin": "nonce update mine yours succ L inherited rows",
    "Decline": "nonce tenure",
    "Who": "nonce",
    "Rally": "nonce epoch cycle founders",
    "Witness": "nonce alive era pledged to ended never",
    "NewSucc": "mine yours",
    "AckSucc": "mine yours",
    "CLeave": "nonce mine yours succ answers held rows",
    "AckCLeave": "nonce yours",
    "NackLeave": "nonce yours",
    "Poll": "nonce mine yours era seq",
    "Alive": "nonce mine yours era promised",
    "Update": "nonce mine yours era R takeover",
    "AckUpdate": "nonce mine yours adopted confirmed",
    "Exclude": "nonce mine ticket",
    "AckExclude": "nonce mine yours era L",
    "ReqCoord": "nonce mine yours until era",
    "AckCoord": "nonce yours rows",
    "NackCoord": "nonce yours era",
    "Cancel": "nonce mine",
    "Sit": "council nonce mine seq",
    "Vouch": "council nonce voter",
    "Read": "council nonce",
    "Seats": "council nonce voter table",
    "Claim": "council nonce era tickets",
    "Agree": "council nonce voter",
    "Vacate": "tenure seq",
    "Known": "now",
    "Attend": "council voter leaving",
    "Volunteer": "as_voter",
    "Missing": "council",
    "Prepare": "council ballot",
    "Promise": "council ballot voter accepted table",
    "Higher": "council ballot",
    "Accept": "council ballot voters",
    "Accepted": "council ballot voter",
    "Begin": "now table",
    "Recover": "nonce ranges runs",
    "AckRecover": "nonce frames lacks lacks_runs",
    "SnapshotRequest": "nonce rank last_resort free mechanism",
    "SnapshotRefused": "nonce reason",
    "Snapshot": "nonce token clock coordinators members state",
    "JoinedNews": "holder",
    "GoneNews": "tickets floor by",
    "ReleasedNews": "holder seq",
    "Frame": "ticket inc first count owner deps orphans body prior signature",
    "News": "origin number body signature",
    "Digest": "T orphans",
    "SavedState": "T floor tails orphans past owners ahead free stamped",
    "StampedState": "mechanism processes taken state",
    "StampedFrame": "owner number first count processes stamp body anchor signature",
    "FreeState": "generations owners waiting ahead forgotten",
    "GenerationState": "generation K V owed level past",
    "OwnerState": "owner taken generation opened keys",
    "FreeFrame": "owner number first count generation opened keys vector body older signature",
    "Packed": "R base offsets",
    "Tenure": "ticket inc",
    "Holder": "member ticket inc",
    "Row": "ticket owner top floor last",
}


PARTS = [
    Frame,
    News,
    Digest,
    SavedState,
    FreeState,
    GenerationState,
    OwnerState,
    FreeFrame,
    Packed,
    StampedState,
    StampedFrame,
]


def test_fields_keep_their_places():
    """Two fields of one type change places without a change of any golden byte."""
    structs = {k.__name__: " ".join(k.__struct_fields__) for k in [*KINDS, *NEWS_KINDS, *PARTS]}
    tuples = {k.__name__: " ".join(k._fields) for k in (Tenure, Holder, Row)}
    assert structs | tuples == FIELDS


@pytest.mark.parametrize("clock", [CLOCK, FREE_CLOCK, STAMPED_CLOCK], ids=["tickets", "no tickets", "mechanism"])
def test_the_state_of_each_kind_of_cluster_comes_back_as_it_was(clock):
    state = clock.state()
    assert type(state) in (TicketState, FreeState, StampedState) and SavedState.of(state) == clock
    assert len(msgspec.msgpack.decode(msgspec.msgpack.encode(clock))) == 9  # the layout of all versions


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


@settings(max_examples=500)
@given(st.sampled_from(sorted(NUMBERS.values())), st.integers(0, 15), st.binary(max_size=200))
def test_random_bytes_behind_a_known_number(number, length, data):
    survives(bytes((0x90 | length, number)) + data)


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


@settings(max_examples=300)
@given(messages, st.data())
def test_bytes_replaced_inserted_and_removed(message, data):
    raw = bytearray(encode(message))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw)))
        raw[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=5))
    survives(bytes(raw))


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
    """`Limits` says: at most about 32 bytes of objects per byte. The worst there is: tiny entries and tiny strings."""
    n = 100_000
    vector = b"\xdd" + n.to_bytes(4, "big") + b"\x92\x01\x01" * n
    pairs = b"\xdd" + n.to_bytes(4, "big") + b"\x92\xa2\xc4\x80\x00" * n
    strings = b"\xdd" + n.to_bytes(4, "big") + b"\xa2\xc4\x80" * n  # one character that is not Latin-1: 76 bytes
    gossip = b"\x96\x01\x90\x90\x92" + vector + b"\x90\x90\x90"
    snapshot = b"\x97\x44\x01\xa0\x97\x90\x90\x90\x90\x90\x90\x90\x90" + strings + b"\xc4\x00"
    for data in (gossip, b"\x92\x03" + pairs, snapshot):
        tracemalloc.start()
        try:
            with pytest.raises(TooLarge):
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
    with pytest.raises(TooLarge, match="101 bytes"):
        decode(bytes(101), Limits(max_message_bytes=100))
    with pytest.raises(TooLarge, match="8193 bytes"):
        decode_news(bytes(8193))
