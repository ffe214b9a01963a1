"""Sets of messages as bits, for compiled functions.

Bit i of row m of `sets` is message m - window + i; older messages have arrived everywhere. `held` is a single set; its
owner defines its bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from whence.lab.scale.jit import kernel


@kernel
def has(sets: Any, m: int, x: int, window: int) -> Any:
    """Whether message x < m is in the set of m. Messages older than the window always are."""
    i = x - m + window
    return i < 0 or (sets[m, i >> 6] >> np.uint64(i & 63)) & np.uint64(1) != 0


@kernel
def join(into: Any, m: int, sets: Any, y: int) -> None:
    """Add the set of y < m to a set of m, shifting its bits."""
    by = m - y
    skip, shift = by >> 6, np.uint64(by & 63)
    words = sets.shape[1]
    for w in range(words - skip):
        bits = sets[y, w + skip] >> shift
        if shift != 0 and w + skip + 1 < words:
            bits |= sets[y, w + skip + 1] << (np.uint64(64) - shift)
        into[m, w] |= bits


@kernel
def piece(held: Any, at: int) -> Any:
    """64 bits of a set, from bit `at` on; bits outside its words are 0."""
    w, shift = at >> 6, np.uint64(at & 63)
    bits = held[w] >> shift if 0 <= w < len(held) else np.uint64(0)
    if shift != 0 and -1 <= w < len(held) - 1:
        bits |= held[w + 1] << (np.uint64(64) - shift)
    return bits


@kernel
def add(held: Any, at: int, bits: Any) -> None:
    """Add 64 bits to a set, from bit `at` on; bits outside its words are ignored."""
    w, shift = at >> 6, np.uint64(at & 63)
    if 0 <= w < len(held):
        held[w] |= bits << shift
    if shift != 0 and -1 <= w < len(held) - 1:
        held[w + 1] |= bits >> (np.uint64(64) - shift)
