"""Fanout, termination, history, buffer and expiry by formula.

**The model** ("balls and bins": Koldehofe 2004, which CCC11 cites). N members with full views; messages are lost
independently. An **active** member (`rounds`: everyone who has the item; `eager`: those that got it in the last hop)
throws `fanout` balls at distinct others. A member without the item escapes one throw with probability `1 -
F(1-l)/(N-1)`, and `a` throws with `q = (1 - F(1-l)/(N-1))^a`.

**In step** (all members throw at the same instants: the papers' rounds, and nearly the hops of `eager`) the number of
infected members is a Markov chain (Reed-Frost): binomial(S, 1-q) new ones of S without the item. A cast fails mostly by
bad luck at its beginning, or because a single member is left over at its end. So the chain is followed exactly while at
most `_EXACT` members have the item, and by its mean (S' = S q) beyond. At the end each of the others was left out
independently, with probability m = S/(N-1): P(all) = (1-m)^(N-1). The first throw, whose balls all hit, is exact:
binomial(F, 1-l).

**Out of step** (rounds of equal length, but random phases, as in any real cluster) the first copy comes by many quick
hops rather than by few slow ones. It is older when it arrives, about ln N instead of log_(1+F) N, and is forwarded in
fewer rounds. The papers do not mention it: their fanout 4 and termination 5 reach all of 250 members with probability
0.38 in step, but below 0.01 out of step (99.6 and 98 % of the members on average). Computed by the mean in slots of
1/`SLOTS` round, after the exact first throw.

**Trees**: the hops of shortest paths over a random graph (`levels`).

Neglected: that fates are not quite independent, the luck of the second throw (out of step), partial views, load beyond
`max_events`. `lab/spread.py` predicts with it. `tests/core/cast/test_sizing.py` compares it with the real protocol:
good to about two per cent.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import count
from math import ceil, exp, inf, log, log1p
from typing import Literal

import msgspec

Mode = Literal["rounds", "eager", "tree"]
"""How items spread: see `CastConfig.mode`."""

_EXACT: dict[Mode, int] = {"rounds": 64, "eager": 24}
"""Infected members up to which the distribution is followed (the eager chain has two dimensions, hence fewer)."""
_TINY = 1e-12
"""Smaller probabilities are not followed. They count as failures, so the result stays on the safe side."""
SLOTS = 32
"""Slots of a round, out of step. 64 lower a probability around 0.6 by 0.02, one around 0.95 by 0.002; 16 are too
optimistic, 64 needlessly pessimistic."""
_LONGEST = 60
"""The longest termination that `choose` tries."""

HISTORY_FLOOR = 1024
"""Keys: a fifth of a megabyte, and enough for a burst far beyond the load the formula was told."""
STALENESS = 6
"""Age in rounds that a membership entry may have when it arrives (see `expire`)."""


class Sizing(msgspec.Struct, frozen=True):
    """A choice, and the probability that a cast then reaches all members; it can be below the target: see `choose`."""

    fanout: int
    termination: int
    probability: float


Outlook = tuple[float, float, float]
"""(probability that all get the item, expected fraction that gets it, copies sent per member)."""

Infection = tuple[float, float]
"""(infected, active) members: whole numbers while the distribution is followed, means beyond."""


def newly(susceptible: int, q: float) -> Iterator[tuple[int, float]]:
    """binomial(susceptible, 1-q), without its negligible ends."""
    if q <= 0.0:
        yield susceptible, 1.0
        return
    if susceptible * log(q) < -600:  # the first term would underflow: so many throwers that the mean says it all
        yield round(susceptible * (1 - q)), 1.0
        return
    p = q**susceptible
    for k in range(susceptible + 1):
        if p > _TINY:
            yield k, p
        elif k > susceptible * (1 - q):
            return
        p *= (susceptible - k) / (k + 1) * (1 - q) / q


def _throw(state: Infection, members: int, fanout: int, loss: float, exact: int) -> Iterator[tuple[float, float]]:
    """How many more are infected after one round, and how probably."""
    infected, active = state
    if active <= 0:
        yield 0, 1.0
    elif infected == 1:  # nobody else has it: every ball hits
        yield from newly(fanout, loss)
    else:
        escape = 1 - fanout * (1 - loss) / (members - 1)
        q = exp(active * log(escape)) if escape > 0 else 0.0
        if infected <= exact:
            yield from newly(members - int(infected), q)
        else:
            yield (members - infected) * (1 - q), 1.0


def _spread(members: int, fanout: int, loss: float, mode: Mode) -> Iterator[dict[Infection, float]]:
    """The distribution after 1, 2, 3 .. rounds."""
    fanout = min(fanout, members - 1)
    direct = mode == "eager" and fanout == members - 1  # a handful: one push to each, nobody forwards
    states: dict[Infection, float] = {(1, 1): 1.0}
    while True:
        after: dict[Infection, float] = {}
        for state, p in states.items():
            for k, w in _throw(state, members, fanout, loss, _EXACT[mode]):
                infected = min(members, state[0] + k)
                active = infected if mode == "rounds" else 0 if direct else k
                if p * w > _TINY:
                    after[infected, active] = after.get((infected, active), 0.0) + p * w
        states = after
        yield states


def _all(states: dict[Infection, float], members: int, mode: Mode) -> float:
    """The probability that everybody is infected."""
    total = 0.0
    for (infected, _), p in states.items():
        missing = members - infected
        if missing <= 1e-12:
            total += p
        elif infected > _EXACT[mode] and missing < members - 1:  # a mean: each is left out independently
            total += p * exp((members - 1) * log1p(-missing / (members - 1)))
    return min(1.0, total)


def _ceiling(members: int, fanout: int, loss: float) -> float:
    """Eager: an upper bound of the chain above, that everybody is thrown at when everybody has thrown once."""
    escape = max(0.0, 1 - fanout * (1 - loss) / (members - 1))
    return float((1 - escape ** (members - 1)) ** (members - 1))


def _mean(states: dict[Infection, float]) -> float:
    return sum(infected * p for (infected, _), p in states.items())


def _chain(members: int, fanout: int, loss: float, mode: Mode) -> Iterator[Outlook]:
    """In step: the outlook for a termination of 1, 2, 3 .. rounds."""
    copies, throwers = 0.0, 1.0
    for states in _spread(members, fanout, loss, mode):
        copies += fanout * throwers / members
        yield _all(states, members, mode), _mean(states) / members, copies
        throwers = sum(active * p for (_, active), p in states.items())


def _drift(members: int, fanout: int, loss: float, lag: int = 0) -> Iterator[Outlook]:
    """Out of step: the outlook for a termination of 1, 2, 3 .. rounds, when a throw takes `lag` slots."""
    fanout = min(fanout, members - 1)
    for termination in count(1):
        alone, total, mean, copies = 1.0, 0.0, 0.0, 0.0
        for late in range(termination):  # the rounds in which all the origin's balls got lost
            lost = 0.0
            for hit, p in newly(fanout, loss):
                if hit == 0:
                    lost = p
                elif alone * p > 1e-9:
                    missing, throws = _ride(members, fanout, termination - late, loss, hit, lag)
                    left_out = min(1.0, missing / (members - 1))
                    total += alone * p * (exp((members - 1) * log1p(-left_out)) if left_out < 1 else 0.0)
                    mean += alone * p * (1 - missing / members)
                    copies += alone * p * fanout * (late + throws) / members
            alone *= lost
        yield total, mean + alone / members, copies


@lru_cache(maxsize=4096)
def _ride(members: int, fanout: int, termination: int, loss: float, hit: int, lag: int = 0) -> tuple[float, float]:
    """The mean number of members left out, and of throws, when the origin's first throw hits `hit` members."""
    missing, throws = 0.0, 0.0
    for left, thrown, _ in slots_of(members, fanout, termination, loss, hit, lag):
        missing, throws = left, throws + thrown
    return missing, throws


