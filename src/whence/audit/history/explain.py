"""From edges to findings: which of them lie on a cycle, their patterns, and the smallest cycle of each.

The cost of a cycle: its necessary edges first, then its steps. Session order is transitive: a run of it is one step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from heapq import heappop, heappush
from typing import Final

import numpy as np

from whence.audit.history.graph import NO_EDGES, Graph
from whence.audit.history.levels import TRANSACTIONAL, Level
from whence.audit.history.model import INIT, Ints
from whence.audit.history.report import Anomaly, CycleEdge

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

Steps = dict[int, list[CycleEdge]]
"""Transaction -> the steps from it."""


def explain_level(graph: Graph, level: Level, edges: Ints) -> tuple[Counter[str], list[Anomaly]]:
    """Count the edges of exactly this level that lie on a cycle, by pattern; the smallest cycle of each pattern.

    `edges`: of this level and the weaker ones, as rows t2, t1, t3, key, level.
    """
    component = graph.components(edges)
    inside = edges[(edges[:, 1] < 0) | (component[edges[:, 0]] == component[edges[:, 1]])]
    weakest: dict[tuple[int, int], CycleEdge] = {}
    for t2, t1, t3, key, number in inside[:EXPLAINED].tolist():
        before = weakest.get((t2, t1))
        if before is None or before.level not in TRANSACTIONAL[: number + 1]:
            weakest[t2, t1] = CycleEdge(t2, t1, "co", graph.history.key_of(key), None, TRANSACTIONAL[number], t3)
    counted: Counter[str] = Counter()
    starts: dict[str, list[CycleEdge]] = {}
    close, far = FAMILY[level]
    for edge in weakest.values():
        if edge.level == level:
            pattern = close if edge.dst == INIT or graph.in_past(edge.dst, edge.src) else far
            counted[pattern] += 1
            starts.setdefault(pattern, []).append(edge)
    after = _steps(graph, component, True)
    for edge in weakest.values():
        if edge.dst != INIT:
            after.setdefault(edge.src, []).append(edge)
    sizes = np.bincount(component)
    findings = []
    for pattern, those in starts.items():
        initial = [edge for edge in those if edge.dst == INIT]
        if initial:  # nothing commits before init
            initial.sort(key=lambda e: (graph.session[e.src] != graph.session[e.reader], e.level != "RA"))
            shown = min((_with_past(graph, edge) for edge in initial[:3]), key=lambda edge: len(edge.past))
            findings.append(_finding(pattern, (CycleEdge(INIT, shown.src, "so"), shown)))
            continue
        those.sort(key=lambda edge: (sizes[component[edge.src]], edge.src, edge.dst))
        found = _smallest(graph, pattern, those[:STARTS], after)
        findings += [found] if found else []
    return counted, findings


def causal_cycle(graph: Graph, pattern: str, versions: bool) -> tuple[int, Anomaly | None]:
    """How many components of `so u wr` (and version order) are cycles, and the smallest cycle."""
    component = graph.components(NO_EDGES, versions)
    sizes = np.bincount(component) if graph.total else np.empty(0, np.int64)
    after = _steps(graph, component, versions)
    nodes = sorted(after, key=lambda t: (sizes[component[t]], t))
    starts = [step for t in nodes for step in after[t] if step.kind != "so"]
    return int((sizes > 1).sum()), _smallest(graph, pattern, starts[:STARTS], after)


def _steps(graph: Graph, component: Ints, versions: bool) -> Steps:
    """Reads-from, version order and session order inside of components."""
    after: Steps = {}
    history = graph.history
    known = np.flatnonzero((graph.writer >= 0) & (component[graph.writer] == component[graph.reader]))
    for i in known[:EXPLAINED].tolist():
        src, dst, key = int(graph.writer[i]), int(graph.reader[i]), history.key_of(graph.key[i])
        after.setdefault(src, []).append(CycleEdge(src, dst, "wr", key, history.value_of(graph.value[i])))
    pairs = graph.versions[component[graph.versions[:, 0]] == component[graph.versions[:, 1]]] if versions else ()
    for one, other, code in np.array(pairs)[:EXPLAINED].tolist():
        after.setdefault(one, []).append(CycleEdge(one, other, "vo", history.key_of(code)))
    follows = (graph.session[1:] == graph.session[:-1]) & (component[1:] == component[:-1])
    for t in np.flatnonzero(follows).tolist():
        after.setdefault(t, []).append(CycleEdge(t, t + 1, "so"))
    return after


def _smallest(graph: Graph, pattern: str, starts: list[CycleEdge], after: Steps) -> Anomaly | None:
    """Of the edges `starts`, the one with the shortest way back to where it begins, and that way, as a cycle."""
    best: list[CycleEdge] | None = None
    fewest = 1 << 60
    for first in starts:
        way = _shortest(first.dst, first.src, lambda node: after.get(node, ()), VISITS)
        if way is not None and (cost := sum(NECESSARY if s.kind == "co" else 1 for s in _joined(way))) < fewest:
            best, fewest = [first, *_joined(way)], cost
            if cost == 1:
                break
    return None if best is None else _finding(pattern, tuple(_with_past(graph, step) for step in best))


def _with_past(graph: Graph, edge: CycleEdge) -> CycleEdge:
    """With the way that puts `src` into the reader's past, if it must commit before `dst`."""
    return edge if edge.reader is None else replace(edge, past=_past(graph, edge.src, edge.reader))


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


