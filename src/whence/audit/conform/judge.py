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
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from whence.audit.judge import Causality, Verdict, rule_broken
from whence.audit.judge.promises import DISORDER, FIFO, INTEGRITY
from whence.audit.judge.sequence import OneSequence
from whence.audit.judge.tickets import owner_of
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
    id: str | None = None
    """None: no reply yet."""


@dataclass(eq=False)
class NodeLife:
    """A node from one start to its end."""

    node: str
    number: int
    line: str
    """The member whose state it resumes; itself, if it starts empty or with the state of others."""
    alive: bool = True

    @property
    def member(self) -> str:
        """Its member id in a trace."""
        return f"{self.node}#{self.number}"


class NodeStep(NamedTuple):
    """One step of a node."""

    life: NodeLife
    kind: str
    """`join`, `publish`, `deliver`, `crash`, `fault`."""
    t_ns: int
    value: str = ""
    id: str = ""
    reason: str = ""


class NodeHistory:
    """The history of one scenario."""

    def __init__(self) -> None:
        self.events: dict[str, Publication] = {}
        self.lives: dict[str, list[NodeLife]] = {}
        self.steps: list[NodeStep] = []
        """Of all nodes, as the kit saw them."""

    def started(self, node: str, again: bool) -> None:
        """A node starts. `again`: it was killed before, and resumes unless it reports an initial state."""
        lives = self.lives.setdefault(node, [])
        number = len(lives) + 1
        lives.append(NodeLife(node, number, lives[-1].line if again else f"{node}#{number}"))
        self._step(node, "join")

    def ended(self, node: str) -> None:
        """The kit killed it."""
        self._step(node, "crash")
        self.lives[node][-1].alive = False

    def asked(self, node: str, value: str) -> Publication:
        """The kit asks a node to publish; the causes of the event are fixed now."""
        causes = dict.fromkeys(step.value for step in self.view(node) if step.value in self.events)
        event = self.events[value] = Publication(value, node, len(self.lives[node]), tuple(causes))
        self._step(node, "publish", value)
        return event

    def refused(self, event: Publication) -> None:
        """It will never be published: remove it."""
        del self.events[event.value]
        self.steps = [s for s in self.steps if (s.kind, s.value) != ("publish", event.value)]

    def delivered(self, node: str, said: Reported, reason: str = "") -> None:
        """A node reports a delivery."""
        self._step(node, "deliver", said.value, said.id, reason)

    def installed(self, node: str, state: list[Reported]) -> bool:
        """A node reports its initial state; False if it is too late for that."""
        life = self.lives[node][-1]
        if any(s.life is life and s.kind in ("deliver", "publish") for s in self.steps):
            return False
        life.line = life.member
        for said in state:
            self.delivered(node, said, "state")
        return True

    def fault(self, node: str, reason: str) -> None:
        """The kit interfered with messages for this node."""
        if self.lives.get(node):
            self._step(node, "fault", reason=reason)

    def view(self, node: str) -> Iterator[NodeStep]:
        """The steps of a node as its application knows them, with those of lives that it resumes."""
        line = self.lives[node][-1].line
        return (step for step in self.steps if step.life.line == line)

    def has(self, node: str, value: str) -> bool:
        """Whether the node has reported its delivery."""
        return any(s.kind == "deliver" and s.value == value for s in self.view(node))

    def alive(self) -> list[str]:
        """The live nodes."""
        return [node for node, lives in self.lives.items() if lives[-1].alive]

    def deliveries(self) -> dict[str, list[str]]:
        """Per life: the values, in the order of delivery."""
        found: dict[str, list[str]] = {life.member: [] for lives in self.lives.values() for life in lives}
        for step in self.steps:
            if step.kind == "deliver":
                found[step.life.member].append(step.value)
        return found

    def _step(self, node: str, kind: str, value: str = "", id: str = "", reason: str = "") -> None:
        self.steps.append(NodeStep(self.lives[node][-1], kind, time.time_ns(), value, id, reason))

    def rows(self, run: str, order: str) -> list[Row]:
        """The trace of the scenario. Event ids have whence's format (`ticket:incarnation:seq@member`, docs/trace.md),
        which every trace reader knows; the system's own id and the value are in `reason`."""
        names: dict[str | None, str] = {}  # the system's id -> ours; a reused id has one name
        published, done = Counter[str](), Counter[str]()
        for event in self.events.values():
            if event.id is not None and event.id not in names:
                member, ticket = f"{event.node}#{event.life}", list(self.lives).index(event.node)
                published[member] += 1
                names[event.id] = f"{ticket}:0.0.{event.life}:{published[member]}@{member}"
        rows: list[Row] = []
        for step in self.steps:
            life, id = step.life, step.id or None
            more: dict[str, Any] = {"reason": step.reason or None}
            if step.kind == "publish":
                if (id := self.events[step.value].id) is None:
                    continue
                more["reason"] = f"{step.value}, id {id}"
            elif step.kind == "join":
                more = {"reason": "genesis", "order": order}
                if life.line != life.member:
                    more |= {"reason": "checkpoint", "peer": f"{life.node}#{life.number - 1}"}
            if id is not None:
                more |= {"event": names.get(id, f"unknown {id}"), "origin": owner_of(names.get(id))}
            rows.append(Row(run, "conform", life.member, done[life.member], step.t_ns, step.kind, **more))
            done[life.member] += 1
        return rows


