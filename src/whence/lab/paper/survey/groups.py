"""Subgroups that are joined by servers, and groups that share members (SURVEY 3.3 and 3.4): what they need, and do not.

Zones are in causal order by themselves: each is one row of events, which its members read at any speed. Servers are the
bridge's own (`Gateway`), with links that are FIFO or not; groups that share members have the live ones' rules
(`Overlap`). Every event's true past is kept as a set of names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from whence.core.clock import EventId
from whence.core.order.overlap import Overlap, Waiting
from whence.lab.paper.frame import Row, RunOptions, Statistics, Study
from whence.lab.stats import exact, share
from whence.live.bridge.envelope import Reader, everywhere
from whence.live.bridge.gateway import Forward, Gateway

STEPS = 150
SHAPES = {"tree": ("AB", "BC", "CD"), "circle": ("AB", "BC", "CA"), "not-fifo": ("AB", "BC", "CD")}
BITS = 32
"""Of a count, and of a process's number as many as it needs (SURVEY 3.3: b and m)."""


class Zone:
    """A subgroup: its events in one row."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.row: list[tuple[EventId, bytes]] = []
        self.counts: dict[str, int] = {}

    def publish(self, owner: str, payload: bytes) -> str:
        self.counts[owner] = self.counts.get(owner, 0) + 1
        event = EventId(0, 1, self.counts[owner], owner)
        self.row.append((event, payload))
        return str(event)

    def read(self, upto: int | None = None) -> list[str]:
        """The names of its first events, as an application reads them."""
        reader = Reader(self.name)
        said = (reader.read(str(event), payload) for event, payload in self.row[:upto])
        return [one.id for one in said if one is not None]


def zones(shape: str, seed: int) -> Row:
    """One run of subgroups: events that are read twice, those read before their cause, and messages on the links."""
    dice = Random(f"{shape}/{seed}")
    links = SHAPES[shape]
    some = {name: Zone(name) for name in sorted({*"".join(links)})}
    servers = [Gateway(link, f"{n}") for n, link in enumerate(links)]
    for n, server in enumerate(servers):
        for name in server.clusters:
            server.is_member(name, f"server{n}#1")
    cursors = {(n, name): 0 for n, link in enumerate(links) for name in link}
    past: dict[str, set[str]] = {}
    carried = 0

    def carry(n: int, name: str, most: int) -> None:
        nonlocal carried
        zone, at = some[name], cursors[n, name]
        cursors[n, name] = min(len(zone.row), at + most)
        out = [o for event, payload in zone.row[at : at + most] for o in servers[n].read(name, event, payload)]
        forwards = [o for o in out if isinstance(o, Forward)]
        if shape == "not-fifo":
            dice.shuffle(forwards)
        for forward in forwards:
            some[forward.to].publish(f"server{n}#1", forward.payload)
        carried += len(forwards)

    for _ in range(STEPS):
        if dice.random() < 0.3:
            zone = dice.choice(list(some.values()))
            before = set(zone.read(dice.randint(0, len(zone.row))))
            name = zone.publish(f"{zone.name}{len(past)}#1", everywhere(b""))
            past[name] = before.union(*(past[one] for one in before))
        else:
            carry(*dice.choice(list(cursors)), dice.randint(1, 4))
    for _ in some:
        for n, name in cursors:
            carry(n, name, len(some[name].row))
    found: dict[str, float] = {"twice": 0, "early": 0, "events": len(past), "carried": carried}
    for zone in some.values():
        read = zone.read()
        found["twice"] += len(read) - len(set(read))
        found["early"] += _inverted(list(dict.fromkeys(read)), past)
    return {"part": shape, "seed": seed, "links": len(links), **found}


def _inverted(read: Sequence[str], past: dict[str, set[str]]) -> int:
    """Deliveries of which a cause came later."""
    at = {name: n for n, name in enumerate(read)}
    return sum(any(at.get(cause, -1) > n for cause in past[name]) for name, n in at.items())


def shared(heed: bool, seed: int) -> Row:
    """One run of groups in a circle, each process in two of them; `heed`: events say what they need of other groups."""
    dice = Random(f"shared/{seed}")
    count = 4
    member = [(f"{n}", f"{(n + 1) % count}") for n in range(count)]
    rows: dict[str, list[Waiting]] = {f"{g}": [] for g in range(count)}
    some = [Overlap(dict.fromkeys(pair, ((1, 0),)), 10**9) for pair in member]
    cursors = [dict.fromkeys(pair, 0) for pair in member]
    logs: list[list[str]] = [[] for _ in member]
    past: dict[str, set[str]] = {}
    entries = 0
    for n in range(2 * STEPS):
        who = dice.randrange(count)
        g, cursor, overlap = dice.choice(member[who]), cursors[who], some[who]
        row = rows[g]
        if dice.random() < 0.4 and cursor[g] == len(row) and not len(overlap):
            needs = overlap.needs(g) if heed else {}
            event = Waiting(g, 0, ((1, len(row) + 1),), needs, f"{n}")
            row.append(event)
            cursor[g] += 1
            overlap.published(g, 0, event.stamp[0])
            overlap.receive(event, 0)
            past[f"{n}"] = set(logs[who]).union(*(past[one] for one in logs[who]))
            logs[who].append(f"{n}")
            entries = max(entries, sum(map(len, (event.stamp, *needs.values()))))
        elif cursor[g] < len(row):
            cursor[g] += 1
            logs[who] += [e.what for e in overlap.receive(row[cursor[g] - 1], 0)]
    early = sum(_inverted(log, past) for log in logs)
    return {"part": "entries" if heed else "no-entries", "seed": seed, "early": early, "entries": entries / count}


def compaction() -> Iterator[tuple[int, int, bool, bool, bool]]:
    """Processes, entries that are sent; whether that is smaller than the whole vector; what the formula says with k as
    a share of the entries, and as a number of them."""
    for n in (2, 4, 8, 40, 200, 1000):
        name = max(1, (n - 1).bit_length())
        bound = n * BITS / (name + BITS)
        for k in range(1, n + 1):
            yield n, k, k * (name + BITS) < n * BITS, k / n < bound, k < bound


def measure(options: RunOptions) -> list[Row]:
    """Every shape with many seeds, and the formula."""
    seeds = [options.seed * 1000 + i for i in range(20 if options.quick else 200)]
    found: list[Row] = [zones(shape, seed) for shape in SHAPES for seed in seeds]
    found += [shared(heed, seed) for heed in (True, False) for seed in seeds]
    sizes = list(compaction())
    for part, at in (("share", 3), ("number", 4)):
        wrong = sum(size[2] != size[at] for size in sizes)
        found.append({"part": part, "wrong": wrong, "of": len(sizes)})
    return found


def statistics(rows: list[Row]) -> Statistics:
    """Counts over all runs; of what must go wrong, the share of runs in which it does."""
    parts: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        parts.setdefault(row["part"], []).append(row)
    runs = len(parts["tree"])
    found: Statistics = {
        "tree": [exact(f"{runs} runs", sum(row["twice"] + row["early"] for row in parts["tree"]))],
        "circle": [share(f"{runs} runs", sum(row["twice"] + row["early"] > 0 for row in parts["circle"]), runs)],
        "not-fifo": [share(f"{runs} runs", sum(row["early"] > 0 for row in parts["not-fifo"]), runs)],
        "one-message": [
            exact(f"{row['events']} events", row["carried"] / row["events"] / row["links"])
            for row in parts["tree"]
            if row["events"]
        ][:1],
        "shared": [exact(f"{runs} runs", sum(row["early"] for row in parts["entries"]))],
        "shared-entries": [exact(f"{runs} runs", max(row["entries"] for row in parts["entries"]))],
        "shared-without": [share(f"{runs} runs", sum(row["early"] > 0 for row in parts["no-entries"]), runs)],
    }
    for part in ("share", "number"):
        [row] = parts[part]
        found[f"pays-{part}"] = [exact(f"{row['of']} settings", row["wrong"])]
    return found


STUDY = Study(measure, statistics)