def slots_of(
    members: int, fanout: int, termination: int, loss: float, hit: int, lag: int = 0
) -> Iterator[tuple[float, float, float]]:
    """Slot by slot from the origin's first throw on, which hits `hit` members: how many are left out, how many throw,
    how many have the item but throw no more.

    A member that gets the item first throws in one of the next `SLOTS` slots, equally likely, then once a round, one
    older each time, while younger than `termination`. So those who throw in slot s at age a are `1/SLOTS` of those who
    got it at age a in the last round, and those who threw a round ago at age a-1. A throw arrives `lag` slots later.
    """
    escape = 1 - fanout * (1 - loss) / (members - 1)
    decay = log(escape) if escape > 0 else -50.0
    missing = float(members - 1 - hit)
    # Every throw is one older and at most a round (and its way) later than the one before it.
    slots = (termination - 1) * (SLOTS + lag) + 1
    nobody = [0.0] * (termination + 1)
    throws = [[1.0] + [0.0] * (termination - 1)]
    got = [nobody] * lag + [[0.0, float(hit)] + [0.0] * (termination - 1)]
    recent = list(got[0])  # the sum of `got` over the last round, by age
    finished = 1.0 if termination == 1 else 0.0
    yield missing, 1.0, finished
    for s in range(1, slots):
        now = [g / SLOTS for g in recent[:termination]]
        if s >= SLOTS:
            for a, thrown in enumerate(throws[s - SLOTS][:-1]):
                now[a + 1] += thrown
            recent = [r - g for r, g in zip(recent, got[s - SLOTS], strict=True)]
        total = sum(now)
        infected = missing * (1 - exp(total * decay)) if total > 0 else 0.0
        missing -= infected
        got.append([0.0] + [infected * n / total for n in now] if total > 0 else nobody)
        recent = [r + f for r, f in zip(recent, got[s], strict=True)]
        throws.append(now)
        finished += now[-1] + got[s][-1]
        yield missing, total, finished


