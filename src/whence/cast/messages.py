"""What members say to each other to disseminate: numbered messages, and the check every one passes first."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from whence.cast.config import CastConfig
from whence.clock import AnyFrame, Digest, MemberId, address_of, boot_of
from whence.errors import TooLarge

MAX_AGE = 1_000
"""Rounds or hops an item can have behind it: far beyond any sensible `termination`."""
MAX_ROUNDS = 1 << 31
"""Age of a membership entry: at ten rounds a second, seven years of silence."""

Aged = tuple[MemberId, int]
"""A member and the rounds since it last asserted itself (or, in `unsubs`, since it left)."""


class News(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=2):
    """An announcement that is no event, such as the ring's "p owns t". `number` counts the origin's news."""

    origin: MemberId
    number: int
    body: bytes
    signature: bytes = b""
    """A publisher's, in a cluster with roles."""

    def unsigned(self) -> bytes:
        """What the signature is about. No frame's begins like it."""
        return b"news\0%b\0%d\0%b" % (self.origin.encode(), self.number, self.body)

    @property
    def key(self) -> tuple[MemberId, int]:
        """Names the news within a cluster; no frame has such a key, whose parts are all ints."""
        return (self.origin, self.number)

    @property
    def size(self) -> int:
        """Bytes on the wire, near enough for the caps."""
        return 12 + len(self.origin) + len(self.body) + len(self.signature)


Item = AnyFrame | News
"""What is disseminated. Tags (1 to 4) are of this union alone."""

Heads = tuple[tuple[MemberId, int], ...]
"""The digest of a cluster without tickets: how far a member has taken some owners' frames."""


class Gossip(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=1):
    """One message of a round, or one push of the eager mode. `ages[i]` belongs to `items[i]`: the hops from its
    origin to whoever receives this message, so 1 or more."""

    items: tuple[Item, ...] = ()
    ages: tuple[int, ...] = ()
    digest: Digest | None = None
    members: tuple[Aged, ...] = ()
    unsubs: tuple[Aged, ...] = ()
    heads: Heads = ()


class Subscribe(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=2):
    """The sender wants to be a member: sent to any member, which answers `Welcome` and spreads the word.
    `wanted` is the largest sample the sender has use for."""

    wanted: int


class Welcome(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=3):
    """A sample of the answering member's view, itself included."""

    members: tuple[Aged, ...]


CastMessage = Gossip | Subscribe | Welcome
"""Tags 1..15 belong to this room; 4..15 are free."""


@lru_cache(maxsize=1 << 14)
def parts(member: MemberId) -> tuple[str, int]:
    """`(address, boot)` of a member. Cached: the same few hundred names are in every message."""
    return address_of(member), boot_of(member)


def check(message: CastMessage, config: CastConfig) -> None:
    """Refuse more than a member with this configuration sends; what the message says the wire has checked. Raises
    `TooLarge` before any state changes."""
    if type(message) is Gossip:
        _cap("items", message.items, config.max_events)
        _cap("members", message.members, config.max_members)
        _cap("unsubs", message.unsubs, config.max_members)
    elif type(message) is Welcome:
        _cap("welcome", message.members, config.max_welcome)


def _cap(what: str, entries: tuple[object, ...], cap: int) -> None:
    if len(entries) > cap:
        raise TooLarge(f"{len(entries)} entries in {what}; the cap is {cap}")
