"""Sorts the rows of many members into a causal order, whatever their clocks say."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from whence.audit.trace.schema import Row
from whence.errors import TraceError

Cause = tuple[str, str]
"""What a step waits for: ("event", id), ("token", token), ("life", member)."""


def by_member(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """The steps of each member of one run of one cluster, by `lseq`. Raises TraceError for a missing or repeated step,
    since no verdict is possible then."""
    steps: dict[str, list[Row]] = {}
    where: tuple[str, str] | None = None
    for row in rows:
        where = where or (row.run, row.cluster)
        if (row.run, row.cluster) != where:
            raise TraceError(f"rows of two runs or clusters: {where} and {(row.run, row.cluster)}; take one at a time")
        steps.setdefault(row.member, []).append(row)
    for member, mine in steps.items():
        mine.sort(key=lambda row: row.lseq)
        for expected, row in enumerate(mine):
            if row.lseq != expected:
                what = "is there twice" if row.lseq < expected else f"is missing (the next is {row.lseq})"
                raise TraceError(f"run {row.run}, member {member}: step {min(expected, row.lseq)} {what}")
    return steps


def in_causal_order(rows: Iterable[Row]) -> Iterator[Row]:
    """Each member's steps by `lseq`; a receipt or delivery after the publish of its event; a join after its snapshot or
    after the previous life it resumes. Otherwise by time.

    A cause that has no row is not waited for. Neither is a cyclic dependency, which only a false trace has: the effect
    then comes without its cause, as in the trace.
    """
    steps = by_member(rows)
    given: dict[Cause | None, Row] = {}
    for mine in steps.values():
        given |= {cause: row for row in reversed(mine) if (cause := gives(row))}
        given["life", mine[0].member] = mine[-1]
    after: dict[tuple[str, int], list[Row]] = {}
    waits: dict[tuple[str, int], int] = {}
    for mine in steps.values():
        for before, row in zip([None, *mine], mine, strict=False):
            causes = [one for one in (before, given.get(needs(row))) if one is not None]
            waits[row.member, row.lseq] = len(causes)
            for one in causes:
                after.setdefault((one.member, one.lseq), []).append(row)
    ready = [(mine[0].t_ns, name, 0) for name, mine in steps.items() if not waits[name, 0]]
    heapq.heapify(ready)
    at = dict.fromkeys(steps, 0)
    left = sum(map(len, steps.values()))
    while left:
        if not ready:  # a cycle: the earliest waits no longer
            heads = (mine[at[name]] for name, mine in steps.items() if at[name] < len(mine))
            ready.append(min((row.t_ns, row.member, row.lseq) for row in heads))
        _, member, lseq = heapq.heappop(ready)
        if lseq != at[member]:
            continue  # it was released before
        at[member] += 1
        left -= 1
        yield steps[member][lseq]
        for row in after.get((member, lseq), ()):
            waits[row.member, row.lseq] -= 1
            if not waits[row.member, row.lseq]:
                heapq.heappush(ready, (row.t_ns, row.member, row.lseq))


def gives(row: Row) -> Cause | None:
    """What other steps may depend on."""
    if row.kind == "publish" and row.event is not None:
        return "event", row.event
    return ("token", row.token) if row.kind == "snapshot" and row.token is not None else None


def needs(row: Row) -> Cause | None:
    """The step of another member that must come first, if any."""
    if row.kind in ("receive", "deliver") and row.event is not None:
        return "event", row.event
    if row.kind == "join" and row.token is not None:
        return "token", row.token
    if row.kind == "join" and row.reason == "checkpoint" and row.peer is not None and row.peer != row.member:
        return "life", row.peer
    return None
