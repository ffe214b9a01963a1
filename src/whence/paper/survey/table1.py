"""SURVEY Table 1 with numbers: what each mechanism pays, against the number of processes and the rate of multicasts.

Measured on the pure machines over one network model: `LossyProcess` for the load (bytes of control information per
multicast, share and time of blocked deliveries, messages per multicast), `ReliableProcess` for a change of the
membership (messages, bytes, and how long nobody may multicast).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, fields
from random import Random
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from whence.order.survey import CompactStamp, Id, IdStamp, Stamp, SurveyConfig, VectorStamp, control_bytes, make
from whence.order.survey import lossy as ly
from whence.order.survey import reliable as rl
from whence.paper.survey.convoy import Setting, measure

if TYPE_CHECKING:
    from whence.paper.frame import Claim, Context, Outcome

MS = 1_000_000
_encode = msgspec.msgpack.Encoder().encode
W = TypeVar("W")


@dataclass(frozen=True)
class Load:
    """One point of the experiment."""

    order: str
    processes: int = 10
    rate: float = 5.0
    """Multicasts per second of each process that multicasts."""
    senders: float = 1.0
    """Share of the processes that multicast at all."""
    loss: float = 0.0
    delay: tuple[float, float] = (10.0, 50.0)
    """Milliseconds, uniformly between these: links reorder."""
    body: int = 64
    """Bytes of the application in each multicast."""
    seconds: float = 5.0
    seed: int = 0


@dataclass(frozen=True)
class Paid:
    """What came of it."""

    load: Load
    multicasts: int
    control_bytes: float
    """Mean size of the control information of a multicast, as it is encoded (small numbers take a byte)."""
    fixed_bytes: float
    """The same with 32-bit counters and process numbers of as many bytes as they need, as the SURVEY reckons."""
    blocked: float
    """Share of the deliveries of others' messages that had to wait."""
    blocked_ms: float
    """Mean time that a delivery waited, over all of them."""
    messages: float
    """Messages of all kinds per multicast and receiver."""
    undelivered: int
    """Deliveries that did not happen (an order that may skip)."""


@dataclass(frozen=True)
class Changed:
    """The cost of a change of the membership."""

    order: str
    processes: int
    messages: int
    bytes: int
    pause_ms: float
    """From the first process that stops multicasting to the last that goes on."""
    state_bytes: int
    """Of the state that a joiner gets."""


class _Queue(Generic[W]):
    """What is under way, in true time."""

    def __init__(self) -> None:
        self.now = 0
        self._count = 0
        self._queue: list[tuple[int, int, int, int, W]] = []

    def put(self, time: int, to: int, sender: int, what: W) -> None:
        self._count += 1
        heapq.heappush(self._queue, (time, self._count, to, sender, what))

    def pop(self) -> tuple[int, int, W] | None:
        if not self._queue:
            return None
        self.now, _, to, sender, what = heapq.heappop(self._queue)
        return to, sender, what


def fixed_bytes(stamp: Stamp, processes: int) -> float:
    """The size of control information by the SURVEY's count: `b * n / 8` for a vector, `(m + b) / 8` for each entry of
    a compacted one. For what it does not count (trees, times, whole messages) the size as encoded."""
    number = max(1, (processes - 1).bit_length()) / 8
    if isinstance(stamp, VectorStamp):
        return 4 * processes
    if isinstance(stamp, CompactStamp):
        return (4 + number) * len(stamp.entries)
    if isinstance(stamp, IdStamp):
        return (4 + number) * len(stamp.after)
    return control_bytes(stamp)


def pay(load: Load) -> Paid:
    """Run one load."""
    return _Loaded(load).run()


