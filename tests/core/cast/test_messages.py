"""Messages: the keys of items, and what is refused."""

from __future__ import annotations

import copy
import random

import msgspec
import pytest

from tests.core.cast.cluster import config, names, news
from whence.core.cast import CastMessage, Gossip, Item, News, Subscribe, Welcome, check, make
from whence.core.cast.messages import MAX_AGE, parts
from whence.core.clock import Frame
from whence.errors import BadMessage, TooLarge, UsageError

A, B, C, D = names(4)
FRAME = Frame.of(0, 1, 1, A, ((0, 0), (0, 0)), [b"one", b"two"])
CONFIG = config(max_events=3, max_members=4, max_welcome=5)


def test_items_have_their_own_numbers_and_keys_that_cannot_collide() -> None:
    for item, tag in ((FRAME, 1), (news(B, 7), 2)):
        encoded = msgspec.msgpack.encode(item)
        assert msgspec.msgpack.decode(encoded)[0] == tag
        assert msgspec.msgpack.decode(encoded, type=Item) == item
    assert news(B, 7).key == (B, 7)
    assert len({FRAME.key, news(B, 7).key, news(B, 8).key, news(C, 7).key}) == 4
    assert News(B, 1, b"12345").size - News(B, 1, b"").size == 5


GOOD = Gossip((FRAME, news(B)), (1, MAX_AGE), None, ((A, 0), (B, 3)), ((C, 1),))

BEYOND_THE_CAPS: dict[str, CastMessage] = {
    "items": Gossip(tuple(news(B, i) for i in range(4)), (1,) * 4),
    "members": Gossip(members=tuple((f"x:{i}#1", 0) for i in range(5))),
    "leavers": Gossip(unsubs=tuple((f"x:{i}#1", 0) for i in range(5))),
    "welcome": Welcome(tuple((f"x:{i}#1", 0) for i in range(6))),
}


def test_a_good_message_passes() -> None:
    check(GOOD, CONFIG)


@pytest.mark.parametrize("message", BEYOND_THE_CAPS.values(), ids=BEYOND_THE_CAPS.keys())
@pytest.mark.parametrize("view", ["full", "partial"])
def test_messages_beyond_the_caps_raise_and_change_nothing(message: CastMessage, view: str) -> None:
    # Three processes: b is hostile, a must stay as it was for c.
    settings = msgspec.structs.replace(CONFIG, view=view)
    node = make(A, settings, random.Random(1))
    node.start([B, C], 0, True)
    node.receive(C, Gossip((FRAME,), (1,), None, ((C, 0),)), 0)

    def state() -> list[object]:
        return [
            node.members(),
            node.wake_at,
            copy.copy(node.stats),
            dict(node.view.born),
            dict(node.view.gone),
            set(node._seen),
            node._buffer.count,
        ]

    before = state()
    with pytest.raises(TooLarge):
        node.receive(B, message, 1)
    assert state() == before
    # ... and a goes on working.
    assert [o for o in node.receive(C, GOOD, 1) if getattr(o, "item", None) == news(B)]


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
