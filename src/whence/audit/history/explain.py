"""From edges to findings: which of them lie on a cycle, their patterns, and the smallest cycle of each level."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from whence.audit.history.cycle import Hop, guarantee, shortest, smallest, turned
from whence.audit.history.graph import Necessary, components
from whence.audit.history.levels import Level
from whence.audit.history.model import INIT, Key, Value
from whence.audit.history.report import Edge, Finding, Step

FAMILY: dict[Level, tuple[str, str]] = {
    "RC": ("NonMonoReadCO", "NonMonoReadAO"),
    "RA": ("FracturedReadCO", "FracturedReadAO"),
    "TCC": ("COConflictAO", "ConflictAO"),
}
"""The pattern of an edge by its level: closed by causal order alone, or only with other necessary edges."""


VISITED = 4_000
"""Transactions that the search for a shortest way into the past looks at."""


class Causal(Protocol):
    """What an explanation asks of a history, whichever form it is in."""

    total: int

    def previous(self, t: int) -> int | None:
        """The transaction before it in its session."""

    def same_session(self, one: int, other: int) -> bool:
        """Whether both are of one session."""

    def sources(self, t: int) -> Iterable[tuple[int, Key, Value]]:
        """Whom it reads from, and what; not init."""

    def in_past(self, one: int, other: int) -> bool:
        """Whether `one` is known to be in the causal past of `other`."""


def past(history: Causal, src: int, reader: int) -> tuple[Step, ...]:
    """The shortest way from src to reader by session order and reads."""
    for w, key, value in history.sources(reader):
        if w == src:
            return (Step(src, reader, "wr", key, value),)

    def backwards(node: int) -> Iterable[Hop]:
        if history.same_session(src, node):
            yield src, "so", None, None
            return
        before = history.previous(node)
        if before is not None and history.in_past(src, before):
            yield before, "so", None, None
        for w, key, value in history.sources(node):
            if w == src or history.in_past(src, w):
                yield w, "wr", key, value

    way = shortest(reader, src, backwards, VISITED) or _some_way(reader, src, backwards)
    return tuple(turned(way))


def _some_way(reader: int, src: int, backwards: Callable[[int], Iterable[Hop]]) -> list[Step]:
    """A way that need not be the shortest: each step back keeps src in the past, so it ends there."""
    steps: list[Step] = []
    node = reader
    while node != src:
        hop = min(backwards(node), key=lambda hop: (hop[0] != src, hop[1] == "so"))
        if hop[1] == "so" and steps and steps[-1].kind == "so":
            steps[-1] = Step(steps[-1].src, hop[0], "so")
        else:
            steps.append(Step(node, *hop))
        node = hop[0]
    return steps


def explain_level(
    history: Causal,
    level: Level,
    edges: Sequence[Necessary],
    versions: Sequence[tuple[int, int, Key]],
    base: Sequence[tuple[int, int, Key, Value]],
    component: Sequence[int],
) -> tuple[Counter[str], list[Finding]]:
    """Count the edges of exactly this level that lie on a cycle, by pattern; the smallest cycle of each pattern.

    `edges`: of this level and the weaker ones. `base`: reads-from. `component`: of `so u wr u versions u edges`.
    """
    counted: Counter[str] = Counter()
    starts: dict[str, list[Necessary]] = {}
    close, far = FAMILY[level]
    for edge in edges:
        if edge.level != level:
            continue
        if edge.dst == INIT or (component[edge.src] == component[edge.dst]):
            pattern = close if edge.dst == INIT or history.in_past(edge.dst, edge.src) else far
            counted[pattern] += 1
            starts.setdefault(pattern, []).append(edge)
    findings = []
    for pattern, those in starts.items():
        found = _cycle(history, pattern, those, edges, versions, base, component)
        if found is not None:
            findings.append(found)
    return counted, findings


def _cycle(
    history: Causal,
    pattern: str,
    starts: list[Necessary],
    edges: Sequence[Necessary],
    versions: Sequence[tuple[int, int, Key]],
    base: Sequence[tuple[int, int, Key, Value]],
    component: Sequence[int],
) -> Finding | None:
    by_ends = {(edge.src, edge.dst): edge for edge in edges}
    initial = [edge for edge in starts if edge.dst == INIT]
    if initial:  # nothing commits before init
        initial.sort(key=lambda edge: (not history.same_session(edge.src, edge.reader), edge.level != "RA"))
        shown = min((_edge(history, edge) for edge in initial[:3]), key=lambda edge: len(edge.past))
        return _finding(pattern, (Edge(INIT, shown.src, "so"), shown))
    sizes = Counter(component)
    starts = sorted(starts, key=lambda edge: (sizes[component[edge.src]], edge.src, edge.dst))
    after: dict[int, list[Hop]] = {}
    inside = {component[edge.src] for edge in starts}
    for one, other, key, value in base:
        if component[one] == component[other] and component[one] in inside:
            after.setdefault(one, []).append((other, "wr", key, value))
    for one, other, key in versions:
        if component[one] == component[other] and component[one] in inside:
            after.setdefault(one, []).append((other, "vo", key, None))
    for edge in edges:
        if edge.dst != INIT and component[edge.src] == component[edge.dst] and component[edge.src] in inside:
            after.setdefault(edge.src, []).append((edge.dst, "co", edge.key, None))

    def hops(node: int) -> Iterable[Hop]:
        yield from after.get(node, ())
        follower = node + 1
        if follower < history.total and history.previous(follower) == node and component[follower] == component[node]:
            yield follower, "so", None, None

    found = smallest([(edge.src, edge.dst) for edge in starts], hops)
    if found is None:
        return None
    ends, way = found
    cycle = [_edge(history, by_ends[ends])]
    for step in way:
        if step.kind == "co":
            cycle.append(_edge(history, by_ends[step.src, step.dst]))
        else:
            cycle.append(Edge(step.src, step.dst, step.kind, step.key, step.value))
    return _finding(pattern, tuple(cycle))


def _edge(history: Causal, edge: Necessary) -> Edge:
    way = past(history, edge.src, edge.reader)
    return Edge(edge.src, edge.dst, "co", edge.key, None, edge.level, edge.reader, way)


def _finding(pattern: str, cycle: tuple[Edge, ...]) -> Finding:
    txns = dict.fromkeys(t for edge in cycle for t in (edge.src, edge.dst))
    readers = dict.fromkeys(edge.reader for edge in cycle if edge.reader is not None)
    keys = tuple(dict.fromkeys(edge.key for edge in cycle if edge.key is not None))
    told = " ".join(f"{edge.kind} {edge.src} -> {edge.dst}" for edge in cycle)
    main = next((edge for edge in cycle if edge.kind == "co"), None)
    words = guarantee(main) if main is not None and "CO" in pattern[-2:] + pattern[:2] else None
    return Finding(pattern, tuple(dict.fromkeys([*txns, *readers])), keys, told, cycle, words)


def causal_cycle(
    history: Causal,
    pattern: str,
    base: Sequence[tuple[int, int, Key, Value]],
    versions: Sequence[tuple[int, int, Key]],
) -> tuple[int, Finding | None, list[int]]:
    """How many components of `so u wr u versions` are cycles, the smallest cycle, and the component of each node."""
    after: list[list[int]] = [[] for _ in range(history.total)]
    hops_of: list[list[Hop]] = [[] for _ in range(history.total)]
    for one, other, key, value in base:
        after[one].append(other)
        hops_of[one].append((other, "wr", key, value))
    for one, other, key in versions:
        after[one].append(other)
        hops_of[one].append((other, "vo", key, None))
    for t in range(history.total):
        before = history.previous(t)
        if before is not None:
            after[before].append(t)
            hops_of[before].append((t, "so", None, None))
    component = components(history.total, after)
    sizes = Counter(component)
    cyclic = {c for c, size in sizes.items() if size > 1}
    if not cyclic:
        return 0, None, component
    nodes = sorted((t for t in range(history.total) if component[t] in cyclic), key=lambda t: (sizes[component[t]], t))
    starts = [(t, hop[0]) for t in nodes for hop in hops_of[t] if hop[1] != "so" and component[hop[0]] == component[t]]

    def hops(node: int) -> Iterable[Hop]:
        return (hop for hop in hops_of[node] if component[hop[0]] == component[node])

    found = smallest(starts, hops)
    if found is None:
        return len(cyclic), None, component
    (src, dst), way = found
    first = next(hop for hop in hops_of[src] if hop[0] == dst and hop[1] != "so")
    cycle = [Edge(src, dst, first[1], first[2], first[3])]
    cycle += [Edge(s.src, s.dst, s.kind, s.key, s.value) for s in way]
    return len(cyclic), _finding(pattern, tuple(cycle)), component
