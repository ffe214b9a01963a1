"""Judges which of its claims a system broke, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from whence.conform.history import History

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
    found = _few([*_ids(history), *_integrity(history)])
    if "causal" in claims:
        found += _few(_inverted(history, "causal"))
    elif "fifo" in claims:
        found += _few(_inverted(history, "fifo"))
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


def _integrity(history: History) -> Iterator[Finding]:
    for node in history.lives:
        seen: dict[str, int] = {}
        for step in history.view(node):
            if step.kind != "deliver":
                continue
            event = history.events.get(step.value)
            if event is None:
                yield Finding("integrity", node, f"{node} delivered {step.value!r}, which nobody has published")
            elif event.id is not None and event.id != step.id:
                yield Finding(
                    "integrity",
                    node,
                    f"{node} delivered {step.value} as id {step.id}, but {event.node} published it as id {event.id}",
                )
            seen[step.value] = seen.get(step.value, 0) + 1
        for value, times in seen.items():
            if times > 1:
                lives = len(history.lives[node])
                over = f" in its {lives} lives, going on from its own state" if lives > 1 else ""
                yield Finding("integrity", node, f"{node} delivered {value} {times} times{over}")


def _inverted(history: History, rule: str) -> Iterator[Finding]:
    """Effects delivered before their causes; `fifo` considers only causes from the same node."""
    for node in history.lives:
        had: list[str] = []
        for step in history.view(node):
            if step.kind != "deliver" or step.value not in history.events or step.value in had:
                continue
            cause = history.events[step.value]
            for value in had:
                effect = history.events[value]
                if cause.value in effect.past and (rule == "causal" or effect.node == cause.node):
                    chain = explain(history, cause.value, value)
                    yield Finding(
                        rule,
                        node,
                        f"{node} delivered {value} before {cause.value}, though {cause.value} happened before {value}: "
                        f"{chain}",
                    )
                    break
            had.append(step.value)


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
