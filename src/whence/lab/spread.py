"""How an item spreads by PrCast, predicted by the model of `core.cast.sizing`: whom it reaches, when, at what price.

Trees: a push is lost with probability `l`; all below it wait for the first announcement of a neighbour, within a
round, and for the answer to their request.
"""

from __future__ import annotations

from itertools import islice, pairwise
from math import ceil, exp, log1p
from typing import NamedTuple

import msgspec

from whence.core.cast.sizing import SLOTS, Mode, Outlook, graft, levels, neighbours, newly, outlooks, slots_of


class Arrivals(msgspec.Struct, frozen=True):
    """When a member gets an item: `cdf[i]` is the probability that it has it after `i * step` rounds. The last one is
    below 1: some never get it."""

    step: float
    cdf: list[float]
    noticed: list[float]
    """For members that never get it: the probability that a digest has told them by then, from a member that has
    stopped throwing it (one that still throws would bring the item)."""


_AFTER = 6
"""Rounds after the last throw for which `noticed` is computed."""


class PrCast(NamedTuple):
    """One item among `members`, thrown at `fanout` of them at a time for `termination` rounds or hops. `latency` of the
    network is in rounds: slower hops are fewer, so out of step an item gets farther."""

    members: int
    fanout: int
    termination: int
    loss: float
    mode: Mode = "rounds"
    in_step: bool = False
    latency: float = 0.0

    def _by_termination(self) -> list[Outlook]:
        """The outlook for a termination of 1, 2, .. `termination`; for trees, that of so many hops."""
        if self.mode == "tree":
            return _tree_outlooks(self.members, self.loss)
        found = outlooks(self.members, self.fanout, self.loss, self.mode, self.in_step, self.latency)
        return list(islice(found, self.termination))

    def reach(self) -> float:
        """The probability that ALL members get the item."""
        return self._by_termination()[-1][0] if self.members > 1 else 1.0

    def coverage(self) -> list[float]:
        """The expected fraction of members that the item reaches with a termination of 0, 1, .. `termination`. In step,
        these are also the fractions after so many rounds."""
        if self.members <= 1:
            return [1.0] * (self.termination + 1)
        return [1 / self.members, *(mean for _, mean, _ in self._by_termination())]

    def copies(self) -> float:
        """How often a member sends the item, on average over members: its price."""
        return self._by_termination()[-1][2] if self.members > 1 else 0.0

    def arrivals(self) -> Arrivals:
        """When another member gets the item. The publisher's next round, in which it is first thrown, is up to a round
        away, equally likely; in `eager` and `tree` mode it is thrown at once."""
        members, fanout, termination, loss, mode, in_step, latency = self
        if members <= 1:
            return Arrivals(1.0, [1.0], [1.0])
        if mode == "tree":
            return _tree_arrivals(members, loss, latency)
        others = members - 1
        fanout = min(fanout, others)
        lag = round(latency * SLOTS)
        told = fanout * (1 - loss) / others  # a given member's message of a round reaches a given other
        if in_step or mode == "eager":
            means = self.coverage()
            by_hop = [max(0.0, (mean * members - 1) / others) for mean in means]
            if mode == "eager":
                quarter = max(latency, 1e-6) / 4
                cdf = [by_hop[min(termination, i // 4)] for i in range(4 * termination + 1)]
                return Arrivals(quarter, cdf, [1 - exp(-others * c * told * quarter * i) for i, c in enumerate(cdf)])
            thrown = [p for p in by_hop[1:] for _ in range(SLOTS)]
            finished = [0.0] * len(thrown)
        else:
            left, finished = _left_out(members, fanout, termination, loss, lag)
            thrown = [1 - one / others for one in left]
        more = _AFTER * SLOTS
        thrown += [thrown[-1]] * more
        finished += [finished[-1] if finished[-1] else thrown[-1] * others] * more
        hazard, noticed = 0.0, []
        for one in finished:
            hazard += one / SLOTS * told
            noticed.append(1 - exp(-hazard))
        return Arrivals(1 / SLOTS, _phased(thrown, lag), _phased(noticed, lag))


def _phased(values: list[float], lag: int) -> list[float]:
    """The mean over all phases that the publisher's rounds may have; everything arrives `lag` slots later."""
    got = [0.0] * lag + values + [values[-1]] * (SLOTS + 1)
    total, cdf = 0.0, []
    for i in range(len(values) + SLOTS + lag):
        total += got[i] - (got[i - SLOTS] if i >= SLOTS else 0.0)
        cdf.append(total / SLOTS)
    return cdf


def _left_out(members: int, fanout: int, termination: int, loss: float, lag: int) -> tuple[list[float], list[float]]:
    """Out of step, in each slot after the origin's first throw: the mean number of members without the item, and of
    those that have it but throw it no more."""
    slots = (termination - 1) * (SLOTS + lag) + 1
    left, finished = [0.0] * slots, [0.0] * slots
    alone = 1.0
    for late in range(termination):  # the rounds in which all the origin's balls got lost, as in `_drift`
        lost = 0.0
        for hit, p in newly(fanout, loss):
            if hit == 0:
                lost = p
            elif alone * p > 1e-9:
                ride = [(float(members - 1), 0.0)] * (late * SLOTS)
                ride += [(m, f) for m, _, f in slots_of(members, fanout, termination - late, loss, hit, lag)]
                ride += [ride[-1]] * (slots - len(ride))
                for i in range(slots):
                    left[i] += alone * p * ride[i][0]
                    finished[i] += alone * p * ride[i][1]
        alone *= lost
    return [a + alone * (members - 1) for a in left], finished


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


def _tree_arrivals(members: int, loss: float, latency: float) -> Arrivals:
    """In rounds. Late ones come with the first announcement of their neighbours, which each makes in one of the next
    two rounds, out of step."""
    shares = levels(members)
    step = max(latency / 4, 1 / 200)
    around = max(1, neighbours(members) - 1)
    asked = graft(members, 1) * latency + 2 * latency
    cdf = []
    for i in range(ceil(((len(shares) + 1) * latency + asked + 2) / step) + 1):
        got = 0.0
        for h, (a, b) in enumerate(pairwise(shares), 1):
            since, in_time = i * step - h * latency, (1 - loss) ** h
            if since > -step / 2:
                announced = min(1.0, max(0.0, since - asked) / 2)
                got += (b - a) * (in_time + (1 - in_time) * (1 - (1 - announced) ** around))
        cdf.append(got * (1 - 1e-12))
    return Arrivals(step, cdf, [(i + 1) / len(cdf) for i in range(len(cdf))])
