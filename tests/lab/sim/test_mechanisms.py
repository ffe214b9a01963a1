"""Every mechanism of the survey in the same stack: the same members, simulator, oracle, trace and hostile world."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from tests.lab.sim.runs import Run
from tests.lab.sim.survey import short
from tests.long import few
from whence.audit.judge import judge
from whence.cli import main
from whence.core.config import Config
from whence.core.member import Member
from whence.core.order import MECHANISMS
from whence.core.order.stamped import StampedOrdering
from whence.core.order.survey.base import Message, Wait
from whence.errors import ConfigError
from whence.lab.sim.run import run
from whence.lab.sim.scenario import parse
from whence.lab.sim.soak import TIMED, with_mechanism


def test_all_that_order_a_multicast_are_there() -> None:
    page = (Path(__file__).parents[3] / "docs" / "survey.md").read_text(encoding="utf-8")
    table = page.partition("| `mechanism` |")[2]
    assert re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE) == list(MECHANISMS)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("seed", few([2, 3], 1))
def test_the_hostile_world_inverts_nothing(mechanism: str, seed: int) -> None:
    done = Run(short(mechanism), seed).clean()
    report = judge(done.rows)  # the trace alone, as the audit sees it
    assert report.ok and report.total.inverted == report.total.duplicates == 0
    assert report.published > 80 and report.total.deliveries > 6 * report.published
    assert {r.reason for r in done.rows if r.kind == "join"} == {"genesis", "snapshot", "checkpoint"}
    assert {r.order for r in done.rows if r.kind == "join"} == {"causal"}
    if mechanism not in TIMED:  # those drop what is late by their clocks
        assert report.total.lost < 0.02 * report.total.deliveries


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_what_is_never_recovered_is_skipped_and_nothing_is_inverted(mechanism: str) -> None:
    """Without recovery every loss of gossip is for good: the rules of skipping are all there is."""
    lossy = {"cluster.recovery": "off", "cluster.mode": "eager", "network.loss": 0.3, "cluster.workload.rate": 1.0}
    outcome = run(short(mechanism, **lossy), 4)
    assert outcome.violation is None, outcome.violation
    [line] = outcome.report.lines
    assert line.inversions == 0
    if mechanism != "first-unstable":  # which brings everything along that others may miss
        assert line.over_gap > 0 and line.given_up > 0 and line.lost > 0


@pytest.mark.parametrize("mechanism", TIMED)
def test_clocks_that_are_wrong_cost_events_and_nothing_else(mechanism: str) -> None:
    """What goes by clocks assumes that they agree. An hour apart it drops what others date ahead, and does not wait."""
    wrong = {"clocks.offset": "1h", "clocks.drift": 100, "cluster.abandon": "10r"}
    outcome = run(short(mechanism, **wrong), 1)
    assert outcome.violation is None, outcome.violation
    [line] = outcome.report.lines
    assert line.inversions == 0 and line.late > line.published


QUIET = """
members = 6
round = "100ms"
duration = "20r"
settle = "60r"
{more}
[network]
latency = "normal"
mean = "5ms"
sd = "2ms"
reorder = 0.2
reorder_by = "60ms"
[cluster]
mechanism = "{mechanism}"
target = 0.9999999
recovery = "Rk"
[cluster.workload]
rate = 0.5
"""


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_without_losses_everybody_gets_everything(mechanism: str) -> None:
    outcome = run(parse(QUIET.format(mechanism=mechanism, more="")), 1)
    assert outcome.violation is None, outcome.violation  # the check `lost` among others
    [line] = outcome.report.lines
    assert line.lost == line.inversions == line.given_up == 0 and line.published > 30
    if mechanism == "first-unstable":
        assert line.blocked == line.blocked_ms == 0
    elif mechanism != "first":  # which only waits for its sender's last one
        assert line.blocked > 0 and line.blocked_ms > 0


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_one_founds_and_all_others_come_and_go(mechanism: str) -> None:
    more = 'bootstrap = "join"\n[chaos]\nleave = "3r"\naway = "4r"\nstart = "6r"'
    outcome = run(parse(QUIET.format(mechanism=mechanism, more=more)), 2)
    assert outcome.violation is None, outcome.violation
    assert outcome.report.joined["snapshot"] >= 8 and outcome.report.joined["genesis"] == 1
    assert outcome.report.join_ms > 0 and outcome.report.traffic["Snapshot"][0] >= 8


class Eager:
    """A mechanism that forgets to wait."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def wait(self, message: Message, now: int) -> Wait | None:
        return None


class Hasty(Member):
    """A member that forgets to wait."""

    def __init__(self, me: str, config: Config, rng: random.Random, checkpoint: bytes | None = None) -> None:
        super().__init__(me, config, rng, checkpoint)
        assert isinstance(self.ordering, StampedOrdering)
        self.ordering.process.mechanism = Eager(self.ordering.mechanism)
        self.ordering.found = lambda others: None  # type: ignore[method-assign]


def test_a_mechanism_that_does_not_wait_is_caught() -> None:
    kinds = {str(Run(short("vector"), seed, make=Hasty).violation) for seed in (1, 2, 3)}
    assert any("causal: inverted" in kind for kind in kinds), kinds


def test_a_stamp_of_another_mechanism_is_cut_off() -> None:
    done = Run(short("identifiers"), 5)
    assert done.violation is None and done.world.tally.cut_offs > 0 and done.world.tally.hostile > 0


def test_a_mechanism_is_chosen_on_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """And runs with other settings have other names: both may go into one directory of traces."""
    settings = ("cluster.mechanism=identifiers", "duration=20r", "members=5", "fault=[]")
    said = [word for setting in settings for word in ("--set", setting)]
    assert main(["sim", "hostile-survey", *said, "--json", "--trace", str(tmp_path)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["lines"][0]["inversions"] == 0 and report["lines"][0]["header_bytes"] > 0
    [file] = tmp_path.iterdir()
    assert file.name.startswith("hostile-survey-mechanism-identifiers-") and "/" not in report["scenario"]
    assert main(["sim", "hostile-survey", "--set", "cluster.mechanism=sundial"]) == 2
    assert "mechanism must be one of" in capsys.readouterr().err


def test_settings_that_make_no_sense_name_the_key() -> None:
    with pytest.raises(ConfigError, match="mechanism must be one of first, first-unstable"):
        with_mechanism("sundial")
    with pytest.raises(ConfigError, match="makes order causal"):
        with_mechanism("vector", {"cluster.order": "reliable"})
    survey = with_mechanism("physical", {"cluster.survey": {"skew": "3ms", "delay": "2r"}}).scenario.cluster[0].survey
    assert survey is not None and (survey.skew, survey.delay) == (3_000_000, 400_000_000)
    with pytest.raises(ConfigError, match="anchor_every must be at least 1"):
        with_mechanism("vector", {"cluster.survey": {"anchor_every": 0}})
    with pytest.raises(ConfigError, match="not a duration"):
        with_mechanism("physical", {"cluster.survey": {"skew": 3}})
