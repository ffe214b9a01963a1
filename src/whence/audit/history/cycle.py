"""The smallest cycle through a necessary edge, and the way that puts one transaction into another's past.

Cost of a way: its necessary edges first, then its steps. Session order is transitive: a run of it is one step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import Final

from whence.audit.history.model import Key, Value
from whence.audit.history.report import Edge, Kind, Step

Hop = tuple[int, Kind, Key | None, Value]
"""Where to, how, and for reads-from what."""

NECESSARY: Final = 1 << 20
"""Cost of a necessary edge: more than any number of other steps that is still readable."""
STARTS: Final = 100
"""Edges from which a cycle is looked for. More would rarely find a shorter one."""
VISITS: Final = 200_000
"""Nodes that one search looks at before it takes what it has."""


def shortest(start: int, goal: int, hops: Callable[[int], Iterable[Hop]], limit: int = VISITS) -> list[Step] | None:
    """The cheapest way from start to goal, with runs of session order as one step; None: there is none."""
    best: dict[tuple[int, bool], int] = {(start, False): 0}
    came: dict[tuple[int, bool], tuple[tuple[int, bool], Hop]] = {}
    heap: list[tuple[int, int, bool]] = [(0, start, False)]
    visits = 0
    while heap:
        cost, node, ran = heappop(heap)
        if node == goal and cost:
            return _walked((node, ran), came)
        if cost > best[node, ran]:
            continue
        visits += 1
        if visits > limit:
            return None
        for hop in hops(node):
            other, kind = hop[0], hop[1]
            run = kind == "so"
            price = cost + (0 if run and ran else NECESSARY if kind == "co" else 1)
            if price < best.get((other, run), 1 << 60):
                best[other, run] = price
                came[other, run] = ((node, ran), hop)
                heappush(heap, (price, other, run))
    return None


def _walked(state: tuple[int, bool], came: dict[tuple[int, bool], tuple[tuple[int, bool], Hop]]) -> list[Step]:
    steps: list[Step] = []
    while state in came:
        before, (other, kind, key, value) = came[state]
        if kind == "so" and steps and steps[-1].kind == "so":
            steps[-1] = Step(before[0], steps[-1].dst, "so")
        else:
            steps.append(Step(before[0], other, kind, key, value))
        state = before
    return steps[::-1]


def turned(steps: list[Step]) -> list[Step]:
    """A way that was looked for backwards, forwards."""
    return [Step(s.dst, s.src, s.kind, s.key, s.value) for s in reversed(steps)]


def smallest(
    starts: list[tuple[int, int]], hops: Callable[[int], Iterable[Hop]], limit: int = VISITS
) -> tuple[tuple[int, int], list[Step]] | None:
    """Of the edges `(src, dst)`, the one with the shortest way back from dst to src, and that way."""
    found: tuple[tuple[int, int], list[Step]] | None = None
    fewest = 1 << 60
    for src, dst in starts[:STARTS]:
        way = shortest(dst, src, hops, limit)
        if way is not None and (cost := sum(NECESSARY if s.kind == "co" else 1 for s in way)) < fewest:
            found, fewest = ((src, dst), way), cost
            if cost == 1:
                break
    return found


def guarantee(edge: Edge) -> str | None:
    """The session guarantee (Terry et al. 1994) that is broken when `src` is known to be newer than `dst`."""
    kinds = [step.kind for step in edge.past]
    session_after = kinds[1:] == ["so"]
    if kinds == ["so"]:
        return "read your writes"
    if kinds[:1] == ["wr"] and session_after and edge.past[0].key == edge.key:
        return "monotonic reads"
    if kinds[:2] == ["so", "wr"] and kinds[2:] in ([], ["so"]):
        return "monotonic writes"
    if len(kinds) > 1 and kinds[0] == "wr" and "wr" in kinds[1:]:
        return "writes follow reads"
    return None
