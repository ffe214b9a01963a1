"""SURVEY Table 1 with numbers: the cost of each mechanism in the same stack.

All but one part run in the simulator: the real members, with each mechanism, over the same network, load and checks
(`whence.lab.sim`). Measured are control information, blocking and messages against the number of processes and the
rate; a membership change (one process crashes, another joins by a snapshot, nobody stops); and the hostile world
(`whence sim hostile-survey`).

The SURVEY's own membership change, with an agreed view and no multicasts meanwhile, is measured on `ReliableProcess`
(reliable.py), which needs links that lose nothing, and a group in which nothing else is under way.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any

import msgspec

from whence.audit.trace import Row
from whence.core import ports
from whence.core.clock import MemberId
from whence.core.member import Member
from whence.core.order import MECHANISMS
from whence.core.order.survey.base import Stamp, control_bytes
from whence.core.order.survey.first import FirstStamp
from whence.core.order.survey.registry import make
from whence.core.order.survey.timed import DeltaStamp, TimeStamp
from whence.core.order.survey.vector import CompactStamp, IdStamp, IntervalStamp, VectorStamp
from whence.lab.paper.frame import Row as Point
from whence.lab.paper.frame import RunOptions, Statistics, Study, grid, summary, total
from whence.lab.paper.plots import panels
from whence.lab.paper.survey import reliable as rl
from whence.lab.paper.survey.convoy import ConvoySetting
from whence.lab.paper.survey.convoy import simulate as chain
from whence.lab.sim.actions import Crash, StartAction
from whence.lab.sim.run import run as simulate
from whence.lab.sim.scenario import load, parse
from whence.lab.sim.soak import with_mechanism
from whence.lab.stats import Estimate, exact, means, quotient, ratio

MS = 1_000_000
_encode = msgspec.msgpack.Encoder().encode
_stamps = msgspec.msgpack.Decoder(
    VectorStamp | CompactStamp | IdStamp | FirstStamp | IntervalStamp | TimeStamp | DeltaStamp
)

ORDERS = {
    "first": ("first generation (Fig. 3)", "precedent messages"),
    "first-unstable": ("first generation (CBCAST 87)", "precedent messages"),
    "identifiers": ("identifiers only", "precedent ids"),
    "vector": ("vector clocks", "vector clocks"),
    "compact-multicast": ("compaction, multicast", "compact clocks"),
    "compact-unicast": ("compaction, unicast", "compact clocks"),
    "interval": ("interval tree clocks", "compact clocks"),
    "physical": ("physical timestamps", "time"),
    "delta": ("deadlines", "dated vector clocks"),
    "probabilistic": ("(N, R, K) clocks", "R counters"),
    "tickets": ("tickets (CCC11)", "a vector of tickets"),
}
"""Order -> (what the table calls it, its causal history)."""
BUSIEST = 160.0
"""Multicasts a second of all processes together. Beyond it the first generation carries so much that a run takes
minutes."""
SUBGROUP = 5
"""Processes per subgroup, where there are subgroups."""

WORLD = """
members = {members}
round = "500ms"
duration = "{milliseconds}ms"
settle = "2s"
wire = {wire}
snapshot_delay = "1ms"
{more}
[network]
latency = "normal"
mean = "30ms"
sd = "10ms"
[cluster]
{order}
mode = "eager"
fanout = {peers}
recovery = "Rk"
coordinators = {senders}
[cluster.workload]
per_second = {per_second}
payload = "64B"
start = "200ms"
"""
"""Every multicast goes to all others at once, over links that reorder and lose nothing. Digests go out every 500 ms."""
SETTINGS = '[cluster.survey]\nskew = "0ms"\ndelay = "70ms"\nlifetime = "1s"\nmax_carried = 10000\n'
"""For mechanisms that use clocks: clocks are correct, and 70 ms is four standard deviations above the mean delay."""


def world(order: str, processes: int, rate: float, senders: float, seconds: float, join: str = "") -> str:
    """A group under load. `rate`: multicasts a second of each process that multicasts, a share `senders` of all.
    `join`: top-level settings of a scenario with a joiner; its messages are encoded, to measure their bytes."""
    publishing = max(1, round(senders * processes))
    settings = f'mechanism = "{order}"' if order in MECHANISMS else 'order = "probabilistic"'
    text = WORLD.format(
        members=processes,
        milliseconds=round(seconds * 1000) + 200,
        more=join,
        wire="true" if join else "false",
        order=settings,
        peers=max(1, processes - 1),
        senders=publishing,
        per_second=float(rate * publishing),
    )
    return text + (SETTINGS if order in MECHANISMS else "")


def pay(order: str, processes: int, rate: float, senders: float = 1.0, seconds: float = 2.0, seed: int = 0) -> Point:
    """The cost of one load: one row."""
    trace: list[Row] = []
    outcome = simulate(parse(world(order, processes, rate, senders, seconds)), seed, sink=trace.append)
    stamps = [row.clock or "" for row in trace if row.kind == "publish"]
    line = outcome.report.lines[0]
    fixed = [fixed_bytes(_stamps.decode(bytes.fromhex(s)), processes) for s in stamps] if order in MECHANISMS else []
    others = max(1, line.published * (processes - 1))
    return {
        **_bare(order, processes, rate, senders),
        "violation": outcome.report.violation,
        "multicasts": line.published,
        "control_bytes": line.header_bytes,
        "name_bytes": line.name_bytes,
        "fixed_bytes": sum(fixed) / max(1, len(fixed)) if fixed else line.header_bytes,
        "blocked": line.blocked / others,
        "blocked_ms": line.blocked_ms,
        "latency_ms": line.latency_ms.get("p50"),
        "messages": outcome.report.network["sent"] / others,
        "undelivered": line.lost,
    }


def fixed_bytes(stamp: Stamp, processes: int) -> float:
    """The size of control information as the SURVEY counts it: `b * n / 8` for a vector, `(m + b) / 8` for each entry
    of a compacted one. For others (trees, times, whole messages) the encoded size."""
    number = max(1, (processes - 1).bit_length()) / 8
    if isinstance(stamp, VectorStamp):
        return 4 * processes
    if isinstance(stamp, CompactStamp):
        return (4 + number) * len(stamp.entries)
    if isinstance(stamp, IdStamp):
        return (4 + number) * len(stamp.after)
    return control_bytes(stamp)


class _Pauses:
    """For how long at a time members may not publish, once they have joined."""

    def __init__(self) -> None:
        self.since: dict[MemberId, int | None] = {}
        self.longest = 0

    def saw(self, member: Member, outs: list[ports.Output], now: int) -> None:
        if member.may_publish or member.me in self.since:
            since = self.since.get(member.me)
            self.longest = max(self.longest, 0 if since is None else now - since)
            self.since[member.me] = None if member.may_publish else now if since is None else since


def join_and_crash(order: str, processes: int, seed: int = 0) -> Point:
    """One process crashes and another joins by a snapshot, under load: the messages for it, how long the joiner waits,
    and the longest time in which any of the others may not publish (`pause_ms`)."""
    new, at = f"n{processes}", 1_200 * MS
    loaded = parse(world(order, processes + 1, 5.0, 1.0, 2.0, join=f'absent = ["{new}"]'))
    loaded = msgspec.structs.replace(loaded, faults=(Crash(at=at, who="n1"), StartAction(at=at, who=new)))
    pauses = _Pauses()
    report = simulate(loaded, seed, watch=pauses.saw).report
    kinds = ("SnapshotRequest", "SnapshotRefused", "Snapshot", "Subscribe", "Welcome")
    sent = [report.traffic.get(kind, (0, 0)) for kind in kinds]
    snapshots, size = report.traffic["Snapshot"]
    return {
        **_bare(f"join: {order}", processes, 5.0, 1.0),
        "violation": report.violation,
        "change_messages": sum(n for n, _ in sent),
        "change_bytes": sum(b for _, b in sent),
        "snapshot_bytes": size / snapshots,
        "pause_ms": pauses.longest / MS,
        "join_ms": report.join_ms,
        "undelivered": report.lines[0].lost,
    }


def in_hostile(order: str, quick: bool, seed: int = 0) -> Point:
    """The cost of an order in the hostile world."""
    short: Mapping[str, Any] = {"duration": "50r", "settle": "50r"} if quick else {}
    if order in MECHANISMS:
        loaded = with_mechanism(order, short)
    else:
        name = "hostile-free" if order == "probabilistic" else "hostile-ccc11"
        loaded = load(name, settings={**short, "cluster.order": "causal" if order == "tickets" else order})
    done = simulate(loaded, seed + 1)
    lines, report = done.report.lines, done.report
    weights = {by: [getattr(line, by) for line in lines] for by in ("published", "delivered")}
    delivered = sum(weights["delivered"])

    def total(name: str) -> float:
        return float(sum(getattr(line, name) for line in lines))

    def mean(values: Iterable[float], by: str) -> float:
        return float(sum(v * n for v, n in zip(values, weights[by], strict=True)) / max(1, sum(weights[by])))

    return {
        **_bare(f"hostile: {order}", len(loaded.scenario.names), 0.0, 1.0),
        "violation": report.violation if done.violation else None,
        "multicasts": total("published"),
        **{name: total(name) for name in ("delivered", "inversions", "late", "over_gap", "recovered")},
        "undelivered": total("lost"),
        "control_bytes": mean((line.header_bytes for line in lines), "published"),
        "name_bytes": mean((line.name_bytes for line in lines), "published"),
        "blocked": total("blocked") / max(1, delivered),
        "blocked_ms": mean((line.blocked_ms for line in lines), "delivered"),
        "latency_ms": mean((line.latency_ms.get("p50", 0.0) for line in lines), "delivered"),
        "latency_p99_ms": mean((line.latency_ms.get("p99", 0.0) for line in lines), "delivered"),
        "messages": report.network["sent"] / max(1, delivered),
        "bytes_per_delivery": sum(size for _, size in report.traffic.values()) / max(1, delivered),
        "join_ms": report.join_ms,
    }


def change(order: str, processes: int, seed: int = 0, delay: tuple[float, float] = (10.0, 50.0)) -> Point:
    """With views: one process crashes and another joins in one view change, after everybody has multicast 5 times."""
    links = Random(f"table1 change {seed}")
    group = tuple(range(processes))
    nodes = {p: rl.ReliableProcess(p, make(order, p, group), rl.GroupView(1, group)) for p in group}
    queue: list[tuple[int, int, int, int, rl.Wire]] = []
    sent: list[rl.Wire] = []
    installed: list[int] = []
    now = 0

    def do(p: int, outputs: list[rl.ReliableOutput]) -> None:
        for output in outputs:
            if isinstance(output, rl.ToProcess):
                sent.append(output.wire)
                heapq.heappush(queue, (now + int(links.uniform(*delay) * MS), len(sent), output.to, p, output.wire))
            elif isinstance(output, rl.Install):
                installed.append(now)

    def settle() -> None:
        nonlocal now
        while queue:
            now, _, to, sender, wire = heapq.heappop(queue)
            if to in nodes:
                do(to, nodes[to].receive(sender, wire, now))

    for _ in range(5):
        for p in group:
            do(p, nodes[p].multicast(bytes(64), now))
        settle()
    del nodes[processes - 1]
    nodes[processes] = rl.ReliableProcess(processes, make(order, processes, group), None)
    sent.clear()
    begun = now
    for p in sorted(nodes):
        do(p, nodes[p].install_view(rl.GroupView(2, (*group[:-1], processes)), now))
    settle()
    states = [len(_encode(wire.state)) for wire in sent if isinstance(wire, rl.JoinState)]
    return {
        **_bare(f"view: {order}", processes, 0.0, 1.0),
        "change_messages": len(sent),
        "change_bytes": sum(len(_encode(wire)) for wire in sent),
        "state_bytes": states[0],
        "pause_ms": (max(installed) - begun) / MS,
    }


# --- the table


def measure(options: RunOptions) -> list[Point]:
    """Every mechanism by number of processes, by rate and with few senders; subgroups of vector clocks; a membership
    change; the hostile world. Each with several seeds."""
    sizes, rates, seconds = ((5, 10, 20), (5.0,), 2.0) if options.quick else ((5, 10, 20, 40), (2.0, 8.0), 2.0)
    seeds = 2 if options.quick else 5
    loaded = [order for order in ORDERS if order != "tickets"]
    tasks: list[tuple[Any, ...]] = [
        (pay, order, n, rate, 1.0, seconds) for order in loaded for n in sizes for rate in rates if rate * n <= BUSIEST
    ]
    tasks += [(pay, order, sizes[-1], rates[0], 0.1, 2 * seconds) for order in ("vector", "compact-multicast")]
    tasks += [(join_and_crash, order, n) for order in loaded for n in sizes[:2]]
    tasks += [(change, order, n) for order in MECHANISMS for n in sizes[:2]]
    tasks += [(chained, n, rates[0], min(1.0, seconds)) for n in sizes if n > SUBGROUP]
    tasks += [(in_hostile, order, options.quick) for order in ORDERS]
    settings = [{"part": function.__name__, "arguments": arguments} for function, *arguments in tasks]
    return [_row(runs) for runs in grid(options, settings, seeds, f"{__name__}:point")]


def point(setting: Mapping[str, Any]) -> Point:
    """A runner: one run of one part of the table."""
    known: tuple[Callable[..., Point], ...] = (pay, join_and_crash, change, chained, in_hostile)
    parts = {part.__name__: part for part in known}
    return parts[str(setting["part"])](*setting["arguments"], seed=setting["seed"])


def chained(processes: int, rate: float, seconds: float, seed: int = 0) -> Point:
    """Control information in subgroups of vector clocks, in a chain."""
    setting = ConvoySetting(
        "vector", processes // SUBGROUP, SUBGROUP, rate * processes, 0.0, 30.0, seconds=seconds, seed=seed
    )
    return {**_bare("subgroups", processes, rate, 1.0), "control_bytes": chain(setting).control_bytes()}


def _row(found: Sequence[Point]) -> Point:
    """The mean of every number, the runs, and the first violation."""
    broken = [str(one["violation"]) for one in found if one.get("violation")]
    return summary(found[0], found, KEEP) | {"violation": broken[0] if broken else ""}


KEEP = ("order", "history", "processes", "rate", "senders")


def _bare(order: str, n: int, rate: float, senders: float) -> Point:
    name = order.rpartition(": ")[2]
    history = ORDERS.get(name, ("", "any"))[1]
    return {"order": order, "history": history, "processes": n, "rate": rate, "senders": senders}


def draw(rows: list[Point]) -> Any:
    """Control bytes and waiting by the number of processes."""
    rates = [next(row["rate"] for row in rows if row["order"] == "vector")]
    title = f"SURVEY Table 1, measured: every process multicasts {rates[0]:g} times a second"
    bytes_y, wait_y = "bytes of control information per multicast", "mean time that a delivery waits (ms)"
    figure, (size, wait) = panels(title, ("processes", bytes_y), ("processes", wait_y))
    for at, (order, (label, _)) in enumerate(ORDERS.items()):
        points = [row for row in rows if (row["order"], row["rate"], row["senders"]) == (order, rates[0], 1.0)]
        xs = [row["processes"] for row in points]
        style = {"marker": "osv^D<>phX*"[at], "markersize": 5, "linewidth": 4.0 - 0.33 * at, "alpha": 0.8}
        if points:  # many curves coincide: thin lines over thick ones
            size.plot(xs, [row["control_bytes"] for row in points], label=label, **style)
            wait.plot(xs, [row["blocked_ms"] for row in points], **style)
    points = [row for row in rows if row["order"] == "subgroups"]
    xs, ys = [row["processes"] for row in points], [row["control_bytes"] for row in points]
    size.plot(xs, ys, "k--", markersize=4, label=f"vector clocks in subgroups of {SUBGROUP}")
    size.set_yscale("log")
    wait.set_yscale("symlog", linthresh=0.1)
    figure.legend(loc="outside lower center", fontsize=7.5, ncols=4)
    return figure


def note(rows: list[Point]) -> str:
    """The costs in the hostile world, as a text table."""
    shown = ("inversions", "undelivered", "control_bytes", "name_bytes", "blocked", "blocked_ms", "latency_ms")
    lines = [
        "Costs in the hostile world (`whence sim hostile-survey --set cluster.mechanism=...`; tickets: "
        "`hostile-ccc11`, all causal; (N, R, K): `hostile-free`):",
        f"{'':30}" + "".join(f"{column:>15}" for column in shown),
    ]
    for row in (row for row in rows if row["order"].startswith("hostile: ")):
        name = ORDERS[row["order"].partition(": ")[2]][0]
        lines.append(f"{name:30}" + "".join(f"{row[column]:>15.4g}" for column in shown))
    return "\n".join(lines)


# --- what the claims are judged by

BLOCKING = ("identifiers", "vector", "compact-multicast", "compact-unicast", "interval")


class _Table:
    """The rows of the table, by order, number of processes and load."""

    def __init__(self, rows: list[Point]) -> None:
        self.rows = rows
        loaded = [row for row in rows if row["order"] == "vector" and row["senders"] == 1.0]
        self.rate = loaded[0]["rate"]
        self.sizes = sorted({int(row["processes"]) for row in loaded})

    def runs(self, order: str, column: str, senders: float = 1.0) -> dict[int, list[float]]:
        """By the number of processes, the runs of a column."""
        return {
            int(r["processes"]): [run[column] for run in r["runs"]]
            for r in self.rows
            if (r["order"], r["senders"]) == (order, senders) and r["rate"] in (self.rate, 0.0, 5.0)
        }


def statistics(rows: list[Point]) -> Statistics:
    """The points of every claim."""
    table = _Table(rows)
    least, most = table.sizes[0], table.sizes[-1]
    big, vector = table.runs("first-unstable", "control_bytes"), table.runs("vector", "control_bytes")
    blocked = {order: table.runs(order, "blocked") for order in (*BLOCKING, "first-unstable")}
    few, encoded = (
        {o: table.runs(o, column, 0.1)[most] for o in ("vector", "compact-multicast")}
        for column in ("fixed_bytes", "control_bytes")
    )
    chained = table.runs("subgroups", "control_bytes")
    small = min(chained)
    hostile = [row for row in rows if "inversions" in row]
    return {
        "promises": [exact(f"{len(rows)} rows", sum(1 for row in rows if row.get("violation")))],
        "hostile": [
            exact(f"{row['order']}, {row['delivered'] * row['seeds']:.0f} deliveries", row["inversions"] * row["seeds"])
            for row in hostile
        ],
        "everything": _undelivered(rows, timed=False),
        "everything-timed": _undelivered(rows, timed=True),
        "non-blocking": [exact(f"{n} processes", max(runs)) for n, runs in blocked["first-unstable"].items()],
        "big": [quotient(f"{n} processes", big[n], vector[n], len(big)) for n in table.sizes],
        "block": means({f"{o}, {most} processes": blocked[o][most] for o in BLOCKING}),
        "linear": [quotient(f"{least} to {most} processes", vector[most], [x * most / least for x in vector[least]])],
        "compact": [ratio(f"{most} processes, a tenth multicast", few["compact-multicast"], few["vector"])],
        "compact-encoded": [
            ratio(f"{most} processes, a tenth multicast", encoded["compact-multicast"], encoded["vector"])
        ],
        "interconnected": [quotient(f"{n} processes", runs, vector[most], len(chained)) for n, runs in chained.items()],
        "interconnected-any": [
            quotient(f"{n} by {small} processes", runs, chained[small], len(chained))
            for n, runs in chained.items()
            if n != small
        ],
        **_changes(table),
    }


def _undelivered(rows: list[Point], timed: bool) -> list[Estimate]:
    """Events that some member never delivered, where nothing fails."""
    mine = [row for row in rows if "multicasts" in row and "inversions" not in row]
    mine = [row for row in mine if (row["order"] in ("physical", "delta")) == timed]
    return [
        exact(
            f"{sum(total(row, 'multicasts') for row in mine):.0f} events",
            sum(total(row, "undelivered") for row in mine),
        )
    ]


def _changes(table: _Table) -> Statistics:
    """A change of the view, and a joiner in the stack."""
    pause, messages = (table.runs("view: vector", column) for column in ("pause_ms", "change_messages"))
    one, two = table.sizes[0], table.sizes[1]
    joins = {o: table.runs(f"join: {o}", "change_messages") for o in MECHANISMS}
    pauses = {o: table.runs(f"join: {o}", "pause_ms") for o in MECHANISMS}
    return {
        "view-stops": means({f"{n} processes": runs for n, runs in pause.items()}),
        "view-square": [quotient(f"{two} by {one} processes", messages[two], messages[one])],
        "join-stops": [
            exact(f"{o}, {n} processes, {len(runs)} runs", max(runs))
            for o, found in pauses.items()
            for n, runs in found.items()
        ],
        "join-messages": [
            quotient(f"{o}, {n} processes", runs, messages[n], 2 * len(joins))
            for o, found in joins.items()
            for n, runs in found.items()
        ],
    }


STUDY = Study(measure, statistics, draw, note)
