"""Interval tree clocks (Almeida, Baquero and Fonte 2008): causality for processes that come and go without global ids.

A **stamp** is `(id, event)`. The id tree is the share of the unit interval that a process owns: 0, 1, or `(left,
right)` of its two halves. The event tree says how often each part of the interval has counted: a number `n`, or `(n,
left, right)`, to be read as `n` everywhere plus what the halves add. Four operations make all processes from one
`SEED`:

* `fork`: split the id; both halves know the same events;
* `event`: count one event in the own share, by `fill` if the tree gets simpler that way, else by `grow`;
* `join`: sum of two ids, maximum of two event trees;
* `peek`: a stamp without id, as messages carry.

Trees are always in normal form: `(0, 0)` is 0, `(1, 1)` is 1, equal halves of events are one number, the smaller half
adds 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from whence.errors import BadMessage, UsageError

Id = int | tuple["Id", "Id"]
"""0 (nothing), 1 (all) or two halves."""

Event = int | tuple[int, "Event", "Event"]
"""A count, or a base and what two halves add to it."""

MAX_DEPTH = 64
"""Deeper trees are refused from a peer: 64 forks in a row without a join."""


class TreeStamp(NamedTuple):
    """A process, or (with id 0) what a message says of one."""

    id: Id
    event: Event


SEED = TreeStamp(1, 0)


def fork(stamp: TreeStamp) -> tuple[TreeStamp, TreeStamp]:
    """Two stamps that share the id and know the same events."""
    left, right = split(stamp.id)
    return TreeStamp(left, stamp.event), TreeStamp(right, stamp.event)


def join(a: TreeStamp, b: TreeStamp) -> TreeStamp:
    """One stamp with both shares, that knows what either knows."""
    return TreeStamp(add(a.id, b.id), merge(a.event, b.event))


def peek(stamp: TreeStamp) -> TreeStamp:
    """What it knows, without its id."""
    return TreeStamp(0, stamp.event)


def event(stamp: TreeStamp) -> TreeStamp:
    """One more event in the own share."""
    if stamp.id == 0:
        raise UsageError("a stamp without id cannot count events: only a process that owns a share of the interval can")
    filled = fill(stamp.id, stamp.event)
    return TreeStamp(stamp.id, filled if filled != stamp.event else grow(stamp.id, stamp.event)[0])


def leq(a: TreeStamp, b: TreeStamp) -> bool:
    """All that `a` knows is known to `b`."""
    return event_leq(a.event, b.event)


# --- id trees


def depth(i: Id) -> int:
    """How often the interval was halved for the smallest part of this share."""
    return 0 if isinstance(i, int) else 1 + max(depth(i[0]), depth(i[1]))


def norm_id(left: Id, right: Id) -> Id:
    """Two halves in normal form."""
    return left if left == right and isinstance(left, int) else (left, right)


def split(i: Id) -> tuple[Id, Id]:
    """Two disjoint ids whose sum is `i`."""
    match i:
        case 0:
            return 0, 0
        case 1:
            return (1, 0), (0, 1)
        case (0, right):
            one, two = split(right)
            return (0, one), (0, two)
        case (left, 0):
            one, two = split(left)
            return (one, 0), (two, 0)
        case (left, right):
            return (left, 0), (0, right)
    raise UsageError(f"not an id tree: {i!r}")


def add(a: Id, b: Id) -> Id:
    """The sum of two disjoint ids; ids that overlap are a caller's error: two processes would be one."""
    if a == 0:
        return b
    if b == 0:
        return a
    if isinstance(a, int) or isinstance(b, int):
        raise UsageError(f"ids overlap: {a!r} and {b!r}")
    return norm_id(add(a[0], b[0]), add(a[1], b[1]))


# --- event trees


def base(e: Event) -> int:
    """The smallest count of a tree in normal form."""
    return e if isinstance(e, int) else e[0]


def top(e: Event) -> int:
    """The largest count."""
    return e if isinstance(e, int) else e[0] + max(top(e[1]), top(e[2]))


def lift(e: Event, by: int) -> Event:
    """`by` more everywhere."""
    return e + by if isinstance(e, int) else (e[0] + by, e[1], e[2])


def norm(n: int, left: Event, right: Event) -> Event:
    """In normal form: the smaller half adds 0, equal numbers are one."""
    if isinstance(left, int) and left == right:
        return n + left
    low = min(base(left), base(right))
    return (n + low, lift(left, -low), lift(right, -low))


def halves(e: Event) -> tuple[int, Event, Event]:
    """A number is a tree whose halves add nothing."""
    return (e, 0, 0) if isinstance(e, int) else e