class BrokenClaim(NamedTuple):
    """A broken promise."""

    rule: str
    """`integrity`, `fifo`, `causal`, `disorder`, `reliable`."""
    node: str
    text: str


def judge(history: NodeHistory, claims: Sequence[str]) -> list[BrokenClaim]:
    """The violations, the worst first. Every system promises `integrity`: only published events are delivered, once,
    under one id. A claim of `causal` includes `fifo`."""
    order = next((claim for claim in ("causal", "fifo") if claim in claims), "unordered")
    delivered = _deliveries(history, order)
    wrong = [f for f in delivered if f.rule == INTEGRITY]
    found = _few([*_ids(history), *wrong]) + _few(f for f in delivered if f.rule != INTEGRITY)
    if "total" in claims:
        found += _few(_disorder(history))
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
    first: dict[str, Publication] = {}
    for event in history.events.values():
        other = event if event.id is None else first.setdefault(event.id, event)
        if other is not event:
            again = f" in its life {event.life}" if event.life > 1 else ""
            text = f"{event.node} published {event.value}{again} under id {event.id}, "
            yield BrokenClaim(INTEGRITY, event.node, f"{text}which {other.node} had used for {other.value}")


def _deliveries(history: NodeHistory, order: str) -> list[BrokenClaim]:
    """What the judge says of each delivery, in words of the kit."""
    found: list[BrokenClaim] = []
    causality = Causality()
    again: Counter[tuple[str, str, str]] = Counter()
    for life, kind, _, value, id, _ in history.steps:
        node, event = life.node, history.events.get(value)
        if kind == "publish":
            causality.published(life.line, value)
        if kind != "deliver":
            continue
        verdict = causality.delivered(life.line, value)
        rule = rule_broken(order, verdict)
        if event is None:
            found.append(BrokenClaim(INTEGRITY, node, f"{node} delivered {value!r}, which nobody has published"))
            continue
        if event.id is not None and event.id != id:
            text = f"{node} delivered {value} as id {id}, but {event.node} published it as id {event.id}"
            found.append(BrokenClaim(INTEGRITY, node, text))
        if verdict is Verdict.DUPLICATE:
            again[node, life.line, value] += 1
        elif rule is not None:
            effect = _effect(causality, life.line, value, rule)
            text = f"{node} delivered {effect} before {value}, though {value} happened before {effect}"
            found.append(BrokenClaim(rule, node, f"{text}: {explain(history, value, effect)}"))
    for (node, line, value), times in again.items():
        lives = sum(life.line == line for life in history.lives[node])
        over = f" in its {lives} lives, going on from its own state" if lives > 1 else ""
        found.append(BrokenClaim(INTEGRITY, node, f"{node} delivered {value} {times + 1} times{over}"))
    return found


def _disorder(history: NodeHistory) -> Iterator[BrokenClaim]:
    """Where a node's sequence differs from another one's for the first time."""
    sequence = OneSequence()
    for life, kind, _, value, _, _ in history.steps:
        split = sequence.delivered(life.line, value) if kind == "deliver" else None
        if split is not None:
            where = f"{'after' if split.after else 'before'} {split.beside if split.after else value}"
            mine = value if split.after else split.beside
            text = f"{life.node} delivered {mine} right {where}; {split.who} delivered {split.other} there"
            yield BrokenClaim(DISORDER, life.node, text)


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
        had = [s.value for s in history.view(node) if s.kind == "deliver" and s.value in history.events]
        for event in history.events.values():
            if event.id is None or event.value in had:
                continue
            after = next((v for v in had if _chain(history, event.value, v)), None)
            over = f", and delivered {after} without it ({explain(history, event.value, after)})" if after else ""
            text = f"{node} did not deliver {event.value}, which {event.node} had published, in time{over}"
            yield BrokenClaim("reliable", node, text)


def explain(history: NodeHistory, cause: str, effect: str) -> str:
    """The shortest causal chain: `n1 published q; n2 delivered q, then published a`."""
    said = [f"{history.events[cause].node} published {cause}"]
    for before, after in pairwise(_chain(history, cause, effect)):
        node = history.events[after].node
        if node == history.events[before].node:
            said[-1] += f", then {after}"
        else:
            said.append(f"{node} delivered {before}, then published {after}")
    return "; ".join(said)


def _chain(history: NodeHistory, cause: str, effect: str) -> list[str]:
    """The events of the shortest causal chain; empty if `cause` did not happen before `effect`."""
    follows: dict[str, str | None] = {effect: None}
    for value in (queue := [effect]):  # grows: breadth first
        for earlier in history.events[value].causes:
            if earlier not in follows:
                follows[earlier] = value
                queue.append(earlier)
    chain, at = [], cause if cause in follows else None
    while at is not None:
        chain.append(at)
        at = follows[at]
    return chain