class _Loaded:
    """A group under load."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.links = Random(f"table1 links {load.seed}")
        self.who = Random(f"table1 load {load.seed}")
        slowest = int(load.delay[1] * MS)
        config = SurveyConfig(skew=0, delay=20 * slowest if load.loss else slowest, lifetime=20 * slowest)
        # Only one order has to know what is stable; it pays for that in messages.
        fanout = load.processes if load.order == "first-unstable" else 1
        recovery = ly.LossyConfig(patience=2 * slowest, digest_every=4 * slowest, digest_fanout=fanout)
        group = tuple(range(load.processes))
        self.nodes = [
            ly.LossyProcess(p, make(load.order, p, group, config), group, Random(f"{load.seed} {p}"), recovery)
            for p in group
        ]
        self.queue: _Queue[ly.Wire | str] = _Queue()
        self.woken: dict[int, int] = {}
        self.control: dict[Id, int] = {}
        self.fixed: dict[Id, float] = {}
        self.messages = 0
        self.delivered = 0

    def run(self) -> Paid:
        load = self.load
        end = int(load.seconds * 1000 * MS)
        quiet = end + 40 * int(load.delay[1] * MS)
        for p in range(load.processes):
            if p < max(1, round(load.senders * load.processes)):
                self._next(p)
            self.queue.put(0, p, p, "wake")
        while (found := self.queue.pop()) is not None and self.queue.now <= quiet:
            to, sender, what = found
            now = self.queue.now
            if what == "multicast":
                if now < end:
                    self._do(to, self.nodes[to].multicast(bytes(load.body), now))
                    self._next(to)
            elif what == "wake":
                self._do(to, self.nodes[to].wake(now))
            else:
                assert not isinstance(what, str)
                self._do(to, self.nodes[to].receive(sender, what, now))
        stats = [node.process.stats for node in self.nodes]
        due = len(self.control) * load.processes
        others = max(1, len(self.control) * (load.processes - 1))
        return Paid(
            load,
            len(self.control),
            sum(self.control.values()) / max(1, len(self.control)),
            sum(self.fixed.values()) / max(1, len(self.fixed)),
            sum(s.blocked for s in stats) / others,
            sum(s.blocked_time for s in stats) / others / MS,
            self.messages / others,
            due - self.delivered,
        )

    def _next(self, p: int) -> None:
        self.queue.put(self.queue.now + int(self.who.expovariate(self.load.rate) * 1000 * MS) + 1, p, p, "multicast")

    def _do(self, p: int, outputs: list[ly.Output]) -> None:
        now = self.queue.now
        for output in outputs:
            if isinstance(output, ly.Deliver):
                self.delivered += 1
            elif isinstance(output, ly.Send):
                self.messages += 1
                if isinstance(output.wire, ly.Data) and output.wire.message.sender == p:
                    message = output.wire.message
                    self.control.setdefault(message.id, control_bytes(message.stamp))
                    self.fixed.setdefault(message.id, fixed_bytes(message.stamp, self.load.processes))
                if self.links.random() >= self.load.loss:
                    delay = self.links.uniform(*self.load.delay)
                    self.queue.put(now + int(delay * MS), output.to, p, output.wire)
        wake = max(self.nodes[p].wake_at, now + MS)
        if not now < self.woken.get(p, 0) <= wake:
            self.woken[p] = wake
            self.queue.put(wake, p, p, "wake")


def change(order: str, processes: int, seed: int = 0, delay: tuple[float, float] = (10.0, 50.0)) -> Changed:
    """One process crashes and another one joins, in one change of the view, after everybody has multicast 5 times."""
    links = Random(f"table1 change {seed}")
    group = tuple(range(processes))
    view = rl.View(1, group)
    nodes = {p: rl.ReliableProcess(p, make(order, p, group), view) for p in group}
    queue: _Queue[rl.Wire] = _Queue()
    sent: list[rl.Wire] = []
    installed: list[int] = []

    def do(p: int, outputs: list[rl.Output]) -> None:
        for output in outputs:
            if isinstance(output, rl.Send):
                sent.append(output.wire)
                queue.put(queue.now + int(links.uniform(*delay) * MS), output.to, p, output.wire)
            elif isinstance(output, rl.Install):
                installed.append(queue.now)

    def settle() -> None:
        while (found := queue.pop()) is not None:
            to, sender, wire = found
            if to in nodes:
                do(to, nodes[to].receive(sender, wire, queue.now))

    for _ in range(5):
        for p in group:
            do(p, nodes[p].multicast(bytes(64), queue.now))
        settle()
    del nodes[processes - 1]
    nodes[processes] = rl.ReliableProcess(processes, make(order, processes, group), None)
    sent.clear()
    begun = queue.now
    new = rl.View(2, (*group[:-1], processes))
    for p in sorted(nodes):
        do(p, nodes[p].install_view(new, queue.now))
    settle()
    states = [len(_encode(wire.state)) for wire in sent if isinstance(wire, rl.Welcome)]
    pause = (max(installed) - begun) / MS
    return Changed(order, processes, len(sent), sum(len(_encode(wire)) for wire in sent), pause, states[0])


# --- the table

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
}
"""Order -> (what the table calls it, its causal history)."""
SUBGROUP = 5
"""Processes per subgroup, where there are subgroups."""


def run(context: Context) -> Outcome:
    """Every mechanism against the number of processes, the rate, and with few senders; and subgroups of vector
    clocks."""
    from whence.paper.frame import Outcome, canvas

    sizes, rates, seconds = ((5, 10, 20), (5.0,), 1.0) if context.quick else ((5, 10, 20, 40), (2.0, 10.0), 2.0)
    loads = [(o, n, r, 1.0) for o in ORDERS for n in sizes for r in rates]
    loads += [(o, sizes[-1], rates[0], 0.1) for o in ("vector", "compact-multicast")]
    rows: list[dict[str, Any]] = []
    for at, (order, n, rate, senders) in enumerate(loads):
        if context.tell:
            context.tell(at / len(loads), f"{ORDERS[order][0]}, {n} processes, {rate:g}/s")
        paid = pay(Load(order, n, rate, senders, seconds=seconds, seed=context.seed))
        rows.append(_row(order, n, rate, senders, paid))
    for n in sizes:
        if n > SUBGROUP:
            setting = Setting("vector", n // SUBGROUP, SUBGROUP, rates[0] * n, 0.0, 30.0, seconds=min(1.0, seconds))
            rows.append({**_bare("subgroups", n, rates[0], 1.0), "control_bytes": measure(setting).control})
    changes = [change(order, n, context.seed) for order in ("first", "vector", "interval") for n in sizes[:2]]
    rows += [{**_bare("change: " + c.order, c.processes, 0.0, 1.0), **_cost(c)} for c in changes]
    claims = _claims(rows, sizes, rates)
    figure, axes = canvas(
        f"SURVEY Table 1, measured: every process multicasts {rates[0]:g} times a second",
        "processes",
        "bytes of control information per multicast",
    )
    for order, (label, _) in ORDERS.items():
        points = [row for row in rows if (row["order"], row["rate"], row["senders"]) == (order, rates[0], 1.0)]
        axes.plot([row["processes"] for row in points], [row["control_bytes"] for row in points], "o-", label=label)
    points = [row for row in rows if row["order"] == "subgroups"]
    xs, ys = [row["processes"] for row in points], [row["control_bytes"] for row in points]
    axes.plot(xs, ys, "s--", label=f"vector clocks in subgroups of {SUBGROUP}")
    axes.set_yscale("log")
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return Outcome(rows, claims, figure)


def _bare(order: str, n: int, rate: float, senders: float) -> dict[str, Any]:
    history = ORDERS.get(order, ("", "any"))[1]
    return {"order": order, "history": history, "processes": n, "rate": rate, "senders": senders}


def _row(order: str, n: int, rate: float, senders: float, paid: Paid) -> dict[str, Any]:
    found = {f.name: getattr(paid, f.name) for f in fields(paid) if f.name != "load"}
    return {**_bare(order, n, rate, senders), **found}


def _cost(changed: Changed) -> dict[str, Any]:
    return {
        "change_messages": changed.messages,
        "change_bytes": changed.bytes,
        "pause_ms": changed.pause_ms,
        "state_bytes": changed.state_bytes,
    }


def _claims(rows: list[dict[str, Any]], sizes: tuple[int, ...], rates: tuple[float, ...]) -> list[Claim]:
    from whence.paper.frame import Claim

    def of(order: str, column: str, senders: float = 1.0) -> dict[int, float]:
        mine = [r for r in rows if (r["order"], r["senders"]) == (order, senders) and r["rate"] in (rates[0], 0.0)]
        return {r["processes"]: r[column] for r in mine}

    least, most = sizes[0], sizes[-1]
    big, vector = of("first-unstable", "control_bytes"), of("vector", "control_bytes")
    blocked = {order: of(order, "blocked") for order in ORDERS}
    blocking = ("identifiers", "vector", "compact-multicast", "compact-unicast", "interval")
    few = {o: of(o, "fixed_bytes", 0.1)[most] for o in ("vector", "compact-multicast")}
    chained = of("subgroups", "control_bytes")
    pause, messages = of("change: vector", "pause_ms"), of("change: vector", "change_messages")
    return [
        Claim("first generation: non-blocking", not any(blocked["first-unstable"].values()), {"blocked": blocked}),
        Claim(
            "first generation: big messages",
            all(big[n] > 3 * vector[n] for n in sizes),
            {"bytes": big, "vector": vector},
        ),
        Claim("vector and compact clocks block", all(blocked[o][most] > 0 for o in blocking), {"blocked": blocked}),
        Claim(
            "vector clocks grow with the number of processes",
            vector[most] > 0.5 * most / least * vector[least],
            {"bytes": vector},
        ),
        Claim("compaction: small messages where few multicast", few["compact-multicast"] < few["vector"] / 2, few),
        Claim(
            "interconnection: small messages, whatever the number of processes",
            max(chained.values()) < vector[most] and max(chained.values()) < 2 * min(chained.values()),
            {"bytes": chained, "vector": vector},
        ),
        Claim(
            "a change of the membership stops everybody, for two message delays, and costs messages with the square",
            all(20 <= p <= 150 for p in pause.values()) and messages[sizes[1]] > 3 * messages[sizes[0]],
            {"pause_ms": pause, "messages": messages},
        ),
    ]
