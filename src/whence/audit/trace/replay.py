"""Sorts the rows of many members into a causal order, whatever their clocks say."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from whence.audit.trace.schema import Row
from whence.errors import TraceError

_NEEDS_EVENT = ("receive", "deliver")


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
    after the previous incarnation it resumes. Otherwise by time.

    A cause that has no row is not waited for. Neither is a cyclic dependency, which only a false trace has: the effect
    then comes without its cause, as in the trace.
    """
    steps = by_member(rows)
    ahead = {cause for mine in steps.values() for row in mine for cause in _causes_given(row)}
    ahead |= {("life", member) for member in steps}
    waiting: dict[tuple[str, str], list[str]] = {}
    at = dict.fromkeys(steps, 0)
    heap = [(mine[0].t_ns, member) for member, mine in steps.items()]
    heapq.heapify(heap)
    blocked: dict[str, tuple[str, str]] = {}

    def free(cause: tuple[str, str]) -> None:
        ahead.discard(cause)
        for member in waiting.pop(cause, ()):
            if blocked.get(member) == cause:
                del blocked[member]
                heapq.heappush(heap, (steps[member][at[member]].t_ns, member))

    while heap or blocked:
        if not heap:  # a cycle: release the earliest
            member = min(blocked, key=lambda m: (steps[m][at[m]].t_ns, m))
            free(blocked[member])
            continue
        _, member = heapq.heappop(heap)
        mine = steps[member]
        while at[member] < len(mine):
            row = mine[at[member]]
            cause = _cause_needed(row)
            if cause is not None and cause in ahead:
                blocked[member] = cause
                waiting.setdefault(cause, []).append(member)
                break
            if heap and (row.t_ns, member) > heap[0]:
                heapq.heappush(heap, (row.t_ns, member))
                break
            at[member] += 1
            yield row
            for given in _causes_given(row):
                free(given)
        else:
            free(("life", member))


def _causes_given(row: Row) -> list[tuple[str, str]]:
    """What other steps may depend on."""
    if row.kind == "publish" and row.event is not None:
        return [("event", row.event)]
    if row.kind == "snapshot" and row.token is not None:
        return [("token", row.token)]
    return []


def _cause_needed(row: Row) -> tuple[str, str] | None:
    """The step of another member that must come first, if any."""
    if row.kind in _NEEDS_EVENT and row.event is not None:
        return ("event", row.event)
    if row.kind == "join" and row.token is not None:
        return ("token", row.token)
    if row.kind == "join" and row.reason == "checkpoint" and row.peer is not None and row.peer != row.member:
        return ("life", row.peer)
    return None
