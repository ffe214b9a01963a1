"""The requests to the nodes and their replies, which is all that is judged.

**Happened-before**, as an application sees it: an event's past is what its node had *reported* as delivered when the
kit asked it to publish, what it had published before, and the pasts of those. What a node delivers during a publish may
or may not be a cause; it is not counted.

An event is identified by its value, which the kit chooses and never reuses; its id is the system's.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import NamedTuple

from whence.audit.conform.messages import Said
from whence.audit.trace import Row


@dataclass(eq=False)
class Event:
    """An event that a node was asked to publish."""

    value: str
    node: str
    life: int
    causes: tuple[str, ...]
    """Values that its node had delivered or published, in that order."""
    past: dict[str, None]
    """All values that happened before it."""
    id: str | None = None
    """None: no reply yet."""
    refused: bool = False
    """The node refused to publish it."""


class Step(NamedTuple):
    """One step of a node."""

    kind: str
    """`join`, `publish`, `deliver`, `crash`, `fault`."""
    t_ns: int
    value: str = ""
    id: str = ""
    reason: str = ""


@dataclass
class Incarnation:
    """A node from one start to its end."""

    node: str
    number: int
    steps: list[Step] = field(default_factory=list)
    fresh: bool = True
    """It starts empty or with the state of others; otherwise it resumes its previous incarnation."""
    alive: bool = True

    @property
    def member(self) -> str:
        """Its member id in a trace."""
        return f"{self.node}#{self.number}"

    def delivered(self) -> list[Said]:
        """What it reported as delivered or as initial state, in order."""
        return [Said(s.id, s.value) for s in self.steps if s.kind == "deliver"]


class History:
    """The history of one scenario."""

    def __init__(self) -> None:
        self.events: dict[str, Event] = {}
        self.lives: dict[str, list[Incarnation]] = {}

    # -- recording

    def started(self, node: str, again: bool) -> None:
        """A node starts. `again`: it was killed before, and resumes unless it reports an initial state."""
        lives = self.lives.setdefault(node, [])
        lives.append(Incarnation(node, len(lives) + 1, fresh=not again))
        self._step(node, "join")

    def ended(self, node: str) -> None:
        """The kit killed it."""
        self._step(node, "crash")
        self.lives[node][-1].alive = False

    def asked(self, node: str, value: str) -> Event:
        """The kit asks a node to publish; this fixes the past of the event."""
        causes = [s.value for s in self.view(node) if s.kind in ("publish", "deliver") and s.value in self.events]
        past: dict[str, None] = {}
        for cause in causes:
            past |= self.events[cause].past
            past[cause] = None
        event = Event(value, node, len(self.lives[node]), tuple(dict.fromkeys(causes)), past)
        self.events[value] = event
        self._step(node, "publish", value)
        return event

    def accepted(self, event: Event, id: str) -> None:
        """The node published it, under this id."""
        event.id = id

    def refused(self, event: Event) -> None:
        """It will never be published: remove it."""
        event.refused = True
        del self.events[event.value]
        life = self.lives[event.node][event.life - 1]
        life.steps = [s for s in life.steps if (s.kind, s.value) != ("publish", event.value)]

    def delivered(self, node: str, said: Said, reason: str = "") -> None:
        """A node reports a delivery."""
        self._step(node, "deliver", said.value, said.id, reason)

    def installed(self, node: str, state: list[Said]) -> bool:
        """A node reports its initial state; False if it is too late for that."""
        life = self.lives[node][-1]
        if any(s.kind in ("deliver", "publish") for s in life.steps):
            return False
        life.fresh = True
        for said in state:
            self.delivered(node, said, "state")
        return True

    def fault(self, node: str, reason: str) -> None:
        """The kit interfered with messages for this node."""
        if self.lives.get(node):
            self._step(node, "fault", reason=reason)

    # -- reading

    def view(self, node: str) -> list[Step]:
        """The steps of a node as its application knows them, with those of incarnations that it resumes."""
        steps: list[Step] = []
        for life in reversed(self.lives[node]):
            steps = life.steps + steps
            if life.fresh:
                break
        return steps

    def has(self, node: str, value: str) -> bool:
        """Whether the node has reported its delivery."""
        return any(s.kind == "deliver" and s.value == value for s in self.view(node))

    def alive(self) -> list[str]:
        """The live nodes."""
        return [node for node, lives in self.lives.items() if lives[-1].alive]

    def deliveries(self) -> dict[str, list[str]]:
        """Per incarnation: the values, in the order of delivery."""
        return {life.member: [s.value for s in life.delivered()] for lives in self.lives.values() for life in lives}

    def _step(self, node: str, kind: str, value: str = "", id: str = "", reason: str = "") -> None:
        self.lives[node][-1].steps.append(Step(kind, time.time_ns(), value, id, reason))

    # -- as a trace

    def rows(self, run: str, order: str) -> list[Row]:
        """The trace of the scenario. Event ids have whence's format (`ticket:incarnation:seq@member`, docs/trace.md),
        which every trace reader knows; the system's own id and the value are in `reason`."""
        names: dict[str, str] = {}  # the system's id -> ours; a reused id has one name
        origins: dict[str, str] = {}
        for event in self.events.values():
            member = f"{event.node}#{event.life}"
            if event.id is not None and event.id not in names:
                seq = 1 + sum(1 for origin in origins.values() if origin == member)
                ticket = list(self.lives).index(event.node)
                names[event.id] = f"{ticket}:0.0.{event.life}:{seq}@{member}"
                origins[event.id] = member
        rows: list[Row] = []
        for lives in self.lives.values():
            for life in lives:
                steps = [s for s in life.steps if s.kind != "publish" or self.events[s.value].id is not None]
                for lseq, step in enumerate(steps):
                    id = self.events[step.value].id if step.kind == "publish" else step.id or None
                    reason: str | None = step.reason or None
                    if step.kind == "join":
                        reason = "genesis" if life.fresh else "checkpoint"
                    elif step.kind == "publish":
                        reason = f"{step.value}, id {id}"
                    rows.append(
                        Row(
                            run=run,
                            cluster="conform",
                            member=life.member,
                            lseq=lseq,
                            t_ns=step.t_ns,
                            kind=step.kind,
                            event=None if id is None else names.get(id, f"unknown {id}"),
                            origin=None if id is None else origins.get(id),
                            reason=reason,
                            order=order if step.kind == "join" else None,
                            peer=f"{life.node}#{life.number - 1}" if step.kind == "join" and not life.fresh else None,
                        )
                    )
        return rows
