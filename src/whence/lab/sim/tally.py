"""Counts the outputs of a run, and makes its report."""

from __future__ import annotations

from array import array
from collections import Counter
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


class Tally:
    """Counts outputs as they are carried out."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.died = self.steps = self.payloads = self.nowhere = self.dead_letters = self.bad_bytes = self.left = 0
        self.hostile = self.unauthentic = self.cut_offs = self.refounded = self.lies = 0
        self.not_published: Counter[str] = Counter()
        self.tickets: Counter[str] = Counter()
        self.how_joined: Counter[str] = Counter()
        self.acknowledged = self.acknowledged_and_died = self.too_few_copies = 0
        self.refusals: Counter[str] = Counter()
        self.high: dict[str, tuple[int, int]] = {}
        self._lines: dict[tuple[int, str], OrderCounts] = {}
        self._latencies: dict[tuple[int, str], array[int]] = {}
        self._headers: dict[tuple[int, str], list[int]] = {}
        self._named: dict[tuple[int, str], int] = {}
        self._arrived: dict[tuple[int, str], dict[Key, int]] = {}
        self._waited: dict[tuple[int, str], int] = {}
        self._traffic: dict[str, list[int]] = {}
        self._started: dict[tuple[int, str], int] = {}
        self._joining: list[int] = []
        self._others: dict[tuple[int, str], int] = {}
        self.moves = self.contracts_broken = 0
        self._born: list[dict[Key, int]] = [{} for _ in stage.clusters]

    def line(self, instance: Instance) -> OrderCounts:
        """The line that a member counts in."""
        key = (instance.cluster, instance.order)
        found = self._lines.get(key)
        if found is None:
            found = OrderCounts(cluster=self.stage.clusters[instance.cluster].name, order=instance.order)
            self._lines[key] = found
            self._latencies[key] = array("q")
        return found

    def published(self, instance: Instance, frame: AnyFrame) -> None:
        line = self.line(instance)
        line.published += frame.count
        key = (instance.cluster, instance.order)
        self._headers.setdefault(key, []).append(frame.header)
        if isinstance(frame, StampedFrame):
            self._named[key] = self._named.get(key, 0) + frame.named
        self._born[instance.cluster][frame.key] = self.stage.now

    def delivered(self, instance: Instance, out: ports.Deliver) -> None:
        line, frame = self.line(instance), out.frame
        line.delivered += frame.count
        line.alerts4 += frame.count if out.alert else 0
        line.alerts5 += frame.count if out.alert == 5 else 0
        if out.over_gap:
            line.over_gap += frame.count
        self._delivered_after(instance, frame, line)
        if frame.owner != instance.id:
            self._others[instance.cluster, instance.order] = (
                self._others.get((instance.cluster, instance.order), 0) + frame.count
            )
            born = self._born[instance.cluster].get(frame.key)
            if born is not None:
                self._latencies[instance.cluster, instance.order].append(self.stage.now - born)

    def _delivered_after(self, instance: Instance, frame: AnyFrame, line: OrderCounts) -> None:
        """Count the time since its arrival."""
        came = self._arrived.get((instance.cluster, instance.id), {}).pop(frame.key, None)
        if came is not None and came < self.stage.now:
            key = (instance.cluster, instance.order)
            line.blocked += frame.count
            self._waited[key] = self._waited.get(key, 0) + (self.stage.now - came) * frame.count

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

    def cut_off(self, instance: Instance, out: ports.CutOff) -> None:
        self.cut_offs += 1

    def refused(self, instance: Instance, out: ports.Refused) -> None:
        self.refusals[f"{out.what}: {out.reason}"] += 1

    def stopped(self, instance: Instance) -> None:
        """A member stops: keep its own counters."""
        self._arrived.pop((instance.cluster, instance.id), None)
        self.line(instance).duplicates += instance.member.stats().get("order.duplicate_frames", 0)

    def born(self, cluster: int, key: Key) -> int | None:
        """When a frame was published."""
        return self._born[cluster].get(key)

    def report(self, scenario: str, violation: str | None) -> RunReport:
        """Make the report. Call once, at the end."""
        stage = self.stage
        total = [0] * len(stage.clusters)
        for (cluster, _), line in self._lines.items():
            total[cluster] += line.published
        for host in stage.hosts.values():
            for instance in host.instances.values():
                line = self.line(instance)
                line.members += 1
                line.duplicates += instance.member.stats().get("order.duplicate_frames", 0)
                if instance.joined:
                    line.lost += total[instance.cluster] - instance.app.count
        for key, line in self._lines.items():
            line.latency_ms = _quantiles(self._latencies[key])
            line.error_rate = line.inversions / max(1, self._others.get(key, 0))
            headers = self._headers.get(key)
            line.header_bytes = round(sum(headers) / len(headers), 1) if headers else 0.0
            line.name_bytes = round(self._named.get(key, 0) / len(headers), 1) if headers else 0.0
            line.blocked_ms = round(self._waited.get(key, 0) / max(1, self._others.get(key, 0)) / 1e6, 3)
        counters = {name: getattr(self, name) for name in ("dead_letters", "nowhere", "bad_bytes", "hostile")}
        names: tuple[str, ...] = ("unauthentic", "lies", "cut_offs", "left", "refounded", "died")
        if self.acknowledged or self.too_few_copies:
            names = (*names, "acknowledged", "acknowledged_and_died", "too_few_copies")
        counters |= {name: getattr(self, name) for name in names}
        if any(stage.free):
            counters |= {name: getattr(self, name) for name in ("moves", "contracts_broken")}
        return RunReport(
            scenario=scenario,
            seed=stage.seed,
            virtual_s=stage.now / 1e9,
            steps=self.steps,
            lines=[self._lines[k] for k in sorted(self._lines)],
            network=stage.network.stats(),
            tickets=dict(sorted(self.tickets.items())),
            joined=dict(sorted(self.how_joined.items())),
            join_ms=round(sum(self._joining) / max(1, len(self._joining)) / 1e6, 3),
            traffic={kind: (count, size) for kind, (count, size) in sorted(self._traffic.items())},
            not_published=dict(sorted(self.not_published.items())),
            counters=counters,
            buffers=dict(sorted(self.high.items())),
            violation=violation,
        )


def _quantiles(values: array[int]) -> dict[str, float]:
    ordered = sorted(values)
    return {name: round(quantile(ordered, q) / 1e6, 3) for name, q in QUANTILES.items()} if ordered else {}
