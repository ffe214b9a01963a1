"""Counts the outputs of a run, and makes its report."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from whence.core import ports
from whence.core.clock import AnyFrame, StampedFrame
from whence.lab.stats import quantile

if TYPE_CHECKING:
    from whence.lab.sim.host import Instance
    from whence.lab.sim.stage import Stage

Key = tuple[int | str, int, int]
"""The key of a frame, with or without a ticket."""
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


class OrderCounts(msgspec.Struct, kw_only=True):
    """Counts for the members of one cluster with one order; in events unless the name says otherwise."""

    cluster: str
    order: str
    members: int = 0
    """Members at the end of the run."""
    published: int = 0
    delivered: int = 0
    lost: int = 0
    """Published, but not in a member's application state at the end; summed over members."""
    late: int = 0
    """Arrived after it had been given up."""
    over_gap: int = 0
    """Delivered after something before it was given up."""
    alerts4: int = 0
    """Probabilistic order: events delivered with an alert of PCO17 Algorithm 4 (Algorithm 5's among them)."""
    alerts5: int = 0
    missed: int = 0
    """Inversions without an alert of Algorithm 5: its list was too short."""
    error_rate: float = 0.0
    """Inversions per delivery of another member's event."""
    header_bytes: float = 0.0
    """Bytes of control information per published frame: the clock, without members' names."""
    name_bytes: float = 0.0
    """Mechanisms of the survey: bytes of members' names per published frame."""
    blocked: int = 0
    """Delivered later than it arrived."""
    blocked_ms: float = 0.0
    """Mean time between arrival and delivery, over all delivered events of others."""
    inversions: int = 0
    """Delivered after an event that depends on it, by the judge's own account."""
    duplicates: int = 0
    """Frames that arrived again and were suppressed."""
    dropped: int = 0
    """Frames dropped by a full buffer, or refused."""
    given_up: int = 0
    asked: int = 0
    """Recovery: ranges requested, with repetitions."""
    recovered: int = 0
    """Recovery: frames received."""
    latency_ms: dict[str, float] = {}
    """From publish to delivery at another member, in virtual ms."""


class RunReport(msgspec.Struct, kw_only=True):
    """The outcome of a run."""

    scenario: str
    seed: int
    virtual_s: float
    steps: int
    lines: list[OrderCounts]
    network: dict[str, int]
    tickets: dict[str, int]
    """How often tickets entered each state."""
    joined: dict[str, int]
    join_ms: float
    """Mean time from the start of a process to its snapshot, for those that joined by one."""
    traffic: dict[str, tuple[int, int]]
    """Kind of message -> number sent, and their bytes (0 without `wire` or `uplink`)."""
    not_published: dict[str, int]
    """Scheduled events that were not published: the process was down or had no ticket."""
    counters: dict[str, int]
    buffers: dict[str, tuple[int, int]]
    """Name -> (highest fill, bound)."""
    violation: str | None = None


@dataclass(slots=True)
class _Line:
    """What the members of one cluster with one order add up."""

    counts: OrderCounts
    latencies: array[int] = field(default_factory=lambda: array("q"))
    headers: list[int] = field(default_factory=list)
    """Bytes of each published frame."""
    named: int = 0
    """Bytes of members' names, in all of them."""
    others: int = 0
    """Delivered events of other members."""
    waited: int = 0
    """Time between arrival and delivery, over all of these."""

    def result(self) -> OrderCounts:
        counts, frames, others = self.counts, max(1, len(self.headers)), max(1, self.others)
        counts.latency_ms = _quantiles(self.latencies)
        counts.error_rate = counts.inversions / others
        counts.header_bytes = round(sum(self.headers) / frames, 1)
        counts.name_bytes = round(self.named / frames, 1)
        counts.blocked_ms = round(self.waited / others / 1e6, 3)
        return counts


