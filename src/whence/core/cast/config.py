"""The settings of dissemination. All members of a cluster share them."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec.structs import force_setattr

from whence.core.cast import sizing
from whence.core.clock.bounds import need

_MAY_BE_ZERO = ("buffer", "history", "unsubs_size", "expire", "lost_size", "neighbours", "graft", "silence")


class CastConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How one cluster gossips. The defaults are the papers' where the papers have one (CCC11 section 6)."""

    # As in `Settings`, computed; `load` is its `rate`. What is 0 here becomes what its formula says.
    mode: sizing.Mode = "rounds"
    round: int = 100_000_000
    fanout: int = 4
    termination: int = 5
    max_events: int = 20
    members: int = 250
    loss: float = 0.05
    load: float = 6.0
    history: int = 0
    view: Literal["full", "partial"] = "full"
    in_step: bool = False
    """Rounds begin at multiples of `round` of the member's clock, so members with equal clocks are in step, as in the
    papers' model; else each begins at a random phase. In step, fewer rounds reach everybody (`sizing`), but all
    messages of a round are on their way at the same instant."""
    max_bytes: int = 60_000
    """Bytes of items in one message (by `Item.size`); the default fits a UDP datagram. A message may always hold one
    item, whatever its size: otherwise a large one could never be sent."""
    max_members: int = 10
    """Membership entries in one message (the sender is one of them), and unsubscriptions likewise. More: crashes
    and joins are known sooner (`sizing.expire` grows with `members / (fanout * max_members)`); about 25 bytes each."""
    max_welcome: int = 100
    """Membership entries in the answer to a subscription; about 25 bytes each."""
    buffer: int = 0
    """Items held for forwarding in `rounds` mode; 0: `sizing.buffer(load, termination)`. On overflow the oldest are
    dropped and counted (`stats.overflow`)."""
    buffer_bytes: int = 4 << 20
    """Bytes held for forwarding (by `Item.size`); a single larger item may be held alone."""
    max_view: int = 4096
    """Members in a full view: a bound against a peer that invents members, not a setting to tune."""
    view_size: int = 20
    """Members in a partial view. Larger than `fanout`, and about `3 ln(members)` so that the views' graph stays
    connected under churn."""
    subs_size: int = 20
    """Subscriptions that a partial view keeps for recirculation (lpbcast's subs); random ones are dropped."""
    unsubs_size: int = 0
    """Members known to have left, so that stale entries do not bring them back; 0: `max(64, members)`. When full, the
    oldest are forgotten: a leaver may then reappear until it expires."""
    expire: int = 0
    """Rounds without a fresh assertion after which a member counts as crashed; 0: `sizing.expire` of the current
    (full) or configured (partial) number of members. Smaller: crashes are seen sooner, live members are expired
    by mistake more often (they come back with their next assertion)."""
    lost_size: int = 32
    """Expired addresses kept to be tried again, so that a healed partition merges by itself."""
    lost_every: int = 10
    """Rounds between two such tries (one `Subscribe` each). Smaller: a healed cluster merges sooner."""
    neighbours: int = 0
    """`tree`: neighbours that a member looks for; 0: `sizing.neighbours(members)`. More: fewer hops, and more crashes
    survived at once; cost: an announcement for each in every second round."""
    trees: int = 256
    """`tree`: publishers that have a tree of their own; its first item goes over all links. When there are more
    publishers, the tree unused for the longest time is forgotten."""
    graft: int = 0
    """`tree`: nanoseconds to wait for an announced item before asking for it, and between two requests; 0: a quarter
    of a round. Shorter than its way down the tree: items are asked for that are on their way, and arrive twice."""
    silence: int = 0
    """`tree`: rounds without a word after which a neighbour is replaced; 0: `sizing.silence(loss)`."""
    max_keys: int = 256
    """`tree`: items named in one announcement or request; about 15 bytes each."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value, least = getattr(self, name), int(name not in _MAY_BE_ZERO)
            need(type(value) is not int or value >= least, f"cast.{name} is {value}; want {least} or more")
        need(self.max_members >= 2, f"cast.max_members is {self.max_members}; want 2 or more (the sender is one)")
        need(0 <= self.loss < 1, f"cast.loss is {self.loss}; want 0 <= loss < 1")
        need(self.load > 0, f"cast.load is {self.load}; want more than 0")
        wide = self.view == "full" or self.view_size > self.fanout
        need(wide, f"cast.view_size is {self.view_size}; want more than fanout ({self.fanout})")
        formulas = {
            "buffer": max(self.max_events, sizing.buffer(self.load, self.termination)),  # at least one message
            "history": sizing.history(self.load, self.termination),
            "unsubs_size": max(64, self.members),
            "neighbours": sizing.neighbours(self.members),
            "graft": max(1, self.round // 4),
            "silence": sizing.silence(self.loss),
        }
        for name, value in formulas.items():
            if not getattr(self, name):
                force_setattr(self, name, value)

    def expire_rounds(self, members: int) -> int:
        """`expire`, or its formula for a cluster of so many members."""
        return self.expire or sizing.expire(members, self.fanout, self.max_members, self.loss)
