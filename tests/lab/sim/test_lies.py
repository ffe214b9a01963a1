"""A third of the members lie: what the others keep."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import msgspec
import pytest

from whence.errors import ConfigError
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