def _past(graph: Graph, src: int, reader: int) -> tuple[CycleEdge, ...]:
    """The shortest way from src to reader by session order and reads."""
    for w, key, value in graph.sources(reader):
        if w == src:
            return (CycleEdge(src, reader, "wr", key, value),)

    def backwards(node: int) -> Iterator[CycleEdge]:
        if graph.session[src] == graph.session[node]:
            yield CycleEdge(src, node, "so")
            return
        before = graph.previous(node)
        if before is not None and graph.in_past(src, before):
            yield CycleEdge(before, node, "so")
        for w, key, value in graph.sources(node):
            if w == src or graph.in_past(src, w):
                yield CycleEdge(w, node, "wr", key, value)

    way = _shortest(reader, src, backwards, VISITED, back=True)
    if way is None:  # one that need not be the shortest: each step back keeps src in the past, so it ends there
        way, node = [], reader
        while node != src:
            way.append(min(backwards(node), key=lambda step: (step.src != src, step.kind == "so")))
            node = way[-1].src
    return tuple(_joined(way[::-1]))


def _shortest(
    start: int, goal: int, steps: Callable[[int], Iterable[CycleEdge]], limit: int, back: bool = False
) -> list[CycleEdge] | None:
    """The cheapest way from start to goal, or `back` from there; a run of session order costs as one step. None: there
    is none, or the search took too long."""
    best: dict[tuple[int, bool], int] = {(start, False): 0}
    came: dict[tuple[int, bool], tuple[tuple[int, bool], CycleEdge]] = {}
    heap: list[tuple[int, int, bool]] = [(0, start, False)]
    visits = 0
    while heap:
        cost, node, ran = heappop(heap)
        if node == goal and cost:
            way, state = [], (node, ran)
            while state in came:
                state, step = came[state]
                way.append(step)
            return way[::-1]
        if cost > best[node, ran]:
            continue
        visits += 1
        if visits > limit:
            return None
        for step in steps(node):
            other, run = step.src if back else step.dst, step.kind == "so"
            price = cost + (0 if run and ran else NECESSARY if step.kind == "co" else 1)
            if price < best.get((other, run), 1 << 60):
                best[other, run] = price
                came[other, run] = ((node, ran), step)
                heappush(heap, (price, other, run))
    return None


def _joined(way: list[CycleEdge]) -> list[CycleEdge]:
    """A run of session order as one step."""
    out: list[CycleEdge] = []
    for step in way:
        if out and step.kind == out[-1].kind == "so":
            out[-1] = replace(out[-1], dst=step.dst)
        else:
            out.append(step)
    return out