def event_leq(a: Event, b: Event) -> bool:
    """`a <= b` everywhere on the interval."""
    if isinstance(a, int):
        return a <= base(b)
    n, left, right = a
    m, one, two = halves(b)
    return n <= m and event_leq(lift(left, n), lift(one, m)) and event_leq(lift(right, n), lift(two, m))


def merge(a: Event, b: Event) -> Event:
    """The larger of both, everywhere on the interval."""
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    n, left, right = halves(a)
    m, one, two = halves(b)
    if n > m:
        return merge(b, a)
    return norm(n, merge(left, lift(one, m - n)), merge(right, lift(two, m - n)))


def fill(i: Id, e: Event) -> Event:
    """Raise the own share as far as that makes the tree simpler (it may change nothing)."""
    if i == 0 or isinstance(e, int):
        return e
    if i == 1:
        return top(e)
    assert isinstance(i, tuple)
    n, left, right = e
    if i[0] == 1:
        right = fill(i[1], right)
        return norm(n, max(top(left), base(right)), right)
    if i[1] == 1:
        left = fill(i[0], left)
        return norm(n, left, max(top(right), base(left)))
    return norm(n, fill(i[0], left), fill(i[1], right))


def grow(i: Id, e: Event) -> tuple[Event, int]:
    """Count one in the own share, where the tree grows least; the tree and what it costs."""
    if isinstance(e, int):
        if i == 1:
            return e + 1, 0
        tree, cost = grow(i, (e, 0, 0))
        return tree, cost + 1000  # a new node costs more than any way down (the paper's "large constant")
    assert isinstance(i, tuple), "with id 1 and a tree, `fill` would have changed something"
    n, left, right = e
    ways: list[tuple[int, Event]] = []
    if i[0] != 0:
        grown, cost = grow(i[0], left)
        ways.append((cost, (n, grown, right)))
    if i[1] != 0:
        grown, cost = grow(i[1], right)
        ways.append((cost, (n, left, grown)))
    cost, tree = min(reversed(ways), key=lambda way: way[0])  # when equal, the right one, as published
    return tree, cost + 1


# --- on the wire


def encode(stamp: TreeStamp) -> bytes:
    """The stamp as bytes: a bit per leaf or node, numbers as they need."""
    bits = _id_bits(stamp.id) + _event_bits(stamp.event)
    bits += "0" * (-len(bits) % 8)
    return bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits), 8))


@lru_cache(maxsize=4096)  # a held message is checked many times; trees never change
def decode(data: bytes) -> TreeStamp:
    """The inverse of `encode`; `BadMessage` for anything that is no stamp in normal form."""
    bits = iter("".join(f"{byte:08b}" for byte in data))
    try:
        stamp = TreeStamp(_read_id(bits, 0), _read_event(bits, 0))
    except StopIteration:
        raise BadMessage("an interval tree clock ends too early") from None
    if encode(stamp) != data:
        raise BadMessage("an interval tree clock with a tail that does not belong to it")
    return stamp


def _id_bits(i: Id) -> str:
    return f"0{i}" if isinstance(i, int) else "1" + _id_bits(i[0]) + _id_bits(i[1])


def _event_bits(e: Event) -> str:
    if isinstance(e, int):
        return "0" + _number_bits(e)
    return "1" + _number_bits(e[0]) + _event_bits(e[1]) + _event_bits(e[2])


def _number_bits(n: int) -> str:
    """Elias gamma of n + 1: short for the small numbers that event trees are made of."""
    binary = f"{n + 1:b}"
    return "0" * (len(binary) - 1) + binary


def _read_number(bits: Iterator[str]) -> int:
    width = 0
    while next(bits) == "0":
        width += 1
        if width > 63:
            raise BadMessage("an interval tree clock counts beyond 64 bits")
    return int("1" + "".join([next(bits) for _ in range(width)]), 2) - 1


def _read_id(bits: Iterator[str], depth: int) -> Id:
    _check_depth(depth)
    if next(bits) == "0":
        return int(next(bits))
    left, right = _read_id(bits, depth + 1), _read_id(bits, depth + 1)
    if norm_id(left, right) != (left, right):
        raise BadMessage("an interval tree clock whose id is not in normal form")
    return (left, right)


def _read_event(bits: Iterator[str], depth: int) -> Event:
    _check_depth(depth)
    if next(bits) == "0":
        return _read_number(bits)
    n = _read_number(bits)
    left, right = _read_event(bits, depth + 1), _read_event(bits, depth + 1)
    if norm(n, left, right) != (n, left, right):
        raise BadMessage("an interval tree clock whose events are not in normal form")
    return (n, left, right)


def _check_depth(depth: int) -> None:
    if depth > MAX_DEPTH:
        raise BadMessage(f"an interval tree clock is deeper than {MAX_DEPTH}")
