"""A contract instead of knobs: from a target and a load to R and K, and whether reality keeps to it (PCO17 5.3).

    error <= P_nc * (1 - (1 - 1/R)^(K X))^K         least at K = ln 2 * R / X

`X` are the messages in flight: those sent during one propagation time. `P_nc` is the probability that a message
overtakes one that it depends on. The paper leaves it open. Here, before anything is measured: a message m' overtakes m
if m, sent a time t earlier, had reached the sender of m' (delay < t) but reaches this receiver later than m' does.
Summed over all m, sent at `rate`, with delays as in the paper's model (each message `N(delay, jitter)`, each of its
receivers once more `N(., jitter)`), that is `rate * E[max(0, Z)]`, `Z ~ N(-delay, 2 jitter)`: 1.6 % for the paper's
Figure 3. Once there are deliveries, it is the share of frames that had to wait for something.

Sizes are computed with the *mean of the formula* over a Poisson number of messages in flight, not with the formula of
the mean: at a handful in flight the paper's bound is too low, because the errors come when there are more than usual.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from functools import lru_cache
from math import ceil, erfc, exp, log, pi, sqrt
from typing import Literal

import msgspec

from whence.core.clock.bounds import earliest, need
from whence.core.order.outputs import Contracted

MAX_ENTRIES = 4096
"""R at most: about 8 KiB of header."""
MAX_KEYS = 32
"""K at most: more gains nothing that counts, and each is sent."""
HEADROOM = 2.0
"""A move is made for this many times the load that broke the contract."""
BYTES_PER_ENTRY = 2
"""What an entry costs on the wire, as a rule: counts that differ by less than 65,536."""


def error_bound(R: int, K: int, X: float, p_nc: float = 1.0) -> float:
    """PCO17's bound of the probability that a delivery is wrong."""
    return p_nc * (1 - (1 - 1 / R) ** (K * X)) ** K if R > 1 else p_nc


@lru_cache(maxsize=4096)
def expected_error(R: int, K: int, X: float, p_nc: float = 1.0) -> float:
    """The same with a Poisson number of messages in flight, `X` on average."""
    total, weight, covers = 0.0, exp(-X) if X < 600 else 0.0, 0
    if not weight:  # so many that the mean is all
        return error_bound(R, K, X, p_nc)
    while covers <= X or weight > 1e-15:
        total += weight * (1 - (1 - 1 / R) ** (K * covers)) ** K
        covers += 1
        weight *= X / covers
    return p_nc * total


@lru_cache(maxsize=1024)
def best_keys(R: int, X: float) -> int:
    """K: `ln 2 * R / X` rounded to the better side, or less where the expected error is less (few in flight)."""
    ideal = min(log(2) * R / X if X > 0 else 1.0, R, MAX_KEYS)
    return min(range(1, max(1, ceil(ideal)) + 1), key=lambda K: expected_error(R, K, X))


def overtaking(rate: float, delay: float, jitter: float) -> float:
    """P_nc by the model above: `rate * E[max(0, Z)]`, at most 1."""
    if jitter <= 0:
        return 0.0
    sigma, z = 2 * jitter, delay / (2 * jitter)
    density, tail = exp(-z * z / 2) / sqrt(2 * pi), erfc(z / sqrt(2)) / 2
    return min(1.0, max(0.0, rate * (sigma * density - delay * tail)))


def entries_for(target: float, X: float, p_nc: float) -> int:
    """The least R whose best K keeps the bound; `MAX_ENTRIES` if none does."""

    def keeps(R: int) -> bool:
        return expected_error(R, best_keys(R, X), X, p_nc) <= target

    return 1 + bisect_left(range(1, MAX_ENTRIES), True, key=keeps)


class Contract(msgspec.Struct, frozen=True, kw_only=True):
    """What the user knows and wants. The same for all founding members; a joiner takes over what the cluster has."""

    target_error: float | None = None
    """The share of deliveries that may come after something that depends on them. Smaller: more bytes a message.
    Give this or `header_bytes`; neither: 0.001."""
    header_bytes: int | None = None
    """Bytes of a timestamp, as a rule: R is half of it. What error rate follows is `promise`."""
    rate: float = 100.0
    """Messages a second expected in the whole cluster (a frame of many events is one)."""
    delay: float = 0.1
    """Seconds from a publish to its receipt, on average: gossip takes several hops. `rate * delay` is X."""
    jitter: float | None = None
    """Standard deviation of `delay`; default a fifth of it, as in the paper."""
    members: int = 0
    """Members expected, if known: with R of at least as many and K = 1 given by hand a vector clock is possible."""
    entries: int | None = None
    """R by hand, for those who know better."""
    keys: int | None = None
    """K by hand."""
    memory: int | None = None
    """Deliveries that Algorithm 5 looks back on; default `4 X` and at least 64. Longer misses less and costs time."""
    move: bool = True
    """A broken contract makes the member begin a generation with more entries."""
    assignment: Literal["random", "even"] = "random"
    """Which entries a member increments: drawn at random, or as evenly as it can know (PCO17 4.1.3): the founders by
    their place in the list, all others what the owners known use least."""
    repair: bool = False
    """An alert of Algorithm 5 starts an anti-entropy (PCO17 4.2): `k` members are asked for all that they have and this
    one has not. What is missing comes sooner; answers overtake gossip, so there are a few errors more."""

    def __post_init__(self) -> None:
        error, size, most = self.target_error, self.header_bytes, BYTES_PER_ENTRY * MAX_ENTRIES
        need(error is None or size is None, "contract: give target_error or header_bytes, not both")
        need(error is None or 0 < error <= 1, f"contract: target_error is {error}; want more than 0, at most 1")
        need(size is None or 16 <= size <= most, f"contract: header_bytes is {size}; want 16 to {most}")
        chosen = self.assignment in ("random", "even")
        need(chosen, f"contract: assignment is {self.assignment!r}; want random or even")
        need(self.rate > 0, f"contract: rate is {self.rate}; want more than 0")
        need(self.delay > 0, f"contract: delay is {self.delay}; want more than 0")
        need(self.jitter is None or self.jitter >= 0, f"contract: jitter is {self.jitter}; want 0 or more")
        R, K = self.size
        need(
            1 <= K <= R <= MAX_ENTRIES, f"contract: K = {K} keys of R = {R} entries; want 1 <= K <= R <= {MAX_ENTRIES}"
        )

    @property
    def in_flight(self) -> float:
        """X, expected."""
        return self.rate * self.delay

    @property
    def p_nc(self) -> float:
        """P_nc, expected."""
        return overtaking(self.rate, self.delay, self.delay / 5 if self.jitter is None else self.jitter)

    @property
    def size(self) -> tuple[int, int]:
        """R and K for the expected load."""
        return self.size_for(self.in_flight, self.p_nc)

    def size_for(self, X: float, p_nc: float) -> tuple[int, int]:
        """R and K for a load: what is given by hand stays."""
        if self.entries is not None:
            R = self.entries
        elif self.header_bytes is not None:
            R = self.header_bytes // BYTES_PER_ENTRY
        else:
            R = max(8, entries_for(self.target_error or 0.001, X, p_nc))
        return R, self.keys if self.keys is not None else best_keys(R, X)

    @property
    def promise(self) -> float:
        """The error rate that is promised: the target, or what the given size allows at the expected load."""
        if self.target_error is not None:
            return self.target_error
        if self.header_bytes is None and self.entries is None:
            return 0.001
        R, K = self.size
        return max(expected_error(R, K, self.in_flight, self.p_nc), 1e-9)

    @property
    def lookback(self) -> int:
        """`memory`, or its formula."""
        return self.memory if self.memory is not None else max(64, ceil(4 * self.in_flight))