class Tally:
    """Counts outputs as they are carried out."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.died = self.steps = self.payloads = self.nowhere = self.dead_letters = self.bad_bytes = self.left = 0
        self.hostile = self.unauthentic = self.cut_offs = self.refounded = self.lies = self.behind = 0
        self.acknowledged = self.acknowledged_and_died = self.too_few_copies = self.moves = self.contracts_broken = 0
        self.not_published: Counter[str] = Counter()
        self.tickets: Counter[str] = Counter()
        self.how_joined: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        self.high: dict[str, tuple[int, int]] = {}
        self._lines: dict[tuple[int, str], _Line] = {}
        self._arrived: dict[tuple[int, str], dict[Key, int]] = {}
        self._traffic: dict[str, list[int]] = {}
        self._started: dict[tuple[int, str], int] = {}
        self._joining: list[int] = []
        self._born: list[dict[Key, int]] = [{} for _ in stage.clusters]

    def _line(self, instance: Instance) -> _Line:
        """The line that a member counts in."""
        key = (instance.cluster, instance.order)
        if key not in self._lines:
            name = self.stage.clusters[instance.cluster].name
            self._lines[key] = _Line(OrderCounts(cluster=name, order=instance.order))
        return self._lines[key]

    def line(self, instance: Instance) -> OrderCounts:
        return self._line(instance).counts

    def published(self, instance: Instance, frame: AnyFrame) -> None:
        line = self._line(instance)
        line.counts.published += frame.count
        line.headers.append(frame.header)
        if isinstance(frame, StampedFrame):
            line.named += frame.named
        self._born[instance.cluster][frame.key] = self.stage.now

    def delivered(self, instance: Instance, out: ports.Deliver) -> None:
        line, frame = self._line(instance), out.frame
        counts = line.counts
        counts.delivered += frame.count
        counts.alerts4 += frame.count if out.alert else 0
        counts.alerts5 += frame.count if out.alert == 5 else 0
        if out.over_gap:
            counts.over_gap += frame.count
        came = self._arrived.get((instance.cluster, instance.id), {}).pop(frame.key, None)
        if came is not None and came < self.stage.now:
            counts.blocked += frame.count
            line.waited += (self.stage.now - came) * frame.count
        if frame.owner != instance.id:
            line.others += frame.count
            born = self._born[instance.cluster].get(frame.key)
            if born is not None:
                line.latencies.append(self.stage.now - born)

    def inverted(self, instance: Instance, out: ports.Deliver) -> None:
        """The judge says that something which depends on these events was delivered before them."""
        line = self.line(instance)
        line.inversions += out.frame.count
        line.missed += out.frame.count if out.alert != 5 else 0

    def arrived(self, instance: Instance, out: ports.Arrived) -> None:
        self._arrived.setdefault((instance.cluster, instance.id), {})[out.frame.key] = self.stage.now
        if out.recovered:
            self.line(instance).recovered += 1

    def dropped(self, instance: Instance, out: ports.Dropped) -> None:
        self._arrived.get((instance.cluster, instance.id), {}).pop(out.frame.key, None)
        if out.reason == "late":
            self.line(instance).late += out.frame.count
        else:
            self.line(instance).dropped += 1

    def asked(self, instance: Instance, out: ports.Asked) -> None:
        self.line(instance).asked += len(out.ranges)

    def gave_up(self, instance: Instance, out: ports.GaveUp) -> None:
        self.line(instance).given_up += sum(last - first + 1 for _, _, first, last in out.ranges)

    def moved(self, instance: Instance, out: ports.Moved) -> None:
        self.moves += 1

    def contracted(self, instance: Instance, out: ports.Contracted) -> None:
        self.contracts_broken += out.broken

    def ticket(self, instance: Instance, out: ports.Ticket) -> None:
        self.tickets[out.change] += 1

    def started(self, instance: Instance) -> None:
        """A member starts."""
        self._started[instance.cluster, instance.id] = self.stage.now

    def joined(self, instance: Instance, out: ports.Joined) -> None:
        self.how_joined[out.how] += 1
        if out.how == "snapshot":
            self._joining.append(self.stage.now - self._started[instance.cluster, instance.id])

    def sent(self, kind: str, size: int) -> None:
        """A message is sent."""
        count = self._traffic.get(kind)
        if count is None:
            count = self._traffic[kind] = [0, 0]
        count[0] += 1
        count[1] += size

    def refused(self, instance: Instance, out: ports.Refused) -> None:
        self.refusals[f"{out.what}: {out.reason}"] += 1

    def stopped(self, instance: Instance) -> None:
        """A member stops: keep its own counters."""
        self._arrived.pop((instance.cluster, instance.id), None)
        self.line(instance).duplicates += instance.member.stats().get("order.duplicate_frames", 0)

    def report(self, scenario: str, violation: str | None) -> RunReport:
        """Make the report. Call once, at the end."""
        stage = self.stage
        total = [0] * len(stage.clusters)
        for (cluster, _), each in self._lines.items():
            total[cluster] += each.counts.published
        for host in stage.hosts.values():
            for instance in host.instances.values():
                line = self.line(instance)
                line.members += 1
                line.duplicates += instance.member.stats().get("order.duplicate_frames", 0)
                if instance.joined:
                    line.lost += total[instance.cluster] - instance.app.count
        counted = [
            "dead_letters",
            "nowhere",
            "bad_bytes",
            "hostile",
            "unauthentic",
            "lies",
            "cut_offs",
            "behind",
            "left",
        ]
        counted += ["refounded", "died"]
        if self.acknowledged or self.too_few_copies:
            counted += ["acknowledged", "acknowledged_and_died", "too_few_copies"]
        if any(stage.free):
            counted += ["moves", "contracts_broken"]
        return RunReport(
            scenario=scenario,
            seed=stage.seed,
            virtual_s=stage.now / 1e9,
            steps=self.steps,
            lines=[self._lines[k].result() for k in sorted(self._lines)],
            network=stage.network.counts,
            tickets=dict(sorted(self.tickets.items())),
            joined=dict(sorted(self.how_joined.items())),
            join_ms=round(sum(self._joining) / max(1, len(self._joining)) / 1e6, 3),
            traffic={kind: (count, size) for kind, (count, size) in sorted(self._traffic.items())},
            not_published=dict(sorted(self.not_published.items())),
            counters={name: getattr(self, name) for name in counted},
            buffers=dict(sorted(self.high.items())),
            violation=violation,
        )


def _quantiles(values: array[int]) -> dict[str, float]:
    ordered = sorted(values)
    return {name: round(quantile(ordered, q) / 1e6, 3) for name, q in QUANTILES.items()} if ordered else {}
