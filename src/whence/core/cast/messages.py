"""What members say to each other to disseminate (numbered messages), and what comes out of the dissemination."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

import msgspec

from whence.core.clock import AnyFrame, Digest, MemberId, Send, address_of, boot_of
from whence.core.clock.bounds import MAX_NEWS_BYTES, Count, Items, Members, PerOwner, Signature

MAX_AGE = 1_000
"""Rounds or hops an item can have behind it: far beyond any sensible `termination`."""
MAX_ROUNDS = 1 << 31
"""Age of a membership entry: at ten rounds a second, seven years of silence."""

Rounds = Annotated[int, msgspec.Meta(ge=0, le=MAX_ROUNDS)]
Age = Annotated[int, msgspec.Meta(ge=1, le=MAX_AGE)]
Aged = tuple[MemberId, Rounds]
"""A member and the rounds since it last asserted itself (or, in `unsubs`, since it left)."""


class News(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=2):
    """An announcement that is no event, such as the ring's "p owns t". `number` counts the origin's news."""

    origin: MemberId
    number: Count
    body: Annotated[bytes, msgspec.Meta(max_length=MAX_NEWS_BYTES)]
    signature: Signature = b""
    """A publisher's, in a cluster with roles."""

    def unsigned(self) -> bytes:
        """What the signature is about. No frame's begins like it."""
        return b"news\0%b\0%d\0%b" % (self.origin.encode(), self.number, self.body)

    @property
    def key(self) -> tuple[MemberId, int]:
        """Names the news within a cluster. It has two parts; a frame's key has three."""
        return (self.origin, self.number)

    @property
    def size(self) -> int:
        """Bytes on the wire, near enough for the caps."""
        return 12 + len(self.origin) + len(self.body) + len(self.signature)


def origin_of(item: Item) -> MemberId:
    """Who published it."""
    return item.origin if isinstance(item, News) else item.owner


Item = AnyFrame | News
"""What is disseminated. Tags (1 to 4) are of this union alone."""

Heads = PerOwner[tuple[MemberId, Count]]
"""The digest of a cluster without tickets: how far a member has taken some owners' frames."""


class Gossip(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=1):
    """One message of a round, or one push of the eager mode. `ages[i]` belongs to `items[i]`: the hops from its
    origin to whoever receives this message, so 1 or more."""

    items: Items[Item] = ()
    ages: Items[Age] = ()
    digest: Digest | None = None
    members: Items[Aged] = ()
    unsubs: Items[Aged] = ()
    heads: Heads = ()


class Subscribe(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=2):
    """The sender wants to be a member: sent to any member, which answers `Welcome` and spreads the word.
    `wanted` is the largest sample the sender has use for."""

    wanted: Count


class Welcome(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=3):
    """A sample of the answering member's view, itself included, and what it had delivered at its last round."""

    members: Members[Aged]
    digest: Digest | None = None


Key = tuple[Count | MemberId, ...]
"""`Item.key` as it travels: three ints (a frame), an owner and two ints (a frame without a ticket), or an origin and a
number (news)."""


class IHave(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=4):
    """Trees: items that the sender has got lately, for all its neighbours. `ages[i]` is the age that `keys[i]` would
    have if the sender passed it on. An empty one says that the sender is alive and the receiver its neighbour."""

    keys: Items[Key] = ()
    ages: Items[Age] = ()


class Graft(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=5):
    """Trees: send these items, and push further ones of their origins."""

    keys: Items[Key]


class Prune(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=6):
    """Trees: do not push items of these origins to the sender; announce them only."""

    origins: Items[MemberId]


class Neighbor(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=7):
    """Trees: the sender wants to be a neighbour (HyParView's NEIGHBOR). `urgent`: it has no other, or had this one
    before; the receiver makes room."""

    urgent: bool


class NeighborReply(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=8):
    """Trees: the answer to `Neighbor`: the sender is a neighbour now, or not."""

    linked: bool


class Disconnect(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=9):
    """Trees: the sender is not, or no longer, the receiver's neighbour; it stays a member."""


CastMessage = Gossip | Subscribe | Welcome | IHave | Graft | Prune | Neighbor | NeighborReply | Disconnect
"""Tags 1..15 belong to this room; 10..15 are free."""


@lru_cache(maxsize=1 << 14)
def parts(member: MemberId) -> tuple[str, int]:
    """`(address, boot)` of a member. Cached: the same few hundred names are in every message."""
    return address_of(member), boot_of(member)


NEVER_WAKE = (1 << 63) - 1
"""`wake_at` before the start and after the leave."""


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


Vets = Mapping[type, Callable[[Any, MemberId], bool]]
"""By the type of an item: asked about it, seen for the first time, and its sender, before anything of the message
counts. Raises a `RemoteError` for what every honest member refuses, so that none forwards it: the sender is cut off.
False: it is not taken here, and an honest member may have forwarded it."""

CastOutput = Send | First | Heard | MemberUp | MemberDown

DOWN_REASONS = ("left", "expired", "restarted", "removed", "evicted")
"""It unsubscribed; it was silent too long; a newer boot of it is there; it was cut off; a partial view made room (it
may well be alive)."""


@dataclass(slots=True)
class CastStats:
    """Counters since the start. Nothing is dropped without one of them rising."""

    rounds: int = 0
    sent: int = 0  # messages
    events_sent: int = 0  # copies of items
    received: int = 0  # messages
    firsts: int = 0
    duplicates: int = 0  # copies of items that the history knew
    overflow: int = 0  # items the buffer dropped before their time
    truncated: int = 0  # items, counted once a round, that were due and did not fit into the message
    unsent: int = 0  # items broadcast or forwarded while no member was known (eager): only repair can spread them
    forgotten: int = 0  # keys the bounded history dropped
    joined: int = 0  # members that entered the view
    left: int = 0  # members that unsubscribed
    expired: int = 0  # members dropped because they were silent too long
    restarted: int = 0  # members replaced by a newer boot
    removed: int = 0  # members removed by the layer above
    evicted: int = 0  # members that a partial view dropped to make room
    subs_dropped: int = 0  # subscriptions that a partial view dropped at random instead of recirculating them
    refused: int = 0  # membership entries not taken: too old, of an older boot, or of a member that has left
    unsubs_dropped: int = 0  # leavers forgotten before their time
    lost_dropped: int = 0  # expired addresses that will not be tried again
    lost_tried: int = 0  # subscriptions sent to expired addresses
    linked: int = 0  # `tree`: neighbours gained
    unlinked: int = 0  # `tree`: neighbours lost, replaced or told to go
    pruned: int = 0  # `tree`: edges of a tree given up because of a duplicate
    grafted: int = 0  # `tree`: requests for items that were announced and did not come
    ungrafted: int = 0
    """`tree`: items given up: announced, asked for and never received. Recovery of the order layer gets frames."""
    unwanted: int = 0  # `tree`: announcements not taken: too many items are missing
    unheld: int = 0  # `tree`: items asked for that are no longer held
