"""Vector timestamps: tuples of comparable entries, one per ticket (docs/protocols.md, "The model in words").

Entries are compared with `<=` only, so the same functions serve plain counters and the
`(incarnation, seq)` entries of the cct clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import le
from typing import TypeVar

E = TypeVar("E", int, tuple[int, int])
Vector = Sequence[E]


def leq(a: Vector[E], b: Vector[E]) -> bool:
    """Every entry of `a` is at most that of `b`."""
    return all(map(le, a, b))


def precedes(a: Vector[E], b: Vector[E]) -> bool:
    """`a < b`: every entry is at most, and one is less."""
    return leq(a, b) and tuple(a) != tuple(b)


def concurrent(a: Vector[E], b: Vector[E]) -> bool:
    """Neither precedes the other, and they differ."""
    return not leq(a, b) and not leq(b, a)


def merge(a: Vector[E], b: Vector[E]) -> tuple[E, ...]:
    """The least vector that both precede or equal."""
    return tuple(map(max, a, b))
