"""Broken members are found, and the run that shows it is made short enough to read."""

from __future__ import annotations

import random

import msgspec

from tests.lab.sim.runs import simulate
from whence.core.clock import MemberId
from whence.core.config import Config
from whence.core.member import Member
from whence.core.ports import Deliver, Input, Output
from whence.lab.sim.run import run
from whence.lab.sim.scenario import parse
from whence.lab.sim.shrink import shrink

replace = msgspec.structs.replace

SCENARIO = """
members = 8
round = "100ms"
duration = "9s"
settle = "3s"
[network]
latency = "normal"
mean = "2ms"
sd = "1ms"
loss = 0.05
dup = 0.02
[clocks]
drift = 100
[cluster]
tickets = 4
coordinators = 4
order = { causal = 5, reliable = 3 }
recovery = "Rk"
fanout = 3
termination = 2
[cluster.workload]
rate = 0.5
batch = 2
[chaos]
start = "3s"
crash = "4s"
cut = "2s"
slow = "500ms"
slow_by = "300ms"
churn = "3s"
"""


def careless(me: MemberId, config: Config, rng: random.Random, checkpoint: bytes | None = None) -> Member:
    """A member that says causal, and delivers without the causal check."""
    if config.order != "causal":
        return Member(me, config, rng, checkpoint)
    return Member(me, replace(config, ordering=replace(config.ordering, order="unordered")), rng, checkpoint)


class Stutterer(Member):
    """Hands every tenth frame to the application twice."""

    count = 0

    def handle(self, input: Input, now: int) -> list[Output]:
        out = super().handle(input, now)
        for step in list(out):
            if isinstance(step, Deliver):
                self.count += 1
                if self.count % 10 == 0:
                    out.append(step)
        return out


class Hoarder(Member):
    """A buffer that is not bounded as it says."""

    def buffers(self) -> dict[str, tuple[int, int]]:
        return {name: (fill, 20 if name == "B" else bound) for name, (fill, bound) in super().buffers().items()}


def test_a_failing_seed_becomes_a_handful_of_actions() -> None:
    loaded = parse(SCENARIO)
    outcome = next(o for o in (run(loaded, s, make=careless) for s in range(10)) if o.violation is not None)
    found = outcome.violation
    assert found is not None and found.kind == "order" and "causal: inverted" in found.what
    assert found.seed == outcome.report.seed
    assert len(outcome.schedule) > 30
    shrunk = shrink(loaded, found.seed, found, outcome.schedule, make=careless, budget=250)
    assert shrunk.violation.kind == "order"
    assert 2 <= len(shrunk.schedule) <= 8, shrunk.text()
    assert len(shrunk.loaded.scenario.names) < 8
    assert shrunk.text().count("\n") == len(shrunk.schedule) + 1
    # the file that is written fails in the same way, to the nanosecond
    again = parse(shrunk.toml())
    violation = run(again, make=careless).violation
    assert violation is not None and str(violation) == str(shrunk.violation)
    # and real members stand it
    assert run(again).violation is None


def test_the_checks_see_what_is_broken() -> None:
    text = SCENARIO.split("[chaos]")[0].replace('round = "100ms"\n', "")
    assert simulate(text).clean()
    for broken, kind in ((Stutterer, "twice"), (Hoarder, "buffer")):
        violation = simulate(text, make=broken).violation
        assert violation is not None and violation.kind == kind, kind


class Crashing(Member):
    """Raises an error of its own."""

    def handle(self, input: Input, now: int) -> list[Output]:
        out = super().handle(input, now)
        if any(isinstance(o, Deliver) for o in out):
            raise KeyError("oops")
        return out


class Sleepless(Member):
    """Wants to be woken at once, always."""

    def handle(self, input: Input, now: int) -> list[Output]:
        out = super().handle(input, now)
        self.wake_at = 0
        return out


class Forgetful(Member):
    """Starts from scratch whatever its disk says, and so uses its ids again or sees events twice."""

    def __init__(self, me: MemberId, config: Config, rng: random.Random, checkpoint: bytes | None = None) -> None:
        super().__init__(me, config, rng, checkpoint)
        if self._checkpoint is not None:
            clock = self._checkpoint.clock
            zero = replace(clock, T=tuple((0, 0) for _ in clock.T), past=tuple((0, 0) for _ in clock.past))
            self._checkpoint = replace(self._checkpoint, clock=zero)


def test_the_checks_see_errors_livelocks_and_forgotten_disks() -> None:
    text = SCENARIO.split("[chaos]")[0].replace('round = "100ms"\n', "")
    crash = '[[fault]]\nkind = "crash"\nwho = "n{}"\nat = "6s"\nfor = "1s"\ndisk = true\n'
    everybody = text + "".join(crash.format(i) for i in (5, 6))
    for broken, kinds in ((Crashing, {"core"}), (Sleepless, {"livelock"}), (Forgetful, {"order", "twice"})):
        violation = simulate(everybody, make=broken).violation
        assert violation is not None and violation.kind in kinds, violation
