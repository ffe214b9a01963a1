"""Helpers of the simulator's tests: run a scenario given as text, look at what members delivered."""

from __future__ import annotations

from collections.abc import Sequence

from whence.audit.trace import Row
from whence.core.member import Member
from whence.lab.sim.actions import Action, show
from whence.lab.sim.chaos import expand
from whence.lab.sim.run import play
from whence.lab.sim.scenario import Loaded, parse
from whence.lab.sim.world import MakeMember, World

MS = 10**6
ROUND = 100 * MS

BASE = """
round = "100ms"
[network]
latency = "normal"
mean = "2ms"
sd = "200us"
"""


class Run:
    """A finished run."""

    def __init__(self, loaded: Loaded, seed: int = 1, extra: Sequence[Action] = (), make: MakeMember = Member) -> None:
        self.rows: list[Row] = []
        schedule = tuple(sorted((*expand(loaded, seed), *extra), key=lambda a: a.at))
        self.world = World(loaded, seed, schedule=schedule, sink=self.rows.append, make=make)
        self.violation = play(self.world)

    def clean(self) -> Run:
        """The run, if nothing was violated."""
        assert self.violation is None, f"{show(self.world.schedule)}\n{self.violation}"
        return self

    def of(self, name: str, kind: str) -> list[Row]:
        """The rows of one kind of a process, in all its lives."""
        return [r for r in self.rows if r.kind == kind and r.member.startswith(f"{name}#")]

    def delivered(self, name: str) -> list[str]:
        """The events a process has delivered, in that order."""
        return [r.event or "" for r in self.of(name, "deliver")]

    def inversions(self) -> int:
        """Events delivered after something that depends on them. Call once."""
        return sum(line.inversions for line in self.world.tally.report("", None).lines)

    def published(self) -> list[Row]:
        return [r for r in self.rows if r.kind == "publish"]

    def state(self, name: str, cluster: int = 0) -> dict[tuple[int, int, str], int]:
        """The application's state of a process at the end."""
        return self.world.hosts[name].instances[cluster].app.seen

    def count(self, name: str, cluster: int = 0) -> int:
        return self.world.hosts[name].instances[cluster].app.count


def simulate(text: str, seed: int = 1, extra: Sequence[Action] = (), make: MakeMember = Member) -> Run:
    """Run a scenario given as TOML text (without its [network], which is `BASE`'s)."""
    head, _, tail = BASE.partition("[network]")
    if "[network]" in text:
        return Run(parse(head + text), seed, extra, make)
    first, bracket, rest = text.partition("\n[")
    return Run(parse(head + first + "\n[network]" + tail + bracket + rest), seed, extra, make)
