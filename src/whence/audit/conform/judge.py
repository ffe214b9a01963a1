"""What nodes reported, and which of the system's claims that breaks.

**Happened-before**, as an application sees it: an event's past is what its node had *reported* as delivered when the
kit asked it to publish, what it had published before, and the pasts of those. What a node delivers during a publish may
or may not be a cause; it is not counted. What each order forbids, and the verdict on each delivery, are the judge's
(`whence.audit.judge`).

An event is identified by its value, which the kit chooses and never reuses; its id is the system's.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from whence.audit.judge import Causality, Verdict, rule_broken
from whence.audit.judge.promises import FIFO, INTEGRITY
from whence.audit.trace import Row

SHOWN = 5
"""Findings shown per rule; the rest is counted."""


class Reported(NamedTuple):
    """An event as a node reports it."""

    id: str
    value: str


@dataclass(eq=False)
class Publication:
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


class NodeStep(NamedTuple):
    """One step of a node."""

    kind: str
    """`join`, `publish`, `deliver`, `crash`, `fault`."""
    t_ns: int
    value: str = ""
    id: str = ""
    reason: str = ""


@dataclass
class NodeLife:
    """A node from one start to its end."""

    node: str
    number: int
    steps: list[NodeStep] = field(default_factory=list)
    fresh: bool = True
    """It starts empty or with the state of others; otherwise it resumes its previous incarnation."""
    alive: bool = True

    @property
    def member(self) -> str:
        """Its member id in a trace."""
        return f"{self.node}#{self.number}"

    def delivered(self) -> list[Reported]:
        """What it reported as delivered or as initial state, in order."""
        return [Reported(s.id, s.value) for s in self.steps if s.kind == "deliver"]


class NodeHistory:
    """The history of one scenario."""

    def __init__(self) -> None:
        self.events: dict[str, Publication] = {}
        self.lives: dict[str, list[NodeLife]] = {}

    def started(self, node: str, again: bool) -> None:
        """A node starts. `again`: it was killed before, and resumes unless it reports an initial state."""
        lives = self.lives.setdefault(node, [])
        lives.append(NodeLife(node, len(lives) + 1, fresh=not again))
        self._step(node, "join")

    def ended(self, node: str) -> None:
        """The kit killed it."""
        self._step(node, "crash")
        self.lives[node][-1].alive = False

    def asked(self, node: str, value: str) -> Publication:
        """The kit asks a node to publish; this fixes the past of the event."""
        causes = [s.value for s in self.view(node) if s.kind in ("publish", "deliver") and s.value in self.events]
        past: dict[str, None] = {}
        for cause in causes:
            past |= self.events[cause].past
            past[cause] = None
        event = Publication(value, node, len(self.lives[node]), tuple(dict.fromkeys(causes)), past)
        self.events[value] = event
        self._step(node, "publish", value)
        return event

    def refused(self, event: Publication) -> None:
        """It will never be published: remove it."""
        del self.events[event.value]
        life = self.lives[event.node][event.life - 1]
        life.steps = [s for s in life.steps if (s.kind, s.value) != ("publish", event.value)]

    def delivered(self, node: str, said: Reported, reason: str = "") -> None:
        """A node reports a delivery."""
        self._step(node, "deliver", said.value, said.id, reason)

    def installed(self, node: str, state: list[Reported]) -> bool:
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

    def view(self, node: str) -> list[NodeStep]:
        """The steps of a node as its application knows them, with those of incarnations that it resumes."""
        steps: list[NodeStep] = []
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
        self.lives[node][-1].steps.append(NodeStep(kind, time.time_ns(), value, id, reason))

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
        for life in (life for lives in self.lives.values() for life in lives):
            steps = [s for s in life.steps if s.kind != "publish" or self.events[s.value].id is not None]
            for lseq, step in enumerate(steps):
                id = self.events[step.value].id if step.kind == "publish" else step.id or None
                more: dict[str, Any] = {"reason": step.reason or None}
                if id is not None:
                    more |= {"event": names.get(id, f"unknown {id}"), "origin": origins.get(id)}
                if step.kind == "join":
                    more = {"reason": "genesis", "order": order}
                    more |= {} if life.fresh else {"reason": "checkpoint", "peer": f"{life.node}#{life.number - 1}"}
                elif step.kind == "publish":
                    more["reason"] = f"{step.value}, id {id}"
                rows.append(Row(run, "conform", life.member, lseq, step.t_ns, step.kind, **more))
        return rows


class BrokenClaim(NamedTuple):
    """A broken promise."""

    rule: str
    """`integrity`, `fifo`, `causal`, `reliable`."""
    node: str
    text: str


def judge(history: NodeHistory, claims: Sequence[str]) -> list[BrokenClaim]:
    """The violations, the worst first. Every system promises `integrity`: only published events are delivered, once,
    under one id. A claim of `causal` includes `fifo`."""
    order = next((claim for claim in ("causal", "fifo") if claim in claims), "unordered")
    delivered = _deliveries(history, order)
    wrong = [f for f in delivered if f.rule == INTEGRITY]
    found = _few([*_ids(history), *wrong]) + _few(f for f in delivered if f.rule != INTEGRITY)
    if "reliable" in claims:
        found += _few(_missing(history))
    return found


def _few(found: Iterable[BrokenClaim]) -> list[BrokenClaim]:
    """The first findings, and the number of further ones."""
    every = list(found)
    few, more = every[:SHOWN], every[SHOWN:]
    return [*few, BrokenClaim(more[0].rule, "", f"and {len(more)} more")] if more else few


def _ids(history: NodeHistory) -> Iterator[BrokenClaim]:
    """Ids that are given to two events."""
    first: dict[str, str] = {}
    for event in history.events.values():
        if event.id is None:
            continue
        other = first.setdefault(event.id, event.value)
        if other != event.value:
            was = history.events[other]
            again = f" in its life {event.life}" if event.life > 1 else ""
            yield BrokenClaim(
                "integrity",
                event.node,
                f"{event.node} published {event.value}{again} under id {event.id}, "
                f"which {was.node} had used for {other}",
            )


def _lines(history: NodeHistory) -> dict[str, list[NodeLife]]:
    """Name -> the incarnations of a node that are one line: the first is fresh, the others resume it."""
    lines: dict[str, list[NodeLife]] = {}
    for lives in history.lives.values():
        for life in lives:
            if life.fresh:
                line = lines[life.member] = []
            line.append(life)
    return lines


def _publishes(history: NodeHistory, lines: dict[str, list[NodeLife]]) -> Causality:
    """A judge that knows every publish, each with the past that the history gives it."""
    causality = Causality()
    origins: dict[tuple[str, int], int] = {}
    for name, line in lines.items():
        number = causality.add_origin(name)
        origins |= {(life.node, life.number): number for life in line}
    for event in history.events.values():
        origin = origins[event.node, event.life]
        past: dict[int, int] = {}
        for value in event.past:
            if (unit := causality.units.get(value)) is not None and unit.origin != origin:
                past[unit.origin] = max(past.get(unit.origin, 0), unit.seq)
        causality.add_unit(origin, event.value, tuple(past.items()), 1)
    return causality


def _deliveries(history: NodeHistory, order: str) -> list[BrokenClaim]:
    """What the judge says of each delivery, in words of the kit."""
    lines, found = _lines(history), list[BrokenClaim]()
    causality = _publishes(history, lines)
    for name, line in lines.items():
        node = line[0].node
        again: Counter[str] = Counter()
        for id, value in ((said.id, said.value) for life in line for said in life.delivered()):
            verdict = causality.delivered(name, value)
            rule = rule_broken(order, verdict)
            event = history.events.get(value)
            if event is None:
                found.append(BrokenClaim(INTEGRITY, node, f"{node} delivered {value!r}, which nobody has published"))
                continue
            if event.id is not None and event.id != id:
                text = f"{node} delivered {value} as id {id}, but {event.node} published it as id {event.id}"
                found.append(BrokenClaim(INTEGRITY, node, text))
            if verdict is Verdict.DUPLICATE:
                again[value] += 1
            elif rule is not None:
                effect = _effect(causality, name, value, rule)
                text = f"{node} delivered {effect} before {value}, though {value} happened before {effect}"
                found.append(BrokenClaim(rule, node, f"{text}: {explain(history, value, effect)}"))
        over = f" in its {len(line)} lives, going on from its own state" if len(line) > 1 else ""
        for value, times in again.items():
            found.append(BrokenClaim(INTEGRITY, node, f"{node} delivered {value} {times + 1} times{over}"))
    return found


def _effect(causality: Causality, line: str, cause: str, rule: str) -> str:
    """What was delivered before `cause`, the delivery just judged; of `fifo`, an event of the same publisher."""
    effect, origin = causality.cause, causality.units[cause].origin
    if rule == FIFO:
        effect = origin, causality.lives[line].newest(origin)
    assert effect is not None
    return causality.event(effect).id


def _missing(history: NodeHistory) -> Iterator[BrokenClaim]:
    """Accepted events that some node did not deliver."""
    for node in history.alive():
        for event in history.events.values():
            if event.id is None or history.has(node, event.value):
                continue
            after = next((v for v in _delivered(history, node) if event.value in history.events[v].past), None)
            over = f", and delivered {after} without it ({explain(history, event.value, after)})" if after else ""
            yield BrokenClaim(
                "reliable",
                node,
                f"{node} did not deliver {event.value}, which {event.node} had published, in time{over}",
            )


def _delivered(history: NodeHistory, node: str) -> list[str]:
    return [s.value for s in history.view(node) if s.kind == "deliver" and s.value in history.events]


def explain(history: NodeHistory, cause: str, effect: str) -> str:
    """The shortest causal chain: `n1 published q; n2 delivered q, then published a`."""
    ways: list[list[str]] = [[effect]]
    reached = {effect: None}
    for way in ways:  # grows: breadth first
        if way[-1] == cause:
            way.reverse()
            break
        for value in history.events[way[-1]].causes:
            if value not in reached and (value == cause or cause in history.events[value].past):
                reached[value] = None
                ways.append([*way, value])
    else:
        return f"{cause} did not happen before {effect}"
    said = [f"{history.events[cause].node} published {cause}"]
    for before, after in pairwise(way):
        node = history.events[after].node
        if node == history.events[before].node:
            said[-1] += f", then {after}"
        else:
            said.append(f"{node} delivered {before}, then published {after}")
    return "; ".join(said)