def outlooks(
    members: int, fanout: int, loss: float, mode: Mode, in_step: bool, latency: float = 0.0
) -> Iterator[Outlook]:
    if in_step or mode == "eager":
        return _chain(members, fanout, loss, mode)
    return _drift(members, fanout, loss, round(latency * SLOTS))


@lru_cache(maxsize=256)
def choose(members: int, loss: float, target: float, mode: Mode = "rounds", in_step: bool = False) -> Sizing:
    """The cheapest fanout and termination that reach all members with the target probability.

    Cost = copies sent per member + termination + fanout: a copy, a round of delay and a message in every round weigh
    the same. (Copies alone would choose fanout 1 and many rounds; delay alone, fanout N-1.) Where pushing cannot reach
    the target (eager, few members, much loss) the most probable choice is returned, and `probability` says so: digests
    repair the rest. In `tree` mode, rounds carry membership only, and are sized as if they carried items.
    """
    if mode == "tree":
        mode = "rounds"
    if members <= 1:
        return Sizing(1, 1, 1.0)
    best, best_cost = Sizing(1, 1, 0.0), inf
    most = min(members - 1, 16 + ceil(3 * log(members) / (1 - loss)))
    for fanout in range(1, most + 1):
        if mode == "eager" and best_cost == inf and fanout < most and _ceiling(members, fanout, loss) < target:
            continue  # not even with any number of hops
        if 2 * fanout > best_cost:
            break
        before = -1.0
        for termination, (probability, mean, copies) in enumerate(outlooks(members, fanout, loss, mode, in_step), 1):
            cost = copies + fanout + termination
            if cost >= best_cost or mean - before < 1e-12 or termination > _LONGEST:
                break
            before = mean
            if probability >= target:
                best, best_cost = Sizing(fanout, termination, probability), cost
                break
            if best_cost == inf and probability > best.probability:
                best = Sizing(fanout, termination, probability)
    return best


