"""The convoy effect of chained subgroups (Kalantar and Birman; SURVEY 3.4), measured, and what removes it.

A chain of subgroups. In each, the server towards the next subgroup is not the one towards the previous, so a message
crosses the subgroup by its multicast. Now and then a multicast to one member is lost and retransmitted. A server that
misses one message holds back everything that follows it causally, and then forwards it all at once: traffic comes in
bursts, and later the more subgroups it has crossed. The first generation carries what precedes a message. As in Fig. 3
it still waits for its sender's last message (FIFO); carrying everything unstable (CBCAST 87, `first-unstable`) it never
waits.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec

from whence.core.order.survey.base import Message, control_bytes
from whence.core.order.survey.config import SurveyConfig
from whence.core.order.survey.registry import make
from whence.lab.paper.frame import Row, RunOptions, Statistics, Study, grid
from whence.lab.paper.plots import error_bars, panels
from whence.lab.paper.survey.reliable import GroupView, ReliableOutput, ReliableProcess, ToApplication, ToProcess, Wire
from whence.lab.stats import difference, mean, quotient, ratio

MS = 1_000_000
Place = tuple[int, int]


@dataclass(frozen=True)
class ConvoySetting:
    """One point of the experiment; times in milliseconds."""

    order: str
    """The mechanism in all subgroups."""
    subgroups: int = 8
    size: int = 4
    rate: float = 400.0
    """Global messages per second, of all processes together."""
    loss: float = 0.01
    """Of multicasts on a link inside a subgroup; each is retransmitted after `retransmit`. Links between servers lose
    nothing: that would delay every order alike and hide the difference."""
    delay: float = 1.0
    retransmit: float = 200.0
    seconds: float = 20.0
    seed: int = 0


class Relayed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A message for all subgroups: the `number`th of a process of a subgroup, and the subgroup that it came from last
    (at first its own)."""

    group: int
    process: int
    number: int
    via: int
    body: bytes = bytes(16)


_encode, _decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(Relayed).decode


class Convoy:
    """The simulation: a queue of arrivals in true time. Its results are about messages of the first subgroup.

    A server is an ordinary member of its subgroup. It forwards what it delivers over a FIFO link to the server of the
    next subgroup, which multicasts it there. No causal history crosses the link: whatever precedes a message was sent
    on the link before it, and is multicast before it by the same process.
    """

    def __init__(self, setting: ConvoySetting) -> None:
        self.setting = setting
        self.load = Random(f"convoy load {setting.seed}")  # the same load under every order
        self.rng = Random(f"convoy links {setting.seed}")
        self.now = 0
        self.queue: list[tuple[int, int, Place, Place, Wire | Relayed]] = []
        self.sent = 0
        self.last: dict[Place, int] = {}
        """By server: when the last message over its link arrives (links are FIFO)."""
        self.born: dict[tuple[int, int], int] = {}
        """When each message of the first subgroup was multicast."""
        self.numbers = Counter[Place]()
        self.latency: list[list[float]] = [[] for _ in range(setting.subgroups)]
        """Per subgroup: milliseconds from multicast to the delivery at each member."""
        self.control: dict[tuple[int, int, int], int] = {}
        """Bytes of control information of each multicast inside a subgroup."""
        self.moments = [Counter[int]() for _ in range(setting.subgroups)]
        """Per subgroup: how many messages its server towards the next one delivers at each moment."""
        view = GroupView(1, tuple(range(setting.size)))
        self.sites = {
            (g, p): ReliableProcess(p, make(setting.order, p, view.members, SurveyConfig(max_carried=200)), view)
            for g in range(setting.subgroups)
            for p in view.members
        }

    def neighbours(self, group: int) -> dict[int, int]:
        """Neighbour of a subgroup -> the member that is the server of the link. The links have different servers."""
        near = [g for g in (group - 1, group + 1) if 0 <= g < self.setting.subgroups]
        return {g: i % self.setting.size for i, g in enumerate(near)}

    def send(self, sender: Place, to: Place, wire: Wire | Relayed) -> None:
        """Send; inside a subgroup with retransmissions."""
        s = self.setting
        arrival = self.now + int(s.delay * MS * self.rng.uniform(0.5, 1.5))
        if isinstance(wire, Relayed):
            arrival = self.last[sender] = max(arrival, self.last.get(sender, 0) + 1)
        while isinstance(wire, Message) and self.rng.random() < s.loss:
            arrival += int(s.retransmit * MS)
        self.sent += 1
        heapq.heappush(self.queue, (arrival, self.sent, to, sender, wire))

    def do(self, place: Place, outputs: list[ReliableOutput]) -> None:
        for output in outputs:
            if isinstance(output, ToProcess):
                wire = output.wire
                if isinstance(wire, Message) and (name := (place[0], *wire.id)) not in self.control:
                    self.control[name] = control_bytes(wire.stamp)
                self.send(place, (place[0], output.to), wire)
            elif isinstance(output, ToApplication):
                self.delivered(place, _decode(output.message.body))

    def delivered(self, place: Place, message: Relayed) -> None:
        group, member = place
        if message.group == 0:
            self.latency[group].append((self.now - self.born[message.process, message.number]) / MS)
            if member == min(1, self.setting.size - 1):  # the server towards the next subgroup
                self.moments[group][self.now] += 1
        for neighbour, server in self.neighbours(group).items():
            if neighbour != message.via and member == server:
                self.send(place, (neighbour, self.neighbours(neighbour)[group]), message)

    def multicast(self, place: Place, message: Relayed) -> None:
        self.do(place, self.sites[place].multicast(_encode(message), self.now))

    def run(self) -> Convoy:
        s = self.setting
        end = int(s.seconds * 1000 * MS)
        everybody = sorted(self.sites)
        next_multicast = 10 * MS
        while self.queue or next_multicast < end:
            if next_multicast < end and (not self.queue or next_multicast <= self.queue[0][0]):
                self.now = next_multicast
                group, process = place = self.load.choice(everybody)
                self.numbers[place] += 1
                if group == 0:
                    self.born[process, self.numbers[place]] = self.now
                self.multicast(place, Relayed(group, process, self.numbers[place], group))
                next_multicast += int(self.load.expovariate(s.rate) * 1000 * MS) + 1
                continue
            self.now, _, to, sender, wire = heapq.heappop(self.queue)
            if isinstance(wire, Relayed):
                self.multicast(to, msgspec.structs.replace(wire, via=sender[0]))
            else:
                self.do(to, self.sites[to].receive(sender[1], wire, self.now))
        return self

    def mean(self, subgroup: int) -> float:
        """Mean latency there, in milliseconds."""
        return sum(self.latency[subgroup]) / max(1, len(self.latency[subgroup]))

    def together(self, subgroup: int) -> float:
        """The mean number of messages that a server delivers at the same moment. More than 1: bursts."""
        counts = self.moments[subgroup].values()
        return sum(n * n for n in counts) / max(1, sum(counts))

    def control_bytes(self) -> float:
        """Mean bytes of control information of a multicast inside a subgroup."""
        return sum(self.control.values()) / max(1, len(self.control))


