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
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from whence.order.survey.base import control_bytes
from whence.order.survey.registry import SurveyConfig, make
from whence.paper.survey.interconnect import Interconnected, LinkWire, ToGroup, check_acyclic
from whence.paper.survey.reliable import Data, View, Wire
from whence.paper.survey.subgroup import Delivered, ToMember

if TYPE_CHECKING:
    from whence.paper.frame import Claim, Context, Outcome

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


def measure(setting: Setting) -> Convoy:
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


def run(context: Context) -> Outcome:
    """Three orders in small and in larger subgroups, the same load and losses."""
    from whence.paper.frame import Outcome, panels

    seconds, subgroups = (1.5, 5) if context.quick else (4.0, 8)
    points = [(order, size) for size in (3, 6) for order in ORDERS]
    found: dict[tuple[str, int], Convoy] = {}
    for at, (order, size) in enumerate(points):
        context.say(at / len(points), f"{ORDERS[order]}, subgroups of {size}")
        rate = 50.0 * size
        setting = Setting(order, subgroups, size, rate, loss=0.02, seconds=seconds, seed=context.seed)
        found[order, size] = measure(setting)
    rows = [
        {
            "order": order,
            "size": size,
            "subgroup": group + 1,
            "mean_ms": convoy.mean(group),
            "p90_ms": quantile(convoy.latency[group], 0.9),
            "together": convoy.together[group],
            "control_bytes": convoy.control,
        }
        for (order, size), convoy in found.items()
        for group in range(subgroups)
    ]
    claims, means = _claims(found, subgroups)
    title = "A chain of subgroups of 3; 2 % of the multicasts come 200 ms late"
    figure, [axes] = panels(title, ("subgroup, counted from the message's own", "mean latency (ms)"))
    for order, label in ORDERS.items():
        axes.plot(range(1, subgroups + 1), means[order], "o-", label=label)
    axes.set_yscale("log")
    axes.set_xticks(range(1, subgroups + 1))
    axes.legend()
    return Outcome(rows, claims, figure)


def _claims(found: dict[tuple[str, int], Convoy], subgroups: int) -> tuple[list[Claim], dict[str, list[float]]]:
    from whence.paper.frame import Claim

    last, vector, small = subgroups - 1, found["vector", 3], found["first-unstable", 3]
    means = {order: [round(found[order, 3].mean(g), 1) for g in range(subgroups)] for order in ORDERS}
    bursts = {order: [round(x, 2) for x in found[order, 3].together] for order in ORDERS}
    nowhere = {f"{order} of {size}": round(c.control, 1) for (order, size), c in found.items()}
    claims = [
        Claim("vector clocks: latency grows from subgroup to subgroup", vector.mean(last) > 3 * vector.mean(0), means),
        Claim("vector clocks: servers deliver in bursts", max(vector.together) > 1.5, bursts),
        Claim("the first generation of Fig. 3 has less of it", found["first", 3].mean(last) < vector.mean(last), means),
        Claim(
            "carrying all that is not stable removes it: each subgroup costs a few delays, and there are no bursts",
            small.mean(last) < 3 * subgroups * small.setting.delay and max(small.together) < 1.3,
            {"means": means, "together": bursts},
        ),
        Claim(
            "its price falls with the size of the subgroups",
            small.control < found["first-unstable", 6].control,
            {"control_bytes": nowhere},
        ),
    ]
    return claims, means
