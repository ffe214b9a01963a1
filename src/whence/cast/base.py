"""Dissemination as the layers above see it: what any PrCast offers, and what comes out of it.

`gossip.EttbGossip` is the papers' one. The interface promises nothing about how: trees with lazy repair (Plumtree)
fit as well.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from whence.cast.messages import CastMessage, Heads, Item
from whence.clock import Digest, MemberId

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
"""Asked about an item seen for the first time, and its sender, before anything of the message counts: raises a
`RemoteError` if the layers above will not have it. Who forwarded what others refuse would be cut off for it."""

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

    @property
    def view_changes(self) -> int:
        """How often a member entered or left the view: while it stays the same, so does the view."""
        return self.joined + self.left + self.expired + self.restarted + self.removed + self.evicted


class Dissemination(Protocol):
    """PrCast: hand an item in at one member, and with high probability it comes out at all of them, once, in no
    particular order."""

    wake_at: int
    """When the next round is due, in nanoseconds of the member's clock."""
    stats: CastStats

    def start(self, contacts: Sequence[MemberId], now: int, genesis: bool) -> list[CastOutput]:
        """Begin. A genesis member has `contacts` as its first view; any other subscribes through them."""

    def broadcast(self, item: Item, now: int) -> list[CastOutput]:
        """Spread an item of our own; it does not come back as `First`."""

    def receive(self, sender: MemberId, message: CastMessage, now: int) -> list[CastOutput]:
        """Take a peer's message. Raises a `RemoteError`, having changed nothing, if it breaks the protocol."""

    def wake(self, now: int, digest: Digest | Heads | None) -> list[CastOutput]:
        """A round, if it is due; too early is harmless. `digest` travels with it."""

    def leave(self, now: int) -> list[CastOutput]:
        """Unsubscribe, with the last items still in hand. Afterwards nothing is sent and nothing taken."""

    def remove(self, member: MemberId) -> None:
        """The member is cut off, or known to be dead: forget it, and do not take it back from hearsay for a while."""

    def members(self) -> list[MemberId]:
        """The view, without this member, in an order that is the same in every run of the same seed."""

    def sample(self, k: int, exclude: Container[MemberId] = ()) -> list[MemberId]:
        """At most `k` distinct members of the view, uniformly at random, none of `exclude`."""
