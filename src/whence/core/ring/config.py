"""The settings of a ring and the times that follow from them.

Rules 8 (quorums of small rings), 9 (the length of a lease), 11 (how long an excluder waits). Times are nanoseconds of
the local clock. Clocks of two processes drift apart by at most `drift` each.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from whence.core.clock.bounds import need

RingName = Literal["council", "neighbours"]
"""Who decides who may own a ticket: a council of voters that renews itself, or the neighbours on the ring (CCC11
Algorithms 2 to 4, repaired)."""
DEFAULT_RING: RingName = "council"


class RingConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One per cluster: every member must have the same."""

    tickets: int
    """n: how many members may publish at a time; entries of the cluster's vector clock. Control information grows
    with it, and so does the time until an exclusion is over (`temp_ns`)."""
    protocol: RingName = DEFAULT_RING
    k: int = 1
    """Failures of processes or links tolerated at a time among 2k+1 neighbours, or among a council of 2k+1 voters. A
    coordinator polls 2k+1 others in each round."""
    round_ns: int
    """Length of a ring round: longer than a PrCast takes. Shorter: failures are found earlier, for more messages."""
    delta_ns: int
    """Longest one-way delay of a good link. A neighbour that needs longer is weakly detected as faulty. Safety does not
    depend on it. At most half a round."""
    exclude_probability: float = 1.0
    """P_exclude: a weakly detected successor is excluded with this probability per round. Lower: fewer false
    exclusions on links that are slow now and then, and later recovery of tickets by `1 / P_exclude` rounds."""
    drift: float = 0.01
    """How much faster or slower than true time a member's clock may run. Safety depends on it, and on nothing else
    about time."""
    lease: int = 0
    """Override of `lease_ns`; 0: by formula. Longer: survives slow vouchers; tickets of the dead come back later."""

    def __post_init__(self) -> None:
        need(1 <= self.tickets <= 4096, f"ring: tickets must be 1..4096, not {self.tickets}")
        need(0 <= self.k <= 16, f"ring: k must be 0..16, not {self.k}")
        need(self.round_ns > 0, f"ring: round_ns must be positive, not {self.round_ns}")
        need(0 < 2 * self.delta_ns <= self.round_ns, f"ring: delta_ns must be 1..round_ns/2, not {self.delta_ns}")
        exclude = self.exclude_probability
        need(0 < exclude <= 1, f"ring: exclude_probability must be in (0, 1], not {exclude}")
        need(0 <= self.drift <= 0.04, f"ring: drift must be 0..0.04, not {self.drift}")
        need(
            self.lease == 0 or self.lease > self.round_ns, f"ring: lease must be 0 or above round_ns, not {self.lease}"
        )

    @property
    def window(self) -> int:
        """2k+1: the size of L in a ring that is large enough."""
        return 2 * self.k + 1

    @property
    def lease_ns(self) -> int:
        """How long a voucher lasts, from when the poll was sent: `1.05 round + 2 delta` (rules 9, 14)."""
        return self.lease or self.round_ns * 105 // 100 + 2 * self.delta_ns

    @property
    def vouch_ns(self) -> int:
        """So long that an owner's lease is over on every clock (rule C3)."""
        return self.on_any_clock(self.lease_ns)

    @property
    def answer_ns(self) -> int:
        """How long to wait for an answer: `2 delta`, there and back."""
        return self.on_any_clock(2 * self.delta_ns)

    def on_any_clock(self, ns: int) -> int:
        """So long on the local clock that `ns` have passed on everybody's: `ns (1 + drift) / (1 - drift)`."""
        return int(ns * (1 + self.drift) / (1 - self.drift)) + 1

    def temp_ns(self, tenures: int) -> int:
        """TempRounds as time: how long an excluder waits until the owners of so many tickets, one after the other, are
        certainly out: `tenures * lease` (rule 11, where `tenures` is at most `dist - 1`)."""
        return self.on_any_clock(tenures * self.lease_ns)

    @property
    def patience_ns(self) -> int:
        """How long to stay frozen, or to try to leave gracefully, before giving up the ticket without ceremony:
        `temp(n) + 8 rounds`, longer than anything that can still repair the edge by itself."""
        return self.temp_ns(self.tickets) + 8 * self.round_ns

    @property
    def quarantine_ns(self) -> int:
        """How long a founder listens first: until every lease of an earlier ring has run out, and a round to be
        heard in: `lease + delta + round`."""
        return self.on_any_clock(self.lease_ns + self.delta_ns + self.round_ns)

    @property
    def probation_ns(self) -> int:
        """A newcomer that nobody vouches for within four rounds, at most a lease, gives up (rule 10). It begins with
        the CJOIN, so before the grant. So who was admitted by one that was then excluded has given up, or lost its
        vouchers, when TempRounds are over."""
        return min(4 * self.round_ns, self.lease_ns)


def need_alive(size: int) -> int:
    """How many of an L of this size must vouch: `ceil(|L| / 2)`, k+1 at full size (rule 8)."""
    return (size + 1) // 2


def need_acks(size: int) -> int:
    """How many of an R of this size must agree to an exclusion: `floor(|R| / 2) + 1`, so that fewer than
    `need_alive` are left (rule 8). An empty R has no quorum: a coordinator that is alone cannot be excluded."""
    return size // 2 + 1


def distance(start: int, end: int, tickets: int) -> int:
    """Steps from ticket `start` down the circle to ticket `end`; a full circle from a ticket to itself."""
    return (start - end) % tickets or tickets


def between(start: int, end: int, tickets: int) -> list[int]:
    """The tickets strictly between `start` and `end` in successor order."""
    return [(start - step) % tickets for step in range(1, distance(start, end, tickets))]
