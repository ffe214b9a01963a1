"""What comes out of the dissemination, and what it counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from whence.core.cast.messages import CastMessage, Heads, Item
from whence.core.clock import Digest, MemberId

NEVER_WAKE = (1 << 63) - 1
"""`wake_at` before the start and after the leave."""


class CastSend(msgspec.Struct, frozen=True, gc=False):
    """Send a message; it may get lost. All sends of one round or push share one message object: encode it once."""

    to: MemberId
    message: CastMessage


class First(msgspec.Struct, frozen=True, gc=False):
    """The item was seen for the first time (as far as the history goes back), `age` hops from its origin."""

    item: Item
    sender: MemberId
    age: int


class Heard(msgspec.Struct, frozen=True, gc=False):
    """A peer said what it has delivered."""

    sender: MemberId
    digest: Digest | Heads


class MemberUp(msgspec.Struct, frozen=True, gc=False):
    """The member is in the view now."""

    member: MemberId


class MemberDown(msgspec.Struct, frozen=True, gc=False):
    """The member is no longer in the view; `reason` is one of `DOWN_REASONS`."""

    member: MemberId
    reason: str


Vet = Callable[[Item, MemberId], None]
"""Asked about an item seen for the first time, and its sender, before anything of the message counts. Raises a
`RemoteError` if the layers above refuse it: a member that forwards what others refuse would be cut off."""

CastOutput = CastSend | First | Heard | MemberUp | MemberDown

DOWN_REASONS = ("left", "expired", "restarted", "evicted")
"""It unsubscribed; it was silent too long; a newer boot of it is there; a partial view made room (it may well live)."""


@dataclass(slots=True)
class CastStats:
    """Counters since the start. Nothing is dropped without one of them rising."""

    rounds: int = 0
    sent: int = 0
    """Messages."""
    events_sent: int = 0
    """Copies of items."""
    received: int = 0
    """Messages."""
    firsts: int = 0
    duplicates: int = 0
    """Copies of items that the history knew."""
    overflow: int = 0
    """Items the buffer dropped before their time."""
    truncated: int = 0
    """Items, counted once a round, that were due and did not fit into the message."""
    unsent: int = 0
    """Items broadcast or forwarded while no member was known (eager): only repair can spread them."""
    forgotten: int = 0
    """Keys the bounded history dropped."""
    joined: int = 0
    """Members that entered the view."""
    left: int = 0
    """Members that unsubscribed."""
    expired: int = 0
    """Members dropped because they were silent too long."""
    restarted: int = 0
    """Members replaced by a newer boot."""
    removed: int = 0
    """Members removed by the layer above."""
    evicted: int = 0
    """Members that a partial view dropped to make room."""
    subs_dropped: int = 0
    """Subscriptions that a partial view dropped at random instead of recirculating them."""
    refused: int = 0
    """Membership entries not taken: too old, of an older boot, or of a member that has left."""
    unsubs_dropped: int = 0
    """Leavers forgotten before their time."""
    lost_dropped: int = 0
    """Expired addresses that will not be tried again."""
    lost_tried: int = 0
    """Subscriptions sent to expired addresses."""
    linked: int = 0
    """`tree`: neighbours gained."""
    unlinked: int = 0
    """`tree`: neighbours lost, replaced or told to go."""
    pruned: int = 0
    """`tree`: edges of a tree given up because of a duplicate."""
    grafted: int = 0
    """`tree`: requests for items that were announced and did not come."""
    ungrafted: int = 0
    """`tree`: items given up: announced, asked for and never received. Recovery of the order layer gets frames."""
    unwanted: int = 0
    """`tree`: announcements not taken: too many items are missing."""
    unheld: int = 0
    """`tree`: items asked for that are no longer held."""
