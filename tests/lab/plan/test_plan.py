"""The planner: its answers are the members' own formulas, and the simulator bears its predictions out."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.long import few
from whence.cli import main
from whence.core.cast import sizing
from whence.core.clock import Incarnation
from whence.core.config import MS
from whence.core.order.recovery import buffer_size
from whence.errors import ConfigError
from whence.lab import plan as planner
from whence.lab import spread
from whence.lab.paper.ccc11 import planner as predict
from whence.lab.plan import ERRORS, PlanQuestion, recovery_fanout
from whence.lab.sim.scenario import config_of, parse
from whence.lab.sim.settings import to_toml

QUESTION = PlanQuestion(members=40, publishers=5, rate=2.0, loss=0.05, target=0.999)


def test_settings_are_the_formulas_of_the_members() -> None:
    p = planner.plan_cluster(QUESTION)
    chosen = sizing.choose(40, 0.05, 0.999, "eager")
    assert (p.fanout, p.termination) == (chosen.fanout, chosen.termination)
    assert p.reach_gossip == pytest.approx(chosen.probability) and chosen.probability >= 0.999
    assert p.round_ms == 100 and p.load == pytest.approx(1.0)
    assert p.B_theorem == buffer_size([p.load], p.needed_rounds) <= p.B
    waits = (p.time_to_terminate_ms + p.time_to_recover_ms) / p.round_ms
    assert p.needed_rounds == 2 * p.time_to_terminate_ms / p.round_ms + waits
    assert p.k_theorem == recovery_fanout(40, 0.0) == 1 <= p.k
    assert recovery_fanout(100, 0.02) == 4
    with pytest.raises(ConfigError):
        recovery_fanout(10, 1.5)


def test_crashes_count_as_loss_and_raise_k() -> None:
    calm, bad = (planner.plan_cluster(replace(QUESTION, crash=crash)) for crash in (0.0, 0.1))
    assert bad.question.swallowed == pytest.approx(1 - 0.95 * 0.9)
    assert bad.fanout * bad.termination > calm.fanout * calm.termination
    assert bad.k == max(bad.k, recovery_fanout(40, 0.1)) == 8


def test_k_is_capped_where_the_theorem_grows_with_the_cluster() -> None:
    p = planner.plan_cluster(PlanQuestion(members=2000, publishers=2, rate=1.0, crash=0.05, target=0.9))
    assert p.k_theorem == 200 and p.k == planner.MOST_ASKED
    assert any("Theorem 5.2" in note for note in p.notes)


def test_the_scenario_gives_members_the_planned_settings() -> None:
    p = planner.plan_cluster(replace(QUESTION, crash=0.02))
    loaded = parse(to_toml(planner.scenario(p)))
    scenario, cluster = loaded.scenario, loaded.scenario.cluster[0]
    config = config_of(scenario, cluster, "causal", scenario.network.mean)
    assert (config.cast.fanout, config.cast.termination, config.ordering.k) == (p.fanout, p.termination, p.k)
    assert config.ordering.buffer == p.B
    assert config.ordering.time_to_terminate_ns == round(p.time_to_terminate_ms * 1e6)
    assert scenario.chaos is not None and scenario.chaos.crash is not None
    down = scenario.chaos.down / scenario.chaos.crash / 40  # the share that is down at a time
    assert down == pytest.approx(0.02, rel=0.01)


def test_sizes_are_those_of_real_messages() -> None:
    sizes = planner.message_sizes(QUESTION, 18, 10_000)
    more = planner.message_sizes(replace(QUESTION, publishers=10), 18, 10_000)
    entry = len(b"\x92") + 9 + 3  # (incarnation: 64 bits, seq) as msgpack
    assert more.fixed - sizes.fixed == pytest.approx(5 * entry, abs=2)
    assert more.frame - sizes.frame == pytest.approx(5 * entry, abs=2)
    assert Incarnation(1, 0, 1).packed >= 1 << 32  # which is why an entry has so many bytes


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("members", 1, "members is 1"),
        ("publishers", 41, "1 to 40"),
        ("rate", 0.0, "more than 0"),
        ("loss", 1.0, "loss is 1.0"),
        ("crash", -0.1, "crash is -0.1"),
        ("target", 1.0, "between 0 and 1"),
        ("payload", 3, "payload is 3"),
        ("latency_ns", 5, "latency"),
    ],
)
def test_bad_questions_are_named(field: str, value: float, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        replace(QUESTION, **{field: value})


@settings(max_examples=25)
@given(
    st.integers(2, 120),
    st.floats(0, 0.3),
    st.floats(0, 0.1),
    st.sampled_from([0.5, 0.9, 0.999]),
    st.sampled_from(["eager", "tree"]),
)
def test_any_plan_makes_sense(members: int, loss: float, crash: float, target: float, mode: str) -> None:
    q = PlanQuestion(
        members=members, publishers=1 + members // 3, rate=1.0, loss=loss, crash=crash, target=target, mode=mode
    )  # type: ignore[arg-type]
    p = planner.plan_cluster(q)
    assert p.reach_gossip >= target or p.notes
    assert 0 < p.reach_gossip <= 1 and p.reach_gossip <= p.reach + 1e-9 <= 1 + 1e-9
    assert 0 < p.latency_p50_ms <= p.latency_p99_ms
    assert 1 <= p.k <= max(1, members - 1) and p.bytes_per_s > 0


def test_trees_are_chosen_where_they_save_most_packets_and_little_is_lost() -> None:
    large = replace(QUESTION, members=60, publishers=4, rate=50.0, loss=0.0, crash=0.0)
    chosen = planner.choose(large)
    eager = planner.plan_cluster(replace(large, mode="eager"))
    assert chosen.question.mode == "tree"
    assert 1 <= chosen.packets_per_delivery < 3 and eager.packets_per_delivery > 10
    assert chosen.latency_p50_ms == 20 and chosen.latency_p99_ms < 1.5 * eager.latency_p99_ms
    for change in ({"members": 5}, {"loss": 0.05}, {"rate": 0.01}):  # all within reach; late repair; nothing to save
        assert planner.choose(replace(large, **change)).question.mode == "eager"


def test_latency_is_counted_in_hops() -> None:
    """Tripling the latency triples it; a lost push, and what it holds back, waits for recovery."""
    near, far = (planner.plan_cluster(replace(QUESTION, latency_ns=ms * MS, target=0.99999)) for ms in (10, 30))
    assert far.latency_p50_ms == 3 * near.latency_p50_ms and far.latency_p99_ms == 3 * near.latency_p99_ms
    assert 1 <= near.latency_p50_ms / 10 <= near.latency_p99_ms / 10 <= near.termination
    thin = planner.plan_cluster(replace(QUESTION, target=0.3))
    assert thin.latency_p50_ms < thin.time_to_terminate_ms < thin.latency_p99_ms
    busy = planner.plan_cluster(replace(QUESTION, target=0.9, rate=50.0))
    calm = planner.plan_cluster(replace(QUESTION, target=0.9, rate=0.1))
    assert calm.latency_p99_ms < busy.latency_p99_ms
    tree = planner.plan_cluster(replace(QUESTION, mode="tree", loss=0.05))
    assert tree.latency_p99_ms > 100 > tree.latency_p50_ms  # after the next round's announcement


def test_what_is_missed_costs_questions_and_answers() -> None:
    sure, thin = (planner.plan_cluster(replace(QUESTION, target=t)) for t in (0.99999, 0.3))
    for p in (sure, thin):
        copies = spread.PrCast(40, p.fanout, p.termination, 0.05, "eager").copies()
        asked = p.events_bytes_per_s - 10 * (1.1 * p.sizes.frame + 24) * copies
        want = 10 * (1 - p.coverage) * (p.k + 1) * (p.sizes.ask + p.coverage * p.sizes.frame)
        assert asked == pytest.approx(want, abs=1e-6)


@pytest.mark.parametrize("n", few(range(3), 1))
def test_predictions_hold_at_settings_that_nobody_tuned_for(n: int) -> None:
    """A few of the many that `whence paper ccc11/planner` tries; small, so that a test can afford them."""
    small = [q for q in predict.questions(40, seed=5) if q.members <= 30 and q.publishers <= 8]
    for check in predict.check(small[n : n + 1], seeds=4, events=80):
        assert check["events"] > 100
        assert not [c for c in check["compared"] if not c["within"]], check


def test_a_wrong_prediction_is_seen() -> None:
    """The comparison can fail: the measurement of one plan does not fit another's."""
    lossy = predict.simulated(PlanQuestion(members=12, publishers=2, rate=4.0, loss=0.3, target=0.3), 40)
    frames = predict.simulate(lossy, 40, seed=1)
    sure = predict.simulated(PlanQuestion(members=12, publishers=2, rate=4.0, loss=0.3, target=0.999), 40)
    compared = predict.compare(sure, [frames], 40)["compared"]
    assert not all(c["within"] for c in compared) and {c["name"] for c in compared} == set(ERRORS)


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    ask = ["plan", "--members", "20", "--publishers", "3", "--rate", "1", "--target", "0.9"]
    assert main(ask) == 0
    assert "Theorem 5.1" in capsys.readouterr().out
    assert main([*ask, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["fanout"] >= 1
    assert main([*ask, "--toml"]) == 0
    assert parse(capsys.readouterr().out).scenario.members == 20
    assert tomllib.loads(to_toml(planner.scenario(planner.plan_cluster(QUESTION))))["members"] == 40
    assert main([*ask, "--toml", "--json"]) == 2
    assert "--toml" in capsys.readouterr().err


def test_the_command_checks(capsys: pytest.CaptureFixture[str]) -> None:
    ask = ["plan", "--members", "12", "--publishers", "2", "--rate", "4", "--target", "0.9", "--check", "--seeds", "2"]
    assert main([*ask, "--events", "80", "--json"]) in (0, 1)
    done = json.loads(capsys.readouterr().out)
    assert done["check"]["events"] > 100 and len(done["check"]["compared"]) == len(ERRORS)


def test_the_commands_of_the_document_run(capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[3] / "docs" / "planner.md").read_text(encoding="utf-8")
    commands = re.findall(r"^whence (plan .*?)(?: >.*)?$", text, re.MULTILINE)
    plain = [c for c in commands if "--check" not in c]
    assert len(commands) == 4 and len(plain) == 3
    for command in plain:
        assert main(command.split()) == 0
    assert capsys.readouterr().out
    for name, error in ERRORS.items():
        assert error.text in text, f"the document does not say how good {name} is"
