"""The keys of items, and names that are refused."""

from __future__ import annotations

import random

import msgspec
import pytest

from tests.core.cast.cluster import config, names, news
from whence.core.cast import Item, News, Subscribe, make
from whence.core.cast.messages import parts
from whence.core.clock import Frame
from whence.errors import BadMessage, UsageError

A, B, C, D = names(4)
FRAME = Frame.of(0, 1, 1, A, ((0, 0), (0, 0)), [b"one", b"two"])
CONFIG = config()


def test_items_have_their_own_numbers_and_keys_that_cannot_collide() -> None:
    for item, tag in ((FRAME, 1), (news(B, 7), 2)):
        encoded = msgspec.msgpack.encode(item)
        assert msgspec.msgpack.decode(encoded)[0] == tag
        assert msgspec.msgpack.decode(encoded, type=Item) == item
    assert news(B, 7).key == (B, 7)
    assert len({FRAME.key, news(B, 7).key, news(B, 8).key, news(C, 7).key}) == 4
    assert News(B, 1, b"12345").size - News(B, 1, b"").size == 5


def test_a_subscriber_without_a_proper_name_is_refused() -> None:
    node = make(A, CONFIG, random.Random(1))
    node.start([B], 0, True)
    with pytest.raises(BadMessage):
        node.receive("nameless", Subscribe(1), 0)
    node.remove("nameless")
    assert node.members() == [B]


def test_a_caller_without_a_proper_name_misuses_us() -> None:
    with pytest.raises(UsageError):
        make("nameless", CONFIG, random.Random(1))
    with pytest.raises(UsageError):
        make(A, CONFIG, random.Random(1)).start(["nameless"], 0, True)


def test_names() -> None:
    assert parts("host:1#12") == ("host:1", 12)
