"""Packets and streams: headers, versions, several clusters on one port, chunks of any size, lengths that lie."""

from __future__ import annotations

import contextlib
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.wire.messages import EXAMPLES
from whence.core.clock import NEVER, Frame
from whence.core.clock.bounds import MAX_PAYLOAD_BYTES
from whence.core.order.messages import AckRecover, Recover
from whence.core.wire import (
    MAGIC,
    VERSION,
    Packet,
    StreamDecoder,
    encode,
    frame_stream,
    header,
    pack,
    read_header,
    unpack,
)
from whence.errors import BadMessage, RemoteError, TooLarge, UsageError, WrongVersion

QUESTION = Recover(9, ((0, 7, 1, 4),))

# ------------------------------------------------------------------------------------------------------- packets


def test_golden_packet():
    """Magic, version, cluster, sender, then the message as `encode` has it."""
    expected = b"\xc1\x01" + b"\x04blue" + b"\x05a:1#2" + encode(QUESTION)
    assert pack("blue", "a:1#2", QUESTION) == expected
    assert (MAGIC, VERSION) == (0xC1, 1)


def test_a_body_encoded_once_serves_many_packets():
    body = encode(EXAMPLES[0])
    for cluster in ("red", "blue"):
        assert unpack(header(cluster, "a:1#2") + body) == Packet(cluster, "a:1#2", EXAMPLES[0])


def test_the_header_alone_finds_the_cluster():
    """The message of another cluster is not decoded: here it is garbage, and nobody minds."""
    found = read_header(header("red", "a:1#2") + b"garbage")
    assert (found.cluster, found.sender, bytes(found.body)) == ("red", "a:1#2", b"garbage")


@pytest.mark.parametrize("version", [v for v in range(256) if v != VERSION])
def test_another_version_is_named_whatever_follows(version):
    with pytest.raises(WrongVersion, match=f"version {version} "):
        unpack(bytes((MAGIC, version)))
    with pytest.raises(WrongVersion):
        unpack(bytes((MAGIC, version)) + pack("c", "a#1", QUESTION)[2:])


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x00\x01", b"GET / HTTP/1.1\r\n\r\n", encode(QUESTION)])
def test_what_is_no_packet(data):
    with pytest.raises(BadMessage):
        unpack(data)


def test_truncated_at_every_length():
    data = pack("blue", "a:1#2", QUESTION)
    for length in range(len(data)):
        with pytest.raises(BadMessage):
            unpack(data[:length])


@settings(max_examples=500)
@given(st.binary(max_size=100), st.booleans())
def test_random_bytes(data, begun):
    with contextlib.suppress(RemoteError):
        unpack(bytes((MAGIC, VERSION)) + data if begun else data)


@pytest.mark.parametrize(
    ("names", "error"),
    [
        (b"\x00\x03a#1", BadMessage),
        (b"\x01c\x00", BadMessage),
        (b"\x01c\x01a", BadMessage),
        (b"\x01\n\x03a#1", BadMessage),
        (b"\x02\xc3\xa9\x03a#1", BadMessage),
        (b"\x01c\x04a#01", BadMessage),
    ],
)
def test_bad_names_in_the_header(names, error):
    with pytest.raises(error):
        unpack(bytes((MAGIC, VERSION)) + names + encode(QUESTION))


@pytest.mark.parametrize("cluster", ["", "a b", "é", "x" * 256, "new\nline"])
def test_a_bad_cluster_name_is_the_callers_fault(cluster):
    with pytest.raises(UsageError):
        pack(cluster, "a#1", QUESTION)


@pytest.mark.parametrize("sender", ["", "a", "a#x", "a" * 254 + "#1"])
def test_a_bad_sender_is_the_callers_fault(sender):
    with pytest.raises(UsageError):
        pack("c", sender, QUESTION)


def test_a_packet_too_large_is_refused_unread():
    frame = Frame.of(0, 7, 1, "a#1", (NEVER,), [bytes(MAX_PAYLOAD_BYTES)])
    with pytest.raises(TooLarge):
        unpack(pack("c", "a#1", AckRecover(1, (frame,) * 4)))


# ------------------------------------------------------------------------------------------------------- streams

chunks = st.lists(st.binary(min_size=1, max_size=60), max_size=12)


@given(chunks, st.data())
def test_packets_come_out_as_they_went_in(packets, data):
    stream = b"".join(map(frame_stream, packets))
    decoder, out = StreamDecoder(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        out += decoder.feed(stream[:size])
        stream = stream[size:]
    assert out == packets and not decoder.begun


@pytest.mark.parametrize("prefix", [b"\x40\x00\x00\x00", b"\xff\xff\xff\xff", b"\x00\x40\x00\x01"])
def test_a_length_beyond_the_cap_is_refused_at_once(prefix):
    decoder = StreamDecoder()
    assert decoder.feed(prefix[:3]) == []
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge):
            decoder.feed(prefix[3:])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 16 and not decoder.begun


def test_a_broken_stream_stays_broken():
    decoder = StreamDecoder()
    with pytest.raises(BadMessage, match="empty"):
        decoder.feed(b"\x00\x00\x00\x00")
    with pytest.raises(BadMessage, match="empty"):
        decoder.feed(frame_stream(b"abc"))


def test_what_is_held_is_bounded():
    """However long a peer drips, less than one packet and its length are held."""
    decoder = StreamDecoder(1000)
    stream = frame_stream(bytes(1000), 1000) * 50
    most = 0
    for at in range(0, len(stream), 7):
        decoder.feed(stream[at : at + 7])
        most = max(most, len(decoder.begun))
    assert 990 < most < 1004


@settings(max_examples=300)
@given(st.lists(st.binary(max_size=30), max_size=8))
def test_random_streams(parts):
    decoder = StreamDecoder(40)
    try:
        for part in parts:
            for packet in decoder.feed(part):
                assert 1 <= len(packet) <= 40
            assert len(decoder.begun) < 44
    except RemoteError:
        assert not decoder.begun


@pytest.mark.parametrize("size", [0, 1001])
def test_a_packet_that_no_peer_would_take_is_the_callers_fault(size):
    with pytest.raises(UsageError):
        frame_stream(bytes(size), 1000)
