"""How large is large enough: fanout, termination, history, buffer and expiry by formula.

**The model** ("balls and bins": Koldehofe, Simple gossiping with balls and bins, 2004, is what CCC11 cites). N members
with full views, in step, messages lost independently. In a round every **active** member (`rounds`: all that have
the item; `eager`: those that got it in the hop before) throws `fanout` balls at distinct others. A given member
without the item escapes one thrower with probability `1 - F(1-l)/(N-1)`, hence `a` throwers with
`q = (1 - F(1-l)/(N-1))^a`.

**The computation.** The number of infected members is a Markov chain (Reed-Frost: the new ones are binomial(S, 1-q), S
those without the item). What makes a cast fail is mostly bad luck at its beginning, when few have the item, and the
odd member left over at its end. So the chain is followed exactly, as a distribution, while at most `_EXACT` members
have the item, and by its mean (S' = S q) beyond, where its relative deviation is small; the last rounds then leave each
of the others out independently, with the probability m = S/(N-1): P(all) = (1-m)^(N-1). The first throw, whose balls
all hit, is exact: binomial(F, 1-l).

What it neglects: that the balls of one thrower are distinct (helps), that the fates of members are not quite
independent (hurts, by less), views that are not complete, load beyond `max_events`. `tests/test_cast_sizing.py`
compares it with the real protocol: an approximation good to about one per cent, mostly on the safe side.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import ceil, exp, inf, log, log1p
from typing import Literal

import msgspec

Mode = Literal["rounds", "eager"]

_EXACT: dict[Mode, int] = {"rounds": 64, "eager": 24}
"""Infected members up to which the distribution is followed (the eager chain has two dimensions, hence fewer)."""
_TINY = 1e-12
"""Probabilities not followed. They count as failures, so the result stays on the safe side."""

HISTORY_FLOOR = 1024
"""Keys: a fifth of a megabyte, and enough for a burst far beyond the load the formula was told."""
STALENESS = 6
"""Rounds that a membership entry may have travelled when it arrives (see `expire`)."""


class Sizing(msgspec.Struct, frozen=True):
    """A choice, and the probability that a cast then reaches all members; it can be below the target: see `choose`."""

    fanout: int
    termination: int
    probability: float


State = tuple[float, float]
"""(infected, active) members: whole numbers while the distribution is followed, means beyond."""


def _newly(susceptible: int, q: float) -> Iterator[tuple[int, float]]:
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


def _throw(state: State, members: int, fanout: int, loss: float, exact: int) -> Iterator[tuple[float, float]]:
    """How many more are infected after one round, and how probably."""
    infected, active = state
    if active <= 0:
        yield 0, 1.0
    elif infected == 1:  # nobody else has it: every ball hits
        yield from _newly(fanout, loss)
    else:
        escape = 1 - fanout * (1 - loss) / (members - 1)
        q = exp(active * log(escape)) if escape > 0 else 0.0
        if infected <= exact:
            yield from _newly(members - int(infected), q)
        else:
            yield (members - infected) * (1 - q), 1.0


def _spread(members: int, fanout: int, loss: float, mode: Mode) -> Iterator[dict[State, float]]:
    """The distribution after 1, 2, 3 .. rounds."""
    fanout = min(fanout, members - 1)
    direct = mode == "eager" and fanout == members - 1  # a handful: one push to each, nobody forwards
    states: dict[State, float] = {(1, 1): 1.0}
    while True:
        after: dict[State, float] = {}
        for state, p in states.items():
            for k, w in _throw(state, members, fanout, loss, _EXACT[mode]):
                infected = min(members, state[0] + k)
                active = infected if mode == "rounds" else 0 if direct else k
                if p * w > _TINY:
                    after[infected, active] = after.get((infected, active), 0.0) + p * w
        states = after
        yield states


def _all(states: dict[State, float], members: int, mode: Mode) -> float:
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


def _mean(states: dict[State, float]) -> float:
    return sum(infected * p for (infected, _), p in states.items())


def reach(members: int, fanout: int, termination: int, loss: float, mode: Mode = "rounds") -> float:
    """The probability that ALL members get an item."""
    if members <= 1:
        return 1.0
    for r, states in enumerate(_spread(members, fanout, loss, mode), 1):
        if r == termination:
            return _all(states, members, mode)
    return 0.0


def coverage(members: int, fanout: int, termination: int, loss: float, mode: Mode = "rounds") -> list[float]:
    """The expected fraction of members that have an item after 0, 1, .. `termination` rounds."""
    fractions = [1 / members]
    if members <= 1 or not termination:
        return fractions
    for r, states in enumerate(_spread(members, fanout, loss, mode), 1):
        fractions.append(_mean(states) / members)
        if r == termination:
            break
    return fractions


@lru_cache(maxsize=256)
def choose(members: int, loss: float, target: float, mode: Mode = "rounds") -> Sizing:
    """The cheapest fanout and termination that reach all members with the target probability.

    Cost = copies of an item sent per member + termination + fanout: a copy, a round of delay, and a message in every
    round weigh the same. (Copies alone would choose fanout 1 and many rounds; delay alone, fanout N-1.)

    In a handful the answer is often one direct push to each. Where pushing alone cannot reach the target (eager, few
    members, much loss: nobody forwards twice), the most probable choice is returned, and `probability` says so: the
    digests of the rounds have to repair the rest.
    """
    if members <= 1:
        return Sizing(1, 1, 1.0)
    best, best_cost = Sizing(1, 1, 0.0), inf
    most = min(members - 1, 16 + ceil(3 * log(members) / (1 - loss)))
    longest = 8 + ceil(6 * log(members + 1) / (1 - loss))
    for fanout in range(1, most + 1):
        if mode == "eager" and best_cost == inf and fanout < most and _ceiling(members, fanout, loss) < target:
            continue  # not even with any number of hops
        copies = 0.0
        throwers = 1.0
        for r, states in enumerate(_spread(members, fanout, loss, mode), 1):
            copies += fanout * throwers / members
            cost = copies + fanout + r
            if cost >= best_cost or r > longest:
                break
            probability = _all(states, members, mode)
            if probability >= target:
                best, best_cost = Sizing(fanout, r, probability), cost
                break
            if best_cost == inf and probability > best.probability:
                best = Sizing(fanout, r, probability)
            throwers = sum(active * p for (_, active), p in states.items())
            if throwers < _TINY:
                break
    return best


def buffer(load: float, termination: int) -> int:
    """Items to hold for forwarding, for `load` new items a round in the whole cluster.

    As items are forwarded for `termination` rounds, `mu = load * termination` are alive on average; the chance of
    more than `2 mu` is below `(e/4)^mu` (Chernoff, as in CCC11 Theorem 5.1; 10^-5 for the papers' 6 and 5).
    """
    return ceil(2 * load * termination)


def history(load: float, termination: int) -> int:
    """Keys to remember, for `load` new items a round in the whole cluster.

    A copy can arrive until `termination` rounds after the creation, and two more for rounds out of step and slow
    links; in that time `2 mu` items are created at most, but for a chance of `(e/4)^mu` (as for `buffer`). The
    papers' 40 is this formula's mean, 6 * (5 + 2) = 42, without the factor 2.
    """
    return max(HISTORY_FLOOR, ceil(2 * load * (termination + 2)))


@lru_cache(maxsize=4096)
def expire(members: int, fanout: int, max_members: int, loss: float, error: float = 1e-9) -> int:
    """Rounds of silence after which a member counts as crashed; `error` is the expected number of live members
    expired by mistake, by anybody in the cluster, in one round.

    Every member asserts itself in every message it sends, and passes on the freshest assertions it has heard. A member
    receives `F(1-l)` messages a round with `M` entries each, so it hears an assertion of a given other with
    probability `1 - m`, `m = exp(-F M (1-l) / (N-1))`, in each round, nearly independently, since each assertion
    takes its own random way (`F` and `M` at most N-1; `m` at least the loss `l`). An assertion is at most about
    `STALENESS` rounds old when it arrives. So an entry is older than `STALENESS + x` rounds with probability `m^x`,
    and over all `N^2` pairs: `x = ln(error / N^2) / ln m`.
    """
    others = max(1, members - 1)
    m = exp(-min(fanout, others) * min(max_members, others) * (1 - loss) / others)
    m = max(m, loss, 1e-3)
    return STALENESS + ceil(log(error / max(4, members * members)) / log(m))