def buffer(load: float, termination: int) -> int:
    """Items to hold for forwarding, for `load` new items a round in the whole cluster. `mu = load * termination` are
    alive on average; more than `2 mu` with probability below `(e/4)^mu` (Chernoff, as in CCC11 Theorem 5.1; 10^-5 for
    the papers' 6 and 5)."""
    return ceil(2 * load * termination)


def history(load: float, termination: int) -> int:
    """Keys to remember, for `load` new items a round in the whole cluster. A copy can arrive for `termination` rounds
    after the creation, and two more for rounds out of step and slow links; factor 2 as for `buffer`. The papers' 40 is
    the mean, 6 * (5 + 2) = 42."""
    return max(HISTORY_FLOOR, ceil(2 * load * (termination + 2)))


@lru_cache(maxsize=4096)
def expire(members: int, fanout: int, max_members: int, loss: float, error: float = 1e-9) -> int:
    """Rounds of silence after which a member counts as crashed; `error` is the expected number of live members expired
    by mistake, by anybody in the cluster, in one round.

    Every member asserts itself in every message, and passes on the freshest assertions it has heard. It receives
    `F(1-l)` messages a round with `M` entries each, so it misses an assertion of a given other in a round with
    probability `m = exp(-F M (1-l) / (N-1))`, nearly independently (`F` and `M` at most N-1; `m` at least `l`). An
    assertion is at most about `STALENESS` rounds old. So an entry is older than `STALENESS + x` rounds with probability
    `m^x`, and over all `N^2` pairs: `x = ln(error / N^2) / ln m`.
    """
    others = max(1, members - 1)
    m = exp(-min(fanout, others) * min(max_members, others) * (1 - loss) / others)
    m = max(m, loss, 1e-3)
    return STALENESS + ceil(log(error / max(4, members * members)) / log(m))


def neighbours(members: int) -> int:
    """Neighbours of a member in `tree` mode: ln N + 3, so that a random graph of so many edges has few hops
    (`tree_hops`) and stays connected when half of the members crash. (HyParView has log10 N + 1, for few connections:
    5 for 10,000 members.)"""
    return min(max(1, members - 1), ceil(log(max(2, members))) + 3)


def tree_hops(members: int) -> int:
    """Hops after which a tree has reached all but one in a hundred members."""
    return next((h for h, share in enumerate(levels(members)) if share >= 0.99), members)


def graft(members: int, latency: int) -> int:
    """How long to wait for an announced item: twice its way down the tree."""
    return 2 * (tree_hops(members) + 1) * latency


@lru_cache(maxsize=256)
def levels(members: int) -> tuple[float, ...]:
    """The share of the other members that a tree of shortest paths has reached after 0, 1, 2 .. hops. Of the last ones
    reached each has its neighbours but one to pass it on to; members have half a neighbour more than they look for."""
    others = members - 1
    if others < 1:
        return (1.0,)
    edges = min(others, neighbours(members) + 0.5)
    missing, last, shares = float(others), 1.0, [0.0]
    while missing > 0.005 * others and last > 0.5:
        escape = max(0.0, 1 - edges / others) ** last
        last, missing = missing * (1 - escape), missing * escape
        edges = max(1.0, min(others, neighbours(members) + 0.5) - 1)
        shares.append(1 - missing / others)
    return (*shares[:-1], 1.0)  # the graph is connected: somebody has the last ones as neighbours


def silence(loss: float) -> int:
    """Rounds after which a silent neighbour counts as crashed: at least one word in two rounds, all of them lost with
    probability `loss^x` below 10^-4; at least 6, for rounds that a busy process delays."""
    return 2 * max(3, ceil(-4 * log(10) / log(max(loss, 1e-9))))
