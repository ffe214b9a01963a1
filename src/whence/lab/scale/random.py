"""Counter-based randomness: every random number is a hash of its purpose.

A number depends on the seed, a stream (its purpose) and a counter. Threads and partitions may ask in any order and get
the same numbers. The delay of message `m` to receiver `r` is a keyed hash of `r` under the two 32-bit keys of `m`, so a
sender's past needs only the sender's own arrivals.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from whence.lab.scale.jit import kernel

U64 = npt.NDArray[np.uint64]
F64 = npt.NDArray[np.float64]
U32 = npt.NDArray[np.uint32]
I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]

GAP, SENDER, PROPAGATION, COPY, RECEIVER, KEYS, CHURN, SPONSOR, CITY = range(9)
"""Streams: what a random number is for."""

BITS = 12
"""A normal number is the sum of two table entries, each picked by this many bits of a hash: 2^24 values, up to 5.2
sigma."""

_GOLDEN = 0x9E3779B97F4A7C15


def _mix(x: U64) -> U64:
    """The finaliser of splitmix64: a bijection of 64 bits in which every input bit moves every output bit."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def bits(seed: int, stream: int, counter: Any) -> U64:
    """64 random bits for each counter."""
    base = np.array([(seed * 0xD1342543DE82EF95 + (stream + 1) * _GOLDEN) % 2**64], np.uint64)
    return _mix(_mix(base) + np.asarray(counter, np.uint64) * np.uint64(_GOLDEN))


def uniform(hashed: U64) -> F64:
    """In [0, 1), from the upper 53 bits."""
    return (hashed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def below(hashed: U64, n: int) -> I64:
    """Integers in [0, n), from the upper 32 bits."""
    return (((hashed >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32)).astype(np.int64)


def normal_table(sigma_us: float) -> I32:
    """Quantiles of N(0, sigma^2 / 2) in whole microseconds: the sum of two independent entries is N(0, sigma^2).

    Entry i is the mean of the i-th of 4096 equally likely slices, scaled to the exact variance. The sum ends at 5.2
    sigma, beyond which the probability is 2e-7.
    """
    if sigma_us <= 0:
        return np.zeros(1 << BITS, np.int32)
    n = 1 << BITS
    unit = NormalDist()
    edges = [0.0, *(unit.pdf(unit.inv_cdf(i / n)) for i in range(1, n)), 0.0]
    means = np.array([(edges[i] - edges[i + 1]) * n for i in range(n)])
    means /= means.std()
    rounded: I32 = np.rint(means * sigma_us / 2**0.5).astype(np.int32)
    return rounded


@kernel
def hashed(receiver: Any, key1: Any, key2: Any) -> Any:
    """32 random bits for one copy: two rounds of multiply and shift, each under a key of the message."""
    x = np.uint32((receiver ^ key1) * np.uint32(0x9E3779B1))
    x = np.uint32((x ^ (x >> np.uint32(15))) + key2)
    x = np.uint32(x * np.uint32(0x85EBCA77))
    x = np.uint32(x ^ (x >> np.uint32(13)))
    x = np.uint32(x * np.uint32(0xC2B2AE3D))
    return np.uint32(x ^ (x >> np.uint32(16)))


@kernel
def normal(word: Any, table: Any) -> Any:
    """A normal number from 24 of 32 random bits, in the unit of the table."""
    return table[word & np.uint32(4095)] + table[(word >> np.uint32(12)) & np.uint32(4095)]