class Gauge:
    """What a member measures of its contract, over about the last `WINDOW` frames of others."""

    WINDOW = 2000
    ENOUGH = 200

    def __init__(self, contract: Contract) -> None:
        self.contract = contract
        self.broken = False
        self.forget()

    def forget(self) -> None:
        """Begin anew: under another clock all is different."""
        self.seen = self.lag = self.waited = self.alerts = 0.0

    def arrived(self, lag: float, waits: bool) -> None:
        """A frame came; `lag`: frames delivered here that its owner had not delivered when it sent it."""
        if self.seen >= self.WINDOW:
            self.seen, self.lag, self.waited, self.alerts = (
                v / 2 for v in (self.seen, self.lag, self.waited, self.alerts)
            )
        self.seen += 1
        self.lag += max(0.0, lag)
        self.waited += waits

    def alerted(self) -> None:
        """A frame was delivered with an alert of Algorithm 5."""
        self.alerts += 1

    @property
    def in_flight(self) -> float:
        """X, measured."""
        return self.lag / self.seen if self.seen else 0.0

    def p_nc(self, R: int, K: int) -> float:
        """P_nc, measured: what had to wait, and by the formula what slipped through beside it."""
        caught = max(0.05, 1 - expected_error(R, K, self.in_flight))
        return min(1.0, self.waited / self.seen / caught) if self.seen else 0.0

    @property
    def alert_rate(self) -> float:
        return self.alerts / self.seen if self.seen else 0.0

    def bound(self, R: int, K: int) -> float:
        """The formula with what was measured."""
        return expected_error(R, K, self.in_flight, self.p_nc(R, K))

    def breaks(self, R: int, K: int) -> bool:
        """Both upper bounds are beyond the promise: the formula's, and that no error goes without an alert (counted
        with 3 more than there were: the rule of three for what is rare)."""
        if self.seen < self.ENOUGH:
            return self.broken
        return min(self.bound(R, K), (self.alerts + 3) / self.seen) > self.contract.promise


class Overseer:
    """Looks at the gauge now and then: says when the contract is broken, and when it is kept again. A broken one is a
    reason to move, after a random while: perhaps another member moves first."""

    def __init__(self, contract: Contract, rng: random.Random, patience_ns: int) -> None:
        self.contract = contract
        self.gauge = Gauge(contract)
        self._rng = rng
        self._patience = patience_ns
        self._check_at: int | None = None
        self._move_at: int | None = None

    def begin(self, now: int) -> None:
        self._check_at = now + 2 * self._patience

    def moved(self) -> None:
        """Under another clock all is different."""
        self.gauge.forget()
        self._move_at = None

    @property
    def wake_at(self) -> int | None:
        return earliest(self._check_at, self._move_at)

    def look(self, R: int, K: int, now: int) -> tuple[Contracted | None, tuple[int, int] | None]:
        """What is to be said of a clock of this size, and the size to move to."""
        gauge, said = self.gauge, None
        if self._check_at is not None and self._check_at <= now:
            self._check_at = now + 2 * self._patience
            broken = gauge.breaks(R, K)
            if broken != gauge.broken:
                gauge.broken = broken
                said = Contracted(broken, self.contract.promise, gauge.bound(R, K), gauge.alert_rate, gauge.in_flight)
            if broken and self.contract.move and self._move_at is None:
                self._move_at = now + self._rng.randrange(1 + 4 * self._patience)
        if self._move_at is None or self._move_at > now:
            return said, None
        self._move_at = None
        X, p_nc = HEADROOM * gauge.in_flight, min(1.0, HEADROOM * gauge.p_nc(R, K))
        size = self.contract.size_for(X, p_nc)
        gains = expected_error(*size, X) < 0.8 * expected_error(R, K, X)
        return said, size if gauge.broken and gains else None
