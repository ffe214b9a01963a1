"""What the world does with messages: to whom they go, what they weigh, what becomes of them on the way."""

from __future__ import annotations

import random

from tests.lab.sim.runs import BASE, MS, simulate
from whence.core import ports
from whence.core.clock import MemberId
from whence.core.config import Config
from whence.core.member import Member
from whence.core.order.messages import Recover
from whence.lab.sim.actions import Crash, Cut, LeaveAction, StartAction
from whence.lab.sim.run import play
from whence.lab.sim.scenario import parse
from whence.lab.sim.world import World

SMALL = """
members = 4
duration = "8s"
settle = "4s"
[cluster]
tickets = 2
coordinators = 2
order = "reliable"
recovery = "Rk"
[cluster.workload]
rate = 0.4
payload = "200B"
"""


class Listener(Member):
    """A member that keeps what it was told."""

    def __init__(self, me: MemberId, config: Config, rng: random.Random, checkpoint: bytes | None = None) -> None:
        super().__init__(me, config, rng, checkpoint)
        self.heard: list[ports.Input] = []

    def handle(self, input: ports.Input, now: int) -> list[ports.Output]:
        self.heard.append(input)
        return super().handle(input, now)


def test_a_stream_ends_with_the_life_it_was_opened_to_and_a_datagram_does_not() -> None:
    world = World(parse("members = 3\n" + BASE), 1, schedule=(), make=Listener)
    play(world)
    world.crash("n1")
    letters = world.tally.dead_letters
    host, message = world.hosts["n1"], Recover(1, ())
    world._arrive(host, 0, "n0#1", None, message)  # nobody is there
    assert world.tally.dead_letters == letters + 1
    world.start("n1", disk=True)
    member = host.instances[0].member
    assert isinstance(member, Listener) and member.me == "n1#2"
    world._arrive(host, 0, "n0#1", "n1#1", message)
    assert world.tally.dead_letters == letters + 2
    assert not any(isinstance(i, ports.Received) for i in member.heard)
    world._arrive(host, 0, "n0#1", None, message)
    world._arrive(host, 0, "n0#1", "n1#2", message)
    assert [i for i in member.heard if isinstance(i, ports.Received)] == [ports.Received("n0#1", message)] * 2


def test_a_narrow_uplink_costs_time_and_drops_what_does_not_fit() -> None:
    wide = simulate(SMALL).clean()
    network = BASE.partition("[network]")[2] + 'uplink = "80KB"\nqueue = "600B"\n'
    narrow = simulate(SMALL.replace("[cluster]", f"[network]{network}[cluster]", 1))
    assert wide.world.network.counts["bytes"] == 0  # sizes are not even computed
    stats = narrow.world.network.counts
    assert stats["bytes"] > 0 and stats["overflowed"] > 0

    def p50(run_world: World) -> float:
        return run_world.tally.report("x", None).lines[0].latency_ms["p50"]

    assert p50(narrow.world) > p50(wide.world)


def test_the_wire_makes_no_difference() -> None:
    """Encoded and decoded at every hop, or passed as objects: the same run, row by row."""
    plain = simulate(SMALL).clean()
    wired = simulate("wire = true\n" + SMALL).clean()
    assert plain.rows == wired.rows and wired.world.network.counts["bytes"] > 10_000


def test_what_makes_no_sense_does_nothing() -> None:
    """A schedule can be cut down only because an action never depends on another one."""
    senseless = [
        Crash(at=2000 * MS, who="n3"),
        Crash(at=2100 * MS, who="n3", lasts=100 * MS),  # down already: so it does not come back either
        LeaveAction(at=2500 * MS, who="n3"),
        StartAction(at=3000 * MS, who="n2"),  # up already
        Cut(at=3000 * MS, src="n3", dst="n0", lasts=MS),
        StartAction(at=4000 * MS, who="n3", disk=True),
        StartAction(at=4100 * MS, who="n3"),
    ]
    run = simulate(SMALL, extra=senseless).clean()
    assert [r.member for r in run.of("n3", "join")] == ["n3#1", "n3#2"]
    assert run.world.hosts["n2"].boot == 1 and run.state("n3") == run.state("n0")
