"""From edges to findings: which of them lie on a cycle, their patterns, and the smallest cycle of each.

The cost of a cycle: its necessary edges first, then its steps. Session order is transitive: a run of it is one step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import Final, NamedTuple

import numpy as np

from whence.audit.history.graph import NO_EDGES, Graph
from whence.audit.history.levels import TRANSACTIONAL, Level
from whence.audit.history.model import INIT, Ints, Key, Value
from whence.audit.history.report import Anomaly, CausalStep, CycleEdge, Kind

FAMILY: Final[dict[Level, tuple[str, str]]] = {
    "RC": ("NonMonoReadCO", "NonMonoReadAO"),
    "RA": ("FracturedReadCO", "FracturedReadAO"),
    "TCC": ("COConflictAO", "ConflictAO"),
}
"""The pattern of an edge by its level: closed by causal order alone, or only with other necessary edges."""
NECESSARY: Final = 1 << 20
"""Cost of a necessary edge: more than any number of other steps that is still readable."""
STARTS: Final = 100
"""Edges from which a cycle is looked for. More would rarely find a shorter one."""
VISITS: Final = 200_000
"""Nodes that a search for a cycle looks at before it takes what it has."""
VISITED: Final = 4_000
"""Transactions that the search for a shortest way into the past looks at."""
EXPLAINED: Final = 200_000
"""Edges inside cycles that an explanation looks at."""

Hop = tuple[int, Kind, Key | None, Value]
"""Where to, how, and for reads-from what."""


class Necessary(NamedTuple):
    """`src` must commit before `dst`: both write `key`, and `reader` saw `src` but reads `key` from `dst`."""

    src: int
    dst: int
    level: Level
    """The weakest level that has the edge."""
    key: Key
    reader: int


def explain_level(graph: Graph, level: Level, edges: Ints) -> tuple[Counter[str], list[Anomaly]]:
    """Count the edges of exactly this level that lie on a cycle, by pattern; the smallest cycle of each pattern.

    `edges`: of this level and the weaker ones, as rows t2, t1, t3, key, level.
    """
    component = graph.components(edges)
    inside = edges[(edges[:, 1] < 0) | (component[edges[:, 0]] == component[edges[:, 1]])]
    weakest: dict[tuple[int, int], Necessary] = {}
    for t2, t1, t3, key, number in inside[:EXPLAINED].tolist():
        before = weakest.get((t2, t1))
        if before is None or number < TRANSACTIONAL.index(before.level):
            weakest[t2, t1] = Necessary(t2, t1, TRANSACTIONAL[number], graph.history.key_of(key), t3)
    counted: Counter[str] = Counter()
    starts: dict[str, list[Necessary]] = {}
    close, far = FAMILY[level]
    for edge in weakest.values():
        if edge.level == level:
            pattern = close if edge.dst == INIT or graph.in_past(edge.dst, edge.src) else far
            counted[pattern] += 1
            starts.setdefault(pattern, []).append(edge)
    after = _hops(graph, component, True)
    for edge in weakest.values():
        if edge.dst != INIT:
            after.setdefault(edge.src, []).append((edge.dst, "co", edge.key, None))
    sizes = np.bincount(component)
    findings = []
    for pattern, those in starts.items():
        initial = [edge for edge in those if edge.dst == INIT]
        if initial:  # nothing commits before init
            initial.sort(key=lambda e: (graph.session[e.src] != graph.session[e.reader], e.level != "RA"))
            shown = min((_edge(graph, edge) for edge in initial[:3]), key=lambda edge: len(edge.past))
            findings.append(_finding(pattern, (CycleEdge(INIT, shown.src, "so"), shown)))
            continue
        those.sort(key=lambda edge: (sizes[component[edge.src]], edge.src, edge.dst))
        first = [(edge.src, (edge.dst, "co", edge.key, None)) for edge in those[:STARTS]]
        found = _smallest(graph, pattern, first, after, weakest)  # type: ignore[arg-type]
        findings += [found] if found else []
    return counted, findings


def causal_cycle(graph: Graph, pattern: str, versions: bool) -> tuple[int, Anomaly | None]:
    """How many components of `so u wr` (and version order) are cycles, and the smallest cycle."""
    component = graph.components(NO_EDGES, versions)
    sizes = np.bincount(component) if graph.total else np.empty(0, np.int64)
    after = _hops(graph, component, versions)
    nodes = sorted(after, key=lambda t: (sizes[component[t]], t))
    starts = [(t, hop) for t in nodes for hop in after[t] if hop[1] != "so"]
    return int((sizes > 1).sum()), _smallest(graph, pattern, starts[:STARTS], after, {})


def _hops(graph: Graph, component: Ints, versions: bool) -> dict[int, list[Hop]]:
    """Reads-from, version order and session order inside of components."""
    after: dict[int, list[Hop]] = {}
    history = graph.history
    known = np.flatnonzero((graph.writer >= 0) & (component[graph.writer] == component[graph.reader]))
    for i in known[:EXPLAINED].tolist():
        hop: Hop = (int(graph.reader[i]), "wr", history.key_of(graph.key[i]), history.value_of(graph.value[i]))
        after.setdefault(int(graph.writer[i]), []).append(hop)
    pairs = graph.versions[component[graph.versions[:, 0]] == component[graph.versions[:, 1]]] if versions else ()
    for one, other, key in np.array(pairs)[:EXPLAINED].tolist():
        after.setdefault(one, []).append((other, "vo", history.key_of(key), None))
    follows = (graph.session[1:] == graph.session[:-1]) & (component[1:] == component[:-1])
    for t in np.flatnonzero(follows).tolist():
        after.setdefault(t, []).append((t + 1, "so", None, None))
    return after


def _smallest(
    graph: Graph,
    pattern: str,
    starts: list[tuple[int, Hop]],
    after: dict[int, list[Hop]],
    necessary: dict[tuple[int, int], Necessary],
) -> Anomaly | None:
    """Of the edges `starts`, the one with the shortest way back to where it begins, and that way, as a cycle."""
    best: list[CausalStep] | None = None
    fewest = 1 << 60
    for src, hop in starts:
        way = _shortest(hop[0], src, lambda node: after.get(node, ()), VISITS)
        if way is not None and (cost := sum(NECESSARY if s.kind == "co" else 1 for s in way)) < fewest:
            best, fewest = [CausalStep(src, *hop), *way], cost
            if cost == 1:
                break
    if best is None:
        return None
    cycle = [
        _edge(graph, necessary[s.src, s.dst]) if s.kind == "co" else CycleEdge(s.src, s.dst, s.kind, s.key, s.value)
        for s in best
    ]
    return _finding(pattern, tuple(cycle))


def _edge(graph: Graph, edge: Necessary) -> CycleEdge:
    way = _past(graph, edge.src, edge.reader)
    return CycleEdge(edge.src, edge.dst, "co", edge.key, None, edge.level, edge.reader, way)


def _finding(pattern: str, cycle: tuple[CycleEdge, ...]) -> Anomaly:
    txns = dict.fromkeys(t for edge in cycle for t in (edge.src, edge.dst))
    readers = dict.fromkeys(edge.reader for edge in cycle if edge.reader is not None)
    keys = tuple(dict.fromkeys(edge.key for edge in cycle if edge.key is not None))
    told = " ".join(f"{edge.kind} {edge.src} -> {edge.dst}" for edge in cycle)
    main = next((edge for edge in cycle if edge.kind == "co"), None)
    words = guarantee(main) if main is not None and "CO" in pattern[-2:] + pattern[:2] else None
    return Anomaly(pattern, tuple(dict.fromkeys([*txns, *readers])), keys, told, cycle, words)


def guarantee(edge: CycleEdge) -> str | None:
    """The session guarantee (Terry et al. 1994) that is broken when `src` is known to be newer than `dst`."""
    kinds = [step.kind for step in edge.past]
    if kinds == ["so"]:
        return "read your writes"
    if kinds == ["wr", "so"] and edge.past[0].key == edge.key:
        return "monotonic reads"
    if kinds[:2] == ["so", "wr"] and kinds[2:] in ([], ["so"]):
        return "monotonic writes"
    if len(kinds) > 1 and kinds[0] == "wr" and "wr" in kinds[1:]:
        return "writes follow reads"
    return None


# -- ways


def _past(graph: Graph, src: int, reader: int) -> tuple[CausalStep, ...]:
    """The shortest way from src to reader by session order and reads."""
    for w, key, value in graph.sources(reader):
        if w == src:
            return (CausalStep(src, reader, "wr", key, value),)

    def backwards(node: int) -> Iterable[Hop]:
        if graph.session[src] == graph.session[node]:
            yield src, "so", None, None
            return
        before = graph.previous(node)
        if before is not None and graph.in_past(src, before):
            yield before, "so", None, None
        for w, key, value in graph.sources(node):
            if w == src or graph.in_past(src, w):
                yield w, "wr", key, value

    way = _shortest(reader, src, backwards, VISITED) or _some_way(reader, src, backwards)
    return tuple(CausalStep(s.dst, s.src, s.kind, s.key, s.value) for s in reversed(way))


def _shortest(start: int, goal: int, hops: Callable[[int], Iterable[Hop]], limit: int) -> list[CausalStep] | None:
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


def _walked(state: tuple[int, bool], came: dict[tuple[int, bool], tuple[tuple[int, bool], Hop]]) -> list[CausalStep]:
    steps: list[CausalStep] = []
    while state in came:
        before, hop = came[state]
        if hop[1] == "so" and steps and steps[-1].kind == "so":
            steps[-1] = CausalStep(before[0], steps[-1].dst, "so")
        else:
            steps.append(CausalStep(before[0], *hop))
        state = before
    return steps[::-1]


def _some_way(reader: int, src: int, backwards: Callable[[int], Iterable[Hop]]) -> list[CausalStep]:
    """A way that need not be the shortest: each step back keeps src in the past, so it ends there."""
    steps: list[CausalStep] = []
    node = reader
    while node != src:
        hop = min(backwards(node), key=lambda hop: (hop[0] != src, hop[1] == "so"))
        if hop[1] == "so" and steps and steps[-1].kind == "so":
            steps[-1] = CausalStep(steps[-1].src, hop[0], "so")
        else:
            steps.append(CausalStep(node, *hop))
        node = hop[0]
    return steps