def simulate(setting: ConvoySetting) -> Convoy:
    """Run one point."""
    return Convoy(setting).run()


ORDERS = {
    "vector": "vector clocks",
    "first": "first generation (Fig. 3)",
    "first-unstable": "first generation (CBCAST 87)",
}


def measure(options: RunOptions) -> list[Row]:
    """Three orders in small and in larger subgroups, the same load and losses; several seeds."""
    seconds, subgroups, seeds = (1.0, 4, 3) if options.quick else (4.0, 8, 5)
    settings = [
        {"order": order, "subgroups": subgroups, "size": size, "seconds": seconds}
        for size in (3, 6)
        for order in ORDERS
    ]
    found = grid(options, settings, seeds, f"{__name__}:point")
    return [row for runs in found for run in runs for row in run["rows"]]


def point(setting: Mapping[str, Any]) -> dict[str, list[Row]]:
    """A runner: one chain, a row for each subgroup."""
    convoy = simulate(ConvoySetting(**setting, rate=50.0 * setting["size"], loss=0.02))
    return {
        "rows": [
            {
                "order": setting["order"],
                "size": setting["size"],
                "seed": setting["seed"],
                "subgroup": group + 1,
                "mean_ms": convoy.mean(group),
                "together": convoy.together(group),
                "control_bytes": convoy.control_bytes(),
            }
            for group in range(setting["subgroups"])
        ]
    }


def _runs(rows: list[Row], order: str, size: int, subgroup: int, key: str = "mean_ms") -> list[float]:
    return [r[key] for r in rows if (r["order"], r["size"], r["subgroup"]) == (order, size, subgroup)]


def statistics(rows: list[Row]) -> Statistics:
    """All orders have the same load and seeds."""
    last = max(row["subgroup"] for row in rows)
    groups = range(1, last + 1)

    def bursts(order: str) -> list[float]:
        return [max(some) for some in zip(*(_runs(rows, order, 3, g, "together") for g in groups), strict=True)]

    vector, first = _runs(rows, "vector", 3, last), _runs(rows, "first", 3, last)
    carrying = "first-unstable"
    return {
        "convoy": [ratio(f"subgroup {last} by the first", vector, _runs(rows, "vector", 3, 1))],
        "bursts": [mean("vector clocks", bursts("vector"))],
        "less": [difference(f"subgroup {last}, Fig. 3 less vector clocks (ms)", first, vector)],
        "removed": [mean(f"subgroup {last}, delays", [x / last for x in _runs(rows, carrying, 3, last)])],
        "no-bursts": [mean("CBCAST 87", bursts(carrying))],
        "price": [
            quotient(
                "subgroups of 6 by 3",
                _runs(rows, carrying, 6, 1, "control_bytes"),
                _runs(rows, carrying, 3, 1, "control_bytes"),
            )
        ],
    }


def draw(rows: list[Row]) -> Any:
    """Mean latency by subgroup, with intervals over seeds."""
    title = "A chain of subgroups of 3; 2 % of the multicasts come 200 ms late"
    figure, [axes] = panels(title, ("subgroup, counted from the message's own", "mean latency (ms)"))
    groups = range(1, max(row["subgroup"] for row in rows) + 1)
    for i, (order, label) in enumerate(ORDERS.items()):
        error_bars(axes, groups, [mean("", _runs(rows, order, 3, group)) for group in groups], label, i, least=0.3)
    axes.set_yscale("log")
    axes.set_xticks(groups)
    axes.legend()
    return figure


STUDY = Study(measure, statistics, draw)
