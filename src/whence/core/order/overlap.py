"""Groups that share members: causal order across them, with one clock entry for each (Mostefaoui and Raynal 93; SURVEY
3.3). Pure.

Each group is a cluster, which orders its own events. A cluster with one ticket orders them in one row, so that one
number says how far somebody has come in it: the entry of the group. With more tickets there is one entry for each.

1. An event says what its publisher had delivered and published in all **other** groups that it knows of, its own and
   those of others whose events it has delivered (`needs`). What it follows in its own group its stamp says.
2. An event is delivered when all that it needs is, as far as this process is in those groups; events of one ticket in
   their order.
3. What is needed and does not come is given up after `patience`: some orders skip events.

The paper's resynchronisation messages have no counterpart: an owner of the one ticket has caught up with its group.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from whence.core.clock import Entry

Past = tuple[Entry, ...]
"""How far somebody has come in a group: by ticket, an incarnation and the number of its last event."""

MAX_GROUPS = 64
"""Groups that are remembered, this process's own among them; of more, the oldest of the others are forgotten."""


class Waiting(msgspec.Struct, frozen=True, gc=False):
    """An event of a group, and what it needs of the others."""

    group: str
    ticket: int
    stamp: Past
    needs: Mapping[str, Past]
    what: Any
    over_gap: bool = False
    """Its group has skipped something before it."""
    until: int = 0
    """When it is delivered over the gap."""


def merged(a: Sequence[Entry], b: Sequence[Entry]) -> Past:
    """Entry by entry, the later one."""
    longer, shorter = (a, b) if len(a) >= len(b) else (b, a)
    return (*map(max, longer, shorter), *longer[len(shorter) :])


def reached(need: Sequence[Entry], have: Sequence[Entry], ticket: int = -1) -> bool:
    """Everything needed is there; one ticket does not count."""
    return all(entry <= (have[t] if t < len(have) else (0, 0)) for t, entry in enumerate(need) if t != ticket)


class Overlap:
    """One process in several groups."""

    def __init__(self, groups: Mapping[str, Past], patience: int) -> None:
        """`groups`: those that it is in, and how far it has come in each."""
        self.here = dict(groups)
        self.said: dict[str, Past] = {}
        """Published here and perhaps not delivered yet."""
        self.beyond: dict[str, Past] = {}
        """Of groups that this process is not in."""
        self.patience = patience
        self.forced = 0
        """Events delivered although something that they need is missing."""
        self._queues: dict[tuple[str, int], deque[Waiting]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def needs(self, group: str) -> dict[str, Past]:
        """What an event that is published in this group now has to say."""
        known = {**self.beyond, **{g: merged(past, self.said.get(g, ())) for g, past in self.here.items()}}
        return {g: past for g, past in known.items() if g != group and any(entry > (0, 0) for entry in past)}

    def published(self, group: str, ticket: int, entry: Entry) -> None:
        """This process has published an event."""
        self.said[group] = merged(self.said.get(group, ()), (*[(0, 0)] * ticket, entry))

    def receive(self, event: Waiting, now: int) -> list[Waiting]:
        """The next event of a group, in the order of its cluster: what can be delivered now, in order."""
        queue = self._queues.setdefault((event.group, event.ticket), deque())
        queue.append(msgspec.structs.replace(event, until=now + self.patience))
        return self._drain()

    @property
    def wake_at(self) -> int | None:
        """When `wake` is due."""
        return min((queue[0].until for queue in self._queues.values()), default=None)

    def wake(self, now: int) -> list[Waiting]:
        """Give up what has been missing for too long."""
        out: list[Waiting] = []
        while (at := self.wake_at) is not None and at <= now:
            key, queue = min(self._queues.items(), key=lambda item: item[1][0].until)
            self.forced += 1
            out += [self._deliver(key, queue), *self._drain()]
        return out

    def _drain(self) -> list[Waiting]:
        out: list[Waiting] = []
        moved = True
        while moved:
            moved = False
            for key, queue in list(self._queues.items()):
                while queue and self._free(queue[0]):
                    out.append(self._deliver(key, queue))
                    moved = True
        return out

    def _free(self, event: Waiting) -> bool:
        """Rule 2."""
        if not event.over_gap and not reached(event.stamp, self.here[event.group], event.ticket):
            return False
        return all(reached(past, self.here[g]) for g, past in event.needs.items() if g in self.here)

    def _deliver(self, key: tuple[str, int], queue: deque[Waiting]) -> Waiting:
        event = queue.popleft()
        if not queue:
            del self._queues[key]
        for group, past in (*event.needs.items(), (event.group, event.stamp)):
            known = self.here if group in self.here else self.beyond
            known[group] = merged(known.pop(group, ()), past)
        while len(self.here) + len(self.beyond) > MAX_GROUPS and self.beyond:
            del self.beyond[next(iter(self.beyond))]
        return event
