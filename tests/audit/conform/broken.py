"""Systems that are wrong on purpose, one usual mistake each: `python broken.py MISTAKE` is a node.

All are the example (examples/conform_vector.py) with one thing undone; all claim what the example claims.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))

from conform_vector import Node

Event = dict[str, Any]


class NoMerge(Node):
    """What it has delivered from others is not in the clock of what it publishes (the mistake of a well-known
    library: its only causality test has two processes, which cannot show it)."""

    def publish(self, body: Event) -> Event:
        event = {"node": self.me, "n": self.clock.get(self.me, 0) + 1, "needs": {}, "value": body["value"]}
        self.deliver(event)
        for peer in self.peers:
            self.send(peer, type="event", event=event)
        return {"type": "publish_ok", "id": f"{self.me}-{event['n']}"}


class NoOrder(Node):
    """Delivers at first sight."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[tuple[str, int]] = set()

    def event(self, event: Event) -> None:
        key = (event["node"], event["n"])
        if key not in self.seen and event["n"] not in [e["n"] for e in self.log.get(event["node"], [])]:
            self.seen.add(key)
            self.deliver(event)


class Early(Node):
    """Does not wait for what is missing longer than 0.3 s, and delivers that when it comes."""

    def __init__(self) -> None:
        super().__init__()
        self.since: dict[tuple[str, int], float] = {}

    def event(self, event: Event) -> None:
        self.since.setdefault((event["node"], event["n"]), time.monotonic())
        super().event(event)

    def ready(self, event: Event) -> bool:
        late = time.monotonic() - self.since[event["node"], event["n"]] > 0.3
        return super().ready(event) or late

    def tick(self) -> None:
        self.drain()
        super().tick()


class ReuseId(Node):
    """Knows after a restart what it had delivered, but numbers what it publishes from 1 again."""

    def __init__(self) -> None:
        super().__init__()
        self.published = 0

    def publish(self, body: Event) -> Event:
        self.published += 1
        self.clock[self.me] = self.published - 1
        return super().publish(body)


class Amnesia(Node):
    """Forgets after a restart what it had delivered; the others tell it all of it again. Its own numbers it knows."""

    def remember(self, event: Event) -> None:
        if self.disk is not None:
            super().remember(event)


class NoDedupe(Node):
    """Delivers every copy of what is ready."""

    def event(self, event: Event) -> None:
        if event["n"] <= self.clock.get(event["node"], 0):
            self.send("c1", type="delivered", id=f"{event['node']}-{event['n']}", value=event["value"])
        super().event(event)


class NoRepair(Node):
    """Nobody says what it has: what is lost is noticed only by what follows, and then nobody is asked."""

    def tick(self) -> None:
        for peer in self.peers:
            if not self.clock:  # a joiner and a restarted node ask once
                self.send(peer, type="have", clock={})


class StuckJoiner(Node):
    """A joiner is told only what is published from now on, and waits for the rest for ever."""

    def init(self, body: Event) -> Event:
        self.founders = dict.fromkeys(body["node_ids"])
        return super().init(body)

    def have(self, peer: str, clock: dict[str, int]) -> None:
        if peer in self.founders or clock:
            super().have(peer, clock)


class EmptyJoiner(StuckJoiner):
    """A joiner takes what the first event it sees needs as delivered: it begins in the middle, without the state."""

    def init(self, body: Event) -> Event:
        self.begins = bool(body["join"])
        return super().init(body)

    def event(self, event: Event) -> None:
        if self.begins and not self.clock:
            self.skip({**event["needs"], event["node"]: event["n"] - 1})
        super().event(event)

    def skip(self, clock: dict[str, int]) -> None:
        for node, n in clock.items():
            had = self.log.setdefault(node, [])
            had.extend({"node": node, "n": 0} for _ in range(n - len(had)))
            self.clock[node] = max(n, self.clock.get(node, 0))


class ForgetfulMerge(EmptyJoiner):
    """After a silence the clocks are merged and the events are not."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: dict[str, float] = {}

    def init(self, body: Event) -> Event:
        self.heard = dict.fromkeys(body["node_ids"], time.monotonic())
        return super().init(body)

    def have(self, peer: str, clock: dict[str, int]) -> None:
        silent = time.monotonic() - self.heard.get(peer, time.monotonic()) > 0.7
        self.heard[peer] = time.monotonic()
        if silent:
            self.send(peer, type="have", clock=self.clock)
            self.skip(clock)
        Node.have(self, peer, clock)

    def event(self, event: Event) -> None:
        Node.event(self, event)


MISTAKES = {
    "no-merge": NoMerge,
    "no-order": NoOrder,
    "early": Early,
    "reuse-id": ReuseId,
    "amnesia": Amnesia,
    "no-dedupe": NoDedupe,
    "no-repair": NoRepair,
    "empty-joiner": EmptyJoiner,
    "stuck-joiner": StuckJoiner,
    "forgetful-merge": ForgetfulMerge,
}

FOUND_BY = {
    "no-merge": ("triangle", "causal: n3 delivered answer before question"),
    "no-order": ("triangle", "causal: n3 delivered answer before question"),
    "early": ("triangle", "causal: n3 delivered answer before question"),
    "reuse-id": ("crash-replay", "integrity: n1 published after-1 in its life 2 under id n1-1, which n1 had used"),
    "amnesia": ("crash-replay", "integrity: n1 delivered before-1 2 times in its 2 lives"),
    "no-dedupe": ("duplicate", "integrity: n1 delivered twice-2 "),
    "no-repair": ("tail-loss", "reliable: n2 did not deliver last"),
    "empty-joiner": (
        "late-join",
        "reliable: n3 did not deliver ready-n1, which n1 had published, in time, and delivered",
    ),
    "stuck-joiner": ("late-join", "reliable: n3 did not deliver ready-n1"),
    "forgetful-merge": ("partition-heal", "reliable: n3 did not deliver larger-1"),
}
"""Mistake -> the scenario that finds it, and what it says."""

if __name__ == "__main__":
    sys.exit(MISTAKES[sys.argv[1]]().run())
