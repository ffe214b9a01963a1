"""The settings of a run, its messages, and the delay of each copy.

The model of PCO17 section 5.4: `N` processes, each a Poisson sender. A message has its own propagation time
`d ~ N(delay, spread^2)`, and reaches each receiver after `N(d, skew^2)`. All times are whole microseconds.

Where the paper is silent:
* a negative delay is 0;
* normal numbers end at 5.2 sigma, so there is a longest delay;
* events at the same microsecond happen in the order in which their messages were sent.
"""

from __future__ import annotations

from math import ceil, comb
from random import Random
from typing import Any, NamedTuple

import msgspec
import numpy as np

from whence.core.clock.probabilistic import keys_of
from whence.errors import ConfigError
from whence.lab.scale.jit import kernel
from whence.lab.scale.random import (
    CHURN,
    CITY,
    COPY,
    GAP,
    I32,
    I64,
    KEYS,
    PROPAGATION,
    RECEIVER,
    SENDER,
    SPONSOR,
    U32,
    below,
    bits,
    hashed,
    normal,
    normal_table,
    uniform,
)

TRIES = 8
"""The most losses of one copy; the next try always arrives."""


class ScaleSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One run of the array engine."""

    processes: int = 1000
    """`N`: how many processes; each receives what the others send."""
    entries: int = 100
    """`R`: counters in a vector. A message carries all of them."""
    keys: int = 4
    """`K`: entries of each process, drawn at random. `K = 1, R = N` is the vector clock (see also `publishers`)."""
    deliveries: float = 1e8
    """Count at least this many deliveries: `ceil(deliveries / (N - 1))` messages."""
    rate: float = 200.0
    """Messages a second of all processes together."""
    delay: float = 100.0
    """Mean propagation time of a message, ms."""
    spread: float = 20.0
    """Standard deviation of a message's propagation time `d` (the paper's sigma), ms."""
    skew: float = 20.0
    """Standard deviation between the receivers of one message (the paper's sigma_m), ms."""
    loss: float = 0.0
    """Probability that a copy is lost. It is sent again after `retry`, at most 8 times."""
    retry: float = 100.0
    """Time until a lost copy is sent again, ms."""
    churn: float = 0.0
    """Processes that leave per second; each is replaced at once by a new one that copies another's state."""
    memory: int = 0
    """Length of the list `L` of Algorithm 5; 0: `2 * rate * delay`, what arrives in two propagation times."""
    latencies: tuple[tuple[float, ...], ...] = ()
    """Recorded round-trip times between cities in ms; half of one replaces `delay`. Processes are assigned to cities at
    random."""
    seed: int = 0
    """Same seed, same result, on any number of threads."""
    publishers: int = 0
    """How many processes send, from the first on; 0: all. With `K = 1, R = publishers` it is the clock of as many
    tickets, one entry per publisher."""

    def check(self) -> None:
        """Raise ConfigError for invalid settings."""
        wants = (
            ("processes", 2 <= self.processes <= 1_000_000, "from 2 to 1,000,000"),
            ("entries", 1 <= self.entries <= 100_000, "from 1 to 100,000"),
            ("keys", 1 <= self.keys <= self.entries, f"from 1 to the number of entries, {self.entries}"),
            ("deliveries", 1 <= self.deliveries <= 1e13, "from 1 to 1e13"),
            ("rate", 0 < self.rate <= 1e6, "more than 0 and at most 1e6 a second"),
            ("delay", 0 <= self.delay <= 1e5, "from 0 to 100,000 ms"),
            ("spread", 0 <= self.spread <= 1e5, "from 0 to 100,000 ms"),
            ("skew", 0 <= self.skew <= 1e5, "from 0 to 100,000 ms"),
            ("loss", 0 <= self.loss < 1, "at least 0 and less than 1"),
            ("retry", 0 < self.retry <= 1e5, "more than 0 and at most 100,000 ms"),
            ("churn", 0 <= self.churn <= self.rate, f"from 0 to the rate, {self.rate:g} a second"),
            ("memory", 0 <= self.memory <= 100_000, "from 0 to 100,000"),
            ("publishers", 0 <= self.publishers <= self.processes, f"from 0 to the processes, {self.processes}"),
            ("publishers", not (self.publishers and self.churn), "possible together with churn"),
            ("seed", 0 <= self.seed < 2**63, "from 0 to 2^63 - 1"),
        )
        for name, fits, want in wants:
            if not fits:
                raise ConfigError(f"{name}: {getattr(self, name):g} is not {want}")
        if any(len(row) != len(self.latencies) for row in self.latencies):
            raise ConfigError("latencies: not a square matrix")
        if self.messages > 2**27:
            raise ConfigError(f"deliveries: {self.messages:,} messages are too many; at most 2^27")

    @property
    def messages(self) -> int:
        """How many messages are counted."""
        return ceil(self.deliveries / (self.processes - 1))

    @property
    def listed(self) -> int:
        """The length of `L`."""
        return self.memory or max(1, ceil(2 * self.rate * self.delay / 1000))


class ScaleNetwork(NamedTuple):
    """The delays of copies; an argument of compiled functions."""

    send: I64
    """When each message is sent, microseconds, ascending."""
    sender: I32
    apart: I32
    """Each message's own deviation from the mean propagation time."""
    key1: U32
    key2: U32
    base: I32
    """Mean propagation time from city to city."""
    city: I32
    """Of each process."""
    skew: I32
    """Table of normal numbers."""
    lost: U32
    """A copy with a hash below entry i is lost more than i times."""
    retry: int


class Prepared(NamedTuple):
    """A prepared run: everything that does not depend on deliveries."""

    settings: ScaleSettings
    net: ScaleNetwork
    receiver: U32
    """Hash of each process, which determines its delays."""
    keys: I32
    """`f(p)` of each process."""
    first: int
    """Messages before this one are the warm-up and not counted."""
    last: int
    """Messages from this one on are the cool-down and not counted."""
    longest: int
    """Longest delay, microseconds."""
    window: int
    """The most messages sent within the longest delay: older ones have arrived everywhere."""
    replaced: I32
    """Per message: the process that is replaced just before it is sent, or -1."""
    sponsor: I32
    """Whose state the new process copies."""


@kernel
def travel(
    m: int,
    to: int,
    receiver: Any,
    sender: Any,
    apart: Any,
    key1: Any,
    key2: Any,
    base: Any,
    city: Any,
    skew: Any,
    lost: Any,
    retry: int,
) -> Any:
    """The delay of message `m` to a process in microseconds (the arrays are those of `Network`)."""
    word = hashed(receiver, key1[m], key2[m])
    time = max(np.int64(0), np.int64(base[city[sender[m]], city[to]]) + apart[m] + normal(word, skew))
    if len(lost) > 0:
        word = np.uint32((word ^ key1[m]) * np.uint32(0x27D4EB2F))  # other bits than those of the delay
        word = np.uint32((word ^ (word >> np.uint32(15))) * np.uint32(0x85EBCA77))
        word = np.uint32(word ^ (word >> np.uint32(16)))
        for i in range(TRIES):  # the entries fall: no need to stop at the first that is not lost
            time += retry if word < lost[i] else 0
    return time


def prepare(settings: ScaleSettings) -> Prepared:
    """The messages of a run, with those of two longest delays before and after the ones that count."""
    s = settings
    s.check()
    base = _base(s)
    spread, skew = normal_table(s.spread * 1000), normal_table(s.skew * 1000)
    longest = (
        int(base.max()) + 2 * int(spread.max()) + 2 * int(skew.max()) + (TRIES * round(s.retry * 1000) if s.loss else 0)
    )
    margin = ceil(2.5 * longest * s.rate / 1e6) + 50
    count = s.messages + 2 * margin
    m = np.arange(count)
    send = np.cumsum(-np.log1p(-uniform(bits(s.seed, GAP, m))) * (1e6 / s.rate)).astype(np.int64)
    copies = bits(s.seed, COPY, m)
    word = bits(s.seed, PROPAGATION, m)
    apart = spread[word & np.uint64(4095)] + spread[(word >> np.uint64(12)) & np.uint64(4095)]
    window = int((m - np.searchsorted(send, send - longest)).max()) + 1
    cities = below(bits(s.seed, CITY, np.arange(s.processes)), len(base)).astype(np.int32)
    net = ScaleNetwork(
        send,
        below(bits(s.seed, SENDER, m), s.publishers or s.processes).astype(np.int32),
        apart.astype(np.int32),
        copies.astype(np.uint32),
        (copies >> np.uint64(32)).astype(np.uint32),
        base,
        cities,
        skew,
        np.array([round(s.loss**i * (2**32 - 1)) for i in range(1, TRIES + 1)] if s.loss else [], np.uint32),
        round(s.retry * 1000),
    )
    replaced, sponsor = _churn(s, count)
    everybody = np.arange(s.processes)
    return Prepared(
        s,
        net,
        bits(s.seed, RECEIVER, everybody).astype(np.uint32),
        key_sets(s, everybody),
        margin,
        margin + s.messages,
        longest,
        window,
        replaced,
        sponsor,
    )


def _base(s: ScaleSettings) -> I32:
    if s.latencies:
        return np.asarray(np.rint(np.array(s.latencies) * 500), np.int32)
    return np.array([[round(s.delay * 1000)]], np.int32)


def _churn(s: ScaleSettings, count: int) -> tuple[I32, I32]:
    m = np.arange(count)
    hashes = bits(s.seed, CHURN, m)
    who = below(bits(s.seed, SPONSOR, 2 * m), s.processes).astype(np.int32)
    replaced = np.where(uniform(hashes) < s.churn / s.rate, who, np.int32(-1))
    other = below(bits(s.seed, SPONSOR, 2 * m + 1), s.processes - 1).astype(np.int32)
    return replaced, other + (other >= who)


def key_sets(s: ScaleSettings, who: Any) -> I32:
    """`f(p)` of each process (or of one that replaces it): PCO17 Algorithm 3, vectorised."""
    who = np.asarray(who)
    R, K = s.entries, s.keys
    if K == 1 and R in (s.processes, s.publishers):
        return np.asarray((who % R).reshape(-1, 1), np.int32)
    sets = comb(R, K)
    words = bits(s.seed, KEYS, who)
    if sets >= 2**40:  # too many for a 64-bit hash: the core's own function
        return np.array([keys_of(Random(int(word)), R, K) for word in words], np.int32)
    rest = words % np.uint64(sets)
    left = np.full(len(who), K)
    keys = np.zeros((len(who), K), np.int32)
    for x in range(R):
        begin_with_x = np.array([comb(R - 1 - x, k - 1) if k else 0 for k in range(K + 1)], np.uint64)[left]
        taken = rest < begin_with_x
        keys[taken, K - left[taken]] = x
        rest = np.where(taken, rest, rest - begin_with_x)
        left = left - taken
    return keys
