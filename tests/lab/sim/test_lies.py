"""A third of the members lie: what the others keep."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import msgspec
import pytest

from tests.lab.sim.runs import MS, simulate
from whence.core import ports
from whence.core.cast import Gossip
from whence.core.member import Member
from whence.core.order.messages import Snapshot
from whence.errors import ConfigError
from whence.lab.sim.actions import Action, Crash, PublishAction
from whence.lab.sim.run import play
from whence.lab.sim.scenario import Loaded, load, parse
from whence.lab.sim.world import World


def liars(**cluster: object) -> Loaded:
    loaded = load(Path(str(files("whence.lab") / "scenarios" / "liars.toml")))
    changed = msgspec.structs.replace(loaded.scenario.cluster[0], **cluster)
    return msgspec.structs.replace(loaded, scenario=msgspec.structs.replace(loaded.scenario, cluster=(changed,)))


@pytest.mark.parametrize("ring", ["neighbours", "council"])
def test_the_honest_keep_order_tickets_and_bounds(ring: str) -> None:
    world = World(liars(ring=ring), 2)
    assert play(world) is None  # no inversion, no two owners, no disagreement, every buffer within its bound
    report = world.tally.report("liars", None)
    assert report.counters["lies"] > 400 and report.counters["cut_offs"] > 0
    assert not report.not_published  # nobody lost the right to publish, in any round
    assert report.tickets.get("lost", 0) == 0
    assert sum(line.delivered for line in report.lines) > 1000
    honest = [h.instances[0] for h in world.hosts.values() if h.name not in world.liars[0]]
    assert len({i.app.count for i in honest if i.order == "reliable"}) == 1


def test_a_careful_liar_is_not_found_out() -> None:
    """Else the test above would only show what a member does with those it has cut off."""
    world = World(liars(liars=2), 2)
    assert play(world) is None
    report = world.tally.report("liars", None)
    assert 0 < report.counters["cut_offs"] < 2 * (len(world.hosts) - 1)


def test_liars_cannot_be_coordinators() -> None:
    with pytest.raises(ConfigError, match="n2 is a liar and a coordinator"):
        parse("members = 3\nwire = true\n[cluster]\ntickets = 3\nliars = 1\n")
    with pytest.raises(ConfigError, match="wire"):
        parse('members = 3\n[chaos]\nlie = "1r"\n')


CROWD = """
members = 8
duration = "20s"
settle = "20s"
[cluster]
tickets = 3
order = { causal = 5, reliable = 3 }
"""


class Inventor(Member):
    """n7 tells in every message of 400 members that are not there."""

    def handle(self, input: ports.Input, now: int) -> list[ports.Output]:
        out = super().handle(input, now)
        if not self.me.startswith("n7#"):
            return out
        crowd = tuple((f"ghost{k}#1", 0) for k in range(400))
        for at, step in enumerate(out):
            if isinstance(step, ports.Send) and isinstance(step.message, Gossip):
                told = msgspec.structs.replace(step.message, members=((self.me, 0), *crowd))
                out[at] = ports.Send(step.to, told, step.reliable)
        return out


def test_invented_members_starve_nobody() -> None:
    """Nothing is skipped at the honest ones, copies are counted, and nobody takes a ghost for a member."""
    words = [PublishAction(at=(5000 + 20 * i) * MS, who=f"n{i % 2}", copies=2) for i in range(200)]
    run = simulate(CROWD, 1, words, make=Inventor).clean()
    assert run.world.tally.acknowledged > 150 and not run.world.tally.too_few_copies
    for host in run.world.hosts.values():
        member = host.instances[0].member
        assert not [m for m in member.members() if m.startswith("ghost")]
        assert member.ordering.stats.skipped == 0


RECEIVER = """
members = 4
duration = "14s"
settle = "10s"
[cluster]
tickets = 3
roles = true
liars = 1
order = { causal = 2, reliable = 2 }
"""


class Poisoner(Member):
    """n3 may only receive. In each snapshot that it gives, others have published so much that nobody has ever seen."""

    ahead = 1000

    def handle(self, input: ports.Input, now: int) -> list[ports.Output]:
        out = super().handle(input, now)
        for at, step in enumerate(out):
            if self.me.startswith("n3#") and isinstance(step, ports.Send) and isinstance(step.message, Snapshot):
                clock = step.message.clock
                T = tuple((inc or 1 << 48, seq + self.ahead) for inc, seq in clock.T)
                lie = msgspec.structs.replace(step.message, clock=msgspec.structs.replace(clock, T=T, past=T))
                out[at] = ports.Send(step.to, lie, step.reliable)
        return out


@pytest.mark.parametrize("ahead", [1000, 1 << 30], ids=["in bounds", "absurd"])
@pytest.mark.parametrize("seed", range(2))
def test_a_poisoned_snapshot_costs_nobody_an_event(ahead: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is cut off for it, nobody waits for what was never published, and joiners get in."""
    monkeypatch.setattr(Poisoner, "ahead", ahead)
    words: list[Action] = [PublishAction(at=(5000 + 40 * i) * MS, who=f"n{i % 2}", copies=2) for i in range(150)]
    words += [Crash(at=at * MS, who=who, lasts=300 * MS) for at, who in ((3000, "n1"), (7000, "n2"), (9000, "n1"))]
    run = simulate(RECEIVER, seed, words, make=Poisoner).clean()
    assert run.world.tally.acknowledged > 100
    for host in run.world.hosts.values():
        assert host.instances[0].member.ordering.stats.skipped == 0
