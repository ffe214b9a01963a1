"""Judges which of its claims a system broke, and why.

What happened before what is the history's to say (`history.py`); what each order forbids, and the verdict on each
delivery, are the judge's (`whence.audit.judge`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from whence.audit.conform.history import History, Incarnation
from whence.audit.judge import Causality, Verdict, rule_broken
from whence.audit.judge.promises import FIFO, INTEGRITY

SHOWN = 5
"""Findings shown per rule; the rest is counted."""


class Finding(NamedTuple):
    """A broken promise."""

    rule: str
    """`integrity`, `fifo`, `causal`, `reliable`."""
    node: str
    text: str


def judge(history: History, claims: Sequence[str]) -> list[Finding]:
    """The violations, the worst first. Every system promises `integrity`: only published events are delivered, once,
    under one id. A claim of `causal` includes `fifo`."""
    order = next((claim for claim in ("causal", "fifo") if claim in claims), "unordered")
    delivered = _deliveries(history, order)
    wrong = [f for f in delivered if f.rule == INTEGRITY]
    found = _few([*_ids(history), *wrong]) + _few(f for f in delivered if f.rule != INTEGRITY)
    if "reliable" in claims:
        found += _few(_missing(history))
    return found


def _few(found: Iterable[Finding]) -> list[Finding]:
    """The first findings, and the number of further ones."""
    every = list(found)
    few, more = every[:SHOWN], every[SHOWN:]
    return [*few, Finding(more[0].rule, "", f"and {len(more)} more")] if more else few


def _ids(history: History) -> Iterator[Finding]:
    """Ids that are given to two events."""
    first: dict[str, str] = {}
    for event in history.events.values():
        if event.id is None:
            continue
        other = first.setdefault(event.id, event.value)
        if other != event.value:
            was = history.events[other]
            again = f" in its life {event.life}" if event.life > 1 else ""
            yield Finding(
                "integrity",
                event.node,
                f"{event.node} published {event.value}{again} under id {event.id}, "
                f"which {was.node} had used for {other}",
            )


def _lines(history: History) -> dict[str, list[Incarnation]]:
    """Name -> the incarnations of a node that are one line: the first is fresh, the others resume it."""
    lines: dict[str, list[Incarnation]] = {}
    for lives in history.lives.values():
        for life in lives:
            if life.fresh:
                line = lines[life.member] = []
            line.append(life)
    return lines


def _publishes(history: History, lines: dict[str, list[Incarnation]]) -> Causality:
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


def _deliveries(history: History, order: str) -> list[Finding]:
    """What the judge says of each delivery, in words of the kit."""
    lines, found = _lines(history), list[Finding]()
    causality = _publishes(history, lines)
    for name, line in lines.items():
        node = line[0].node
        again: Counter[str] = Counter()
        for id, value in ((said.id, said.value) for life in line for said in life.delivered()):
            verdict = causality.delivered(name, value)
            rule = rule_broken(order, verdict)
            event = history.events.get(value)
            if event is None:
                found.append(Finding(INTEGRITY, node, f"{node} delivered {value!r}, which nobody has published"))
                continue
            if event.id is not None and event.id != id:
                text = f"{node} delivered {value} as id {id}, but {event.node} published it as id {event.id}"
                found.append(Finding(INTEGRITY, node, text))
            if verdict is Verdict.DUPLICATE:
                again[value] += 1
            elif rule is not None:
                effect = _effect(causality, name, value, rule)
                text = f"{node} delivered {effect} before {value}, though {value} happened before {effect}"
                found.append(Finding(rule, node, f"{text}: {explain(history, value, effect)}"))
        over = f" in its {len(line)} lives, going on from its own state" if len(line) > 1 else ""
        for value, times in again.items():
            found.append(Finding(INTEGRITY, node, f"{node} delivered {value} {times + 1} times{over}"))
    return found


def _effect(causality: Causality, line: str, cause: str, rule: str) -> str:
    """What was delivered before `cause`, the delivery just judged; of `fifo`, an event of the same publisher."""
    effect, origin = causality.cause, causality.units[cause].origin
    if rule == FIFO:
        effect = origin, causality.lives[line].newest(origin)
    assert effect is not None
    return causality.event(effect).id


def _missing(history: History) -> Iterator[Finding]:
    """Accepted events that some node did not deliver."""
    for node in history.alive():
        for event in history.events.values():
            if event.id is None or history.has(node, event.value):
                continue
            after = next((v for v in _delivered(history, node) if event.value in history.events[v].past), None)
            over = f", and delivered {after} without it ({explain(history, event.value, after)})" if after else ""
            yield Finding(
                "reliable",
                node,
                f"{node} did not deliver {event.value}, which {event.node} had published, in time{over}",
            )


def _delivered(history: History, node: str) -> list[str]:
    return [s.value for s in history.view(node) if s.kind == "deliver" and s.value in history.events]


def explain(history: History, cause: str, effect: str) -> str:
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
