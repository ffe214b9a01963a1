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
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from whence.core.order.survey.base import control_bytes
from whence.core.order.survey.config import SurveyConfig
from whence.core.order.survey.registry import make
from whence.lab.paper.points import run_all
from whence.lab.paper.survey.interconnect import Interconnected, LinkWire, ToGroup, check_acyclic
from whence.lab.paper.survey.reliable import Data, View, Wire
from whence.lab.paper.survey.subgroup import Delivered, ToMember

if TYPE_CHECKING:
    from whence.lab.paper.frame import Context, Outcome
    from whence.lab.stats import Estimate

MS = 1_000_000
Place = tuple[int, int]


@dataclass(frozen=True)
class Setting:
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


@dataclass
class Convoy:
    """The result, for the messages published in the first subgroup."""

    setting: Setting
    latency: list[list[float]] = field(default_factory=list)
    """Per subgroup: milliseconds from multicast to the delivery at each member."""
    together: list[float] = field(default_factory=list)
    """Per subgroup: the mean number of messages that its server towards the next one delivers at the same moment. More
    than 1: bursts."""

    control: float = 0.0
    """Mean bytes of control information of a multicast inside a subgroup."""

    def mean(self, subgroup: int) -> float:
        """Mean latency there, in milliseconds."""
        return sum(self.latency[subgroup]) / max(1, len(self.latency[subgroup]))


class _Chain:
    """The simulation: a queue of arrivals in true time."""

    def __init__(self, setting: Setting) -> None:
        links = [(g, g + 1) for g in range(setting.subgroups - 1)]
        check_acyclic(links)
        self.setting = setting
        self.load = Random(f"convoy load {setting.seed}")  # the same load under every order
        self.rng = Random(f"convoy links {setting.seed}")
        self.now = 0
        self.count = 0
        self.queue: list[tuple[int, int, Place, Place, Wire | LinkWire | None]] = []
        self.born: dict[tuple[int, int, int], int] = {}
        self.latency: list[list[float]] = [[] for _ in range(setting.subgroups)]
        self.control: dict[tuple[int, int, int], int] = {}
        self.moments: list[dict[int, int]] = [{} for _ in range(setting.subgroups)]
        view = View(1, tuple(range(setting.size)))
        self.sites = {
            (g, p): Interconnected(
                g,
                p,
                make(setting.order, p, view.members, SurveyConfig(max_carried=200)),
                view,
                [b if a == g else a for a, b in links if g in (a, b)],
                uniform=False,
                spread=True,
            )
            for g in range(setting.subgroups)
            for p in range(setting.size)
        }
        for place, site in self.sites.items():
            self.do(place, site.start(0))

    def at(self, time: int, to: Place, sender: Place, wire: Wire | LinkWire | None) -> None:
        self.count += 1
        heapq.heappush(self.queue, (time, self.count, to, sender, wire))

    def send(self, sender: Place, to: Place, wire: Wire | LinkWire) -> None:
        """Send, with retransmissions."""
        s = self.setting
        arrival = self.now + int(s.delay * MS * self.rng.uniform(0.5, 1.5))
        while isinstance(wire, Data) and self.rng.random() < s.loss:
            arrival += int(s.retransmit * MS)
        self.at(arrival, to, sender, wire)

    def do(self, place: Place, outputs: list[object]) -> None:
        for output in outputs:
            match output:
                case ToMember(to, wire):
                    if isinstance(wire, Data) and (name := (place[0], *wire.message.id)) not in self.control:
                        self.control[name] = control_bytes(wire.message.stamp)
                    self.send(place, (place[0], to), wire)
                case ToGroup(group, to, wire):
                    for p in range(self.setting.size) if to is None else (to,):
                        self.send(place, (group, p), wire)
                case Delivered(0, process, number, _):
                    self.delivered(place, self.born[0, process, number])

    def delivered(self, place: Place, born: int) -> None:
        group, member = place
        self.latency[group].append((self.now - born) / MS)
        if member == min(1, self.setting.size - 1):  # the server towards the next subgroup (`spread`)
            self.moments[group][self.now] = self.moments[group].get(self.now, 0) + 1

    def run(self) -> Convoy:
        s = self.setting
        end = int(s.seconds * 1000 * MS)
        everybody = sorted(self.sites)
        next_multicast = 10 * MS
        while self.queue or next_multicast < end:
            if next_multicast < end and (not self.queue or next_multicast <= self.queue[0][0]):
                self.now = next_multicast
                place = self.load.choice(everybody)
                site = self.sites[place]
                self.born[(*place, site.number + 1)] = self.now
                self.do(place, site.multicast(bytes(16), self.now))
                next_multicast += int(self.load.expovariate(s.rate) * 1000 * MS) + 1
                continue
            self.now, _, to, sender, wire = heapq.heappop(self.queue)
            site = self.sites[to]
            if sender[0] == to[0]:
                self.do(to, site.receive(sender[1], wire, self.now))  # type: ignore[arg-type]
            else:
                self.do(to, site.receive_link(wire, self.now))  # type: ignore[arg-type]
        together = [sum(n * n for n in m.values()) / max(1, sum(m.values())) for m in self.moments]
        return Convoy(s, self.latency, together, sum(self.control.values()) / max(1, len(self.control)))


