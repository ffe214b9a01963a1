"""How an item spreads by PrCast, predicted by the model of `core.cast.sizing`: whom it reaches, when, at what price.

Trees: a push is lost with probability `l`; all below it wait for the first announcement of a neighbour, within a
round, and for the answer to their request.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import islice, pairwise
from math import exp, log1p
from typing import NamedTuple

from whence.core.cast.sizing import Mode, Outlook, levels, outlooks


class PrCast(NamedTuple):
    """One item among `members`, thrown at `fanout` of them at a time for `termination` rounds or hops."""

    members: int
    fanout: int
    termination: int
    loss: float
    mode: Mode = "rounds"
    in_step: bool = False

    @lru_cache(maxsize=256)  # noqa: B019  # a tuple of numbers: equal ones are the same
    def _by_termination(self) -> list[Outlook]:
        """The outlook for a termination of 1, 2, .. `termination`; for trees, that of so many hops."""
        if self.members <= 1:
            return [(1.0, 1.0, 0.0)] * self.termination
        if self.mode == "tree":
            return _tree_outlooks(self.members, self.loss)
        found = outlooks(self.members, self.fanout, self.loss, self.mode, self.in_step)
        return list(islice(found, self.termination))

    def reach(self) -> float:
        """The probability that ALL members get the item."""
        return self._by_termination()[-1][0]

    def coverage(self) -> list[float]:
        """The expected fraction of members that the item reaches with a termination of 0, 1, .. `termination`. In step,
        these are also the fractions after so many rounds."""
        return [1 / self.members, *(mean for _, mean, _ in self._by_termination())]

    def copies(self) -> float:
        """How often a member sends the item, on average over members: its price."""
        return self._by_termination()[-1][2]

    def in_time(self) -> list[float]:
        """The expected fraction of members that has the item after 0, 1, 2 .. hops, all of its pushes on time. Trees:
        whoever is below a lost push gets it later."""
        if self.mode != "tree" or self.members <= 1:
            return self.coverage()
        share, found, shares = 1 / self.members, [1 / self.members], levels(self.members)
        for hops, (a, b) in enumerate(pairwise(shares), 1):
            share += (b - a) * (1 - self.loss) ** hops * (self.members - 1) / self.members
            found.append(share)
        return found


def _tree_outlooks(members: int, loss: float) -> list[Outlook]:
    """By hops. Whoever is below a lost push asks, and gets a second copy with the next item; a push is lost now and
    then. An item is missed for good if `_REQUESTS` requests or their answers are lost, too."""
    shares = levels(members)
    others = members - 1
    late = sum((b - a) * (1 - (1 - loss) ** h) for h, (a, b) in enumerate(pairwise(shares), 1))
    copies = others / members * (1 + loss + late)
    never = late * (1 - (1 - loss) ** 2) ** _REQUESTS
    return [(exp(others * log1p(-never)), (1 + others * share * (1 - never)) / members, copies) for share in shares[1:]]


_REQUESTS = 4
"""As `cast.tree.REQUESTS`."""
