"""The reference form: clocks, necessary edges and cycles over plain Python objects.

It is meant to be read beside the definitions, and to be right. `arrays.py` does the same on arrays; each checks the
other in the tests.

Level by level, for every external read of x by t3 from t1 and every other writer t2 of x (Biswas & Enea 2019):

    RC   t3 reads from t2 in an operation before it reads x from t1      then t2 commits before t1
    RA   t2 so t3, or t3 reads from t2                                   then t2 commits before t1
    TCC  t2 is in the causal past of t3                                  then t2 commits before t1

Nothing on the left speaks of the commit order, so the edges can be listed at once, and a level holds exactly if
`so u wr u edges` has no cycle. For TCC one t2 per session is enough, the last one in the past (AWDIT, PLDI 2025): those
before it precede it in session order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from whence.audit.history.levels import TRANSACTIONAL, Level
from whence.audit.history.model import INIT, Key, Value
from whence.audit.history.reads import Facts


class Necessary(NamedTuple):
    """`src` must commit before `dst`: both write `key`, and `reader` saw `src` but reads `key` from `dst`."""

    src: int
    dst: int
    level: Level
    """The weakest level that has the edge."""
    key: Key
    reader: int


class Causes(NamedTuple):
    """The causal order, as predecessors and as clocks."""

    before: list[list[tuple[int, Key, Value]]]
    """Of each transaction: whom it reads from, what."""
    clock: list[list[int]] | None
    """`clock[t][s]`: how many transactions of session s are in the past of t. None: there is a cycle."""
    order: list[int]
    """Topological; without those on and behind a cycle."""


def causes(facts: Facts) -> Causes:
    """Clocks in a topological order of `so u wr`, as close to the recorded order as that allows."""
    total = len(facts.txns)
    before: list[list[tuple[int, Key, Value]]] = [[] for _ in range(total)]
    for read in facts.reads:
        if read.writer != INIT:
            before[read.txn].append((read.writer, read.key, read.value))
    pairs = [(w, t) for t in range(total) for w in dict.fromkeys(w for w, _, _ in before[t])]
    order = topological(facts, pairs)
    if len(order) < total:
        return Causes(before, None, order)
    clock: list[list[int]] = [[]] * total
    sessions = len(facts.first) - 1
    for t in order:
        s = facts.session[t]
        mine = [0] * sessions
        if t > facts.first[s]:
            mine = list(clock[t - 1])
            mine[s] = t - facts.first[s]
        for w, _, _ in before[t]:
            other = facts.session[w]
            if mine[other] <= w - facts.first[other]:  # else the clock of w is covered already
                mine = list(map(max, mine, clock[w]))
                mine[other] = max(mine[other], w - facts.first[other] + 1)
        clock[t] = mine
    return Causes(before, clock, order)


def topological(facts: Facts, pairs: Iterable[tuple[int, int]], rank: list[int] | None = None) -> list[int]:
    """An order of all transactions that keeps session order and the pairs; shorter if there is a cycle.

    Among those that are ready the one with the lowest rank comes first (default: as recorded).
    """
    total = len(facts.txns)
    after: list[list[int]] = [[] for _ in range(total)]
    waits = [0 if t == facts.first[facts.session[t]] else 1 for t in range(total)]
    for one, other in pairs:
        after[one].append(other)
        waits[other] += 1
    key = rank or [txn.recorded for txn in facts.txns]
    ready = [(key[t], t) for t in range(total) if not waits[t]]
    heapify(ready)
    order: list[int] = []
    while ready:
        _, t = heappop(ready)
        order.append(t)
        nexts = after[t]
        if t + 1 < total and facts.session[t + 1] == facts.session[t]:
            nexts = [*nexts, t + 1]
        for other in nexts:
            waits[other] -= 1
            if not waits[other]:
                heappush(ready, (key[other], other))
    return order


def in_past(facts: Facts, found: Causes, one: int, other: int) -> bool:
    """Whether `one` is in the causal past of `other`."""
    if one == INIT or found.clock is None:
        return one == INIT
    s = facts.session[one]
    return found.clock[other][s] > one - facts.first[s]


def necessary(facts: Facts, found: Causes) -> list[Necessary]:
    """Every edge of RC and RA, and of TCC those that imply the rest. Each once, under the weakest level that has it."""
    wrote: dict[Key, set[int]] = {key: set(ts) for key, ts in facts.writers.items()}
    by_session = _writers_by_session(facts) if found.clock is not None else {}
    edges: dict[tuple[int, int], Necessary] = {}
    rank = {level: i for i, level in enumerate(TRANSACTIONAL)}

    def add(src: int, dst: int, level: Level, key: Key, reader: int) -> None:
        known = edges.get((src, dst))
        if known is None or rank[level] < rank[known.level]:
            edges[src, dst] = Necessary(src, dst, level, key, reader)

    at = 0
    reads = facts.reads
    while at < len(reads):
        end = at
        t3 = reads[at].txn
        first: dict[int, int] = {}
        last: dict[tuple[Key, int], int] = {}
        while end < len(reads) and reads[end].txn == t3:
            first.setdefault(reads[end].writer, reads[end].at)
            last[reads[end].key, reads[end].writer] = reads[end].at
            end += 1
        start = facts.first[facts.session[t3]]
        for (x, t1), position in last.items():
            writers = wrote.get(x, set())
            for t2, when in first.items():
                if t2 not in (INIT, t1, t3) and t2 in writers:
                    add(t2, t1, "RC" if when < position else "RA", x, t3)
            mine = facts.writers.get(x, [])
            own = bisect_left(mine, t3) - 1
            if own >= 0 and start <= mine[own] != t1:
                add(mine[own], t1, "RA", x, t3)
            if found.clock is not None:
                clock = found.clock[t3]
                for s, those in by_session.get(x, ()):
                    i = bisect_left(those, facts.first[s] + clock[s]) - 1
                    if i >= 0 and those[i] != t1:
                        add(those[i], t1, "TCC", x, t3)
        at = end
    return list(edges.values())


def _writers_by_session(facts: Facts) -> dict[Key, list[tuple[int, list[int]]]]:
    found: dict[Key, list[tuple[int, list[int]]]] = {}
    for key, writers in facts.writers.items():
        groups: dict[int, list[int]] = {}
        for t in writers:
            groups.setdefault(facts.session[t], []).append(t)
        found[key] = list(groups.items())
    return found


def components(total: int, after: list[list[int]]) -> list[int]:
    """The strongly connected component of every node (Tarjan, without recursion)."""
    index = [0] * total
    low = [0] * total
    component = [-1] * total
    stack: list[int] = []
    clock = count = 0
    for root in range(total):
        if index[root]:
            continue
        work = [(root, 0)]
        while work:
            node, at = work.pop()
            if at == 0:
                clock += 1
                index[node] = low[node] = clock
                stack.append(node)
            for i in range(at, len(after[node])):
                other = after[node][i]
                if not index[other]:
                    work += [(node, i + 1), (other, 0)]
                    break
                if component[other] < 0:
                    low[node] = min(low[node], low[other])
            else:
                if low[node] == index[node]:
                    while True:
                        other = stack.pop()
                        component[other] = count
                        if other == node:
                            break
                    count += 1
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
    return component