def simulate(setting: Setting) -> Convoy:
    """Run one point."""
    return _Chain(setting).run()


def quantile(values: list[float], q: float) -> float:
    """The value below which a share `q` of them lies."""
    found = sorted(values)
    return found[min(len(found) - 1, int(q * len(found)))] if found else 0.0


ORDERS = {
    "vector": "vector clocks",
    "first": "first generation (Fig. 3)",
    "first-unstable": "first generation (CBCAST 87)",
}


Row = dict[str, Any]


def measure(context: Context) -> list[Row]:
    """Three orders in small and in larger subgroups, the same load and losses; several seeds."""
    seconds, subgroups, seeds = (1.0, 4, 2) if context.quick else (4.0, 8, 5)
    settings = [
        {"order": order, "subgroups": subgroups, "size": size, "seconds": seconds, "seed": context.seed * 1000 + i}
        for size in (3, 6)
        for order in ORDERS
        for i in range(seeds)
    ]
    found = run_all(f"{__name__}:point", settings, context.master, context.count("runs"))
    return [row for one in found for row in one["rows"]]


def point(setting: Mapping[str, Any]) -> dict[str, list[Row]]:
    """A runner: one chain, a row for each subgroup."""
    convoy = simulate(Setting(**setting, rate=50.0 * setting["size"], loss=0.02))
    return {
        "rows": [
            {
                "order": setting["order"],
                "size": setting["size"],
                "seed": setting["seed"],
                "subgroup": group + 1,
                "mean_ms": convoy.mean(group),
                "p90_ms": quantile(convoy.latency[group], 0.9),
                "together": convoy.together[group],
                "control_bytes": convoy.control,
            }
            for group in range(setting["subgroups"])
        ]
    }


def outcome(rows: list[Row]) -> Outcome:
    """The convoy, and what removes it."""
    from whence.lab.paper.frame import Outcome

    return Outcome(rows, statistics(rows), draw(rows))


def _runs(rows: list[Row], order: str, size: int, subgroup: int, key: str = "mean_ms") -> list[float]:
    return [r[key] for r in rows if (r["order"], r["size"], r["subgroup"]) == (order, size, subgroup)]


def statistics(rows: list[Row]) -> dict[str, list[Estimate]]:
    """All orders have the same load and seeds."""
    from whence.lab.stats import difference, mean, quotient, ratio

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
    from whence.lab.paper.frame import around, panels
    from whence.lab.stats import mean

    title = "A chain of subgroups of 3; 2 % of the multicasts come 200 ms late"
    figure, [axes] = panels(title, ("subgroup, counted from the message's own", "mean latency (ms)"))
    groups = range(1, max(row["subgroup"] for row in rows) + 1)
    for order, label in ORDERS.items():
        found = [mean("", _runs(rows, order, 3, group)) for group in groups]
        axes.errorbar(
            groups,
            [p.value for p in found],
            yerr=around(found, least=0.3),
            fmt="o-",
            capsize=2.5,
            markersize=4,
            label=label,
        )
    axes.set_yscale("log")
    axes.set_xticks(groups)
    axes.legend()
    return figure
