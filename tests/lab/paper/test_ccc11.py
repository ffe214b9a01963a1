"""CCC11's evaluation: what is measured is what is said, and experiments run end to end (small)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.data import recorded
from tests.long import few
from whence.cli import main
from whence.lab.paper.ccc11 import (
    availability,
    availability_run,
    editing,
    evaluation,
    fig4,
    fig5,
    live,
)
from whence.lab.paper.ccc11.evaluation import (
    FAILED,
    NEAR,
    UPLINK,
    Setting,
    success,
    tuned,
    tuned_round,
    tuned_runs,
)
from whence.lab.paper.frame import RunOptions
from whence.lab.sim.run import run as simulate

# -- the parts


def test_a_round_carries_its_messages() -> None:
    """Four messages of 5,000 bytes at once need 16 ms of the uplink, whoever sends them."""
    sendings = [(who, r + who / 10, 5000) for r in range(50) for who in range(5) for _ in range(4)]
    sendings.sort(key=lambda s: s[1])
    assert tuned_round(sendings) == pytest.approx(4 * 5000 / UPLINK * 1e3, rel=0.01)


def test_pilots_are_taken_together() -> None:
    """Grid points 0 and 1 fail for both, 2 for one only, and so little that it does not matter."""
    curves = [{"first": 1, "shares": [0.5, 0.003, 0.0]}, {"first": 2, "shares": [0.0005]}]
    assert tuned(curves) == evaluation.GRID[2]
    assert tuned(curves[:1]) == evaluation.GRID[3]


def test_a_few_large_messages_may_fail() -> None:
    sendings = [(0, float(r), 50_000 if r == 500 else 5000) for r in range(1000)]
    assert tuned_round(sendings, failed=0.002) == pytest.approx(5000 / UPLINK * 1e3, rel=0.01)
    assert tuned_round(sendings, failed=0.0) == pytest.approx(50_000 / UPLINK * 1e3, rel=0.01)


def test_the_tuned_round_gives_the_failures_it_was_tuned_for() -> None:
    setting: dict[str, Any] = {"members": 12, "coordinators": 4, "load": 3.0, "rounds": 40, "variant": "R1"}
    assert evaluation.point(setting)["failed"] == 0  # no uplink to fill
    [row] = tuned_runs(RunOptions(), [setting], 2, ("members", "round_ms"))
    assert 0 < row["failed"] <= FAILED and row["seeds"] == 2 and row["round_ms"] < 100
    assert 1 / NEAR <= row["shortest"] <= 1
    tight = evaluation.point({**setting, "round_ms": row["round_ms"] / 2, "uplink": UPLINK})
    assert tight["failed"] > 10 * FAILED


def test_failed_connections_are_those_that_the_network_gave_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a whole run the replay of its sendings counts what the simulated network counted."""
    outcomes = []

    def run(loaded: Any, seed: int, **how: Any) -> Any:
        meter = how["watch"].__self__
        meter.start, meter.stop = 0, 1 << 62
        outcomes.append(simulate(loaded, seed, **how))
        return outcomes[-1]

    monkeypatch.setattr(evaluation, "run", run)
    setting = Setting(members=12, coordinators=4, load=3.0, rounds=20, round_ms=3.0, uplink=UPLINK)
    meter, result = evaluation.measure(setting)
    given_up = outcomes[0].report.network["overflowed"]
    assert given_up > 50
    assert result["failed"] * len(meter.sendings) == pytest.approx(given_up, rel=0.01)


def test_gossip_alone_inverts_and_the_causal_layer_does_not() -> None:
    busy = {"members": 10, "coordinators": 10, "load": 5.0, "rounds": 15}
    assert evaluation.point({**busy, "variant": "gossip"})["inversions"] > 0.01
    for variant in ("causal", "R1", "R4"):
        assert evaluation.point({**busy, "variant": variant})["inversions"] == 0


def test_what_gossip_brought_meanwhile_is_no_failed_recovery() -> None:
    def rate(**run: float) -> float:
        return success({"runs": [run]}).value

    assert rate(asked=10, overtaken=2, answered=8) == 1
    assert rate(asked=10, overtaken=0, answered=8) == 0.8
    nothing = success({"runs": [{"asked": 0.0, "overtaken": 0.0, "answered": 0.0}]})
    assert (nothing.low, nothing.high) == (0, 1)


def test_as_published_recovery_asks_once_and_gives_up() -> None:
    """With loss, ours recovers what it asks for again; the published protocol asks once."""
    setting = {"members": 12, "coordinators": 4, "load": 3.0, "rounds": 30, "loss": 0.2, "fanout": 2, "variant": "R4"}
    ours, printed = evaluation.point(setting), evaluation.point({**setting, "once": True})
    assert printed["lost"] >= ours["lost"] and printed["requests"] < ours["requests"]


def test_a_history_that_is_too_short_delivers_twice() -> None:
    busy = {"members": 12, "coordinators": 12, "load": 6.0, "rounds": 15, "variant": "gossip"}
    few, enough = (evaluation.point({**busy, "history": n})["repeated"] for n in (4, 400))
    assert few > 0.1 and enough == 0


def test_ageing_alone_keeps_the_youngest() -> None:
    """Half of what Theorem 5.1 needs at a time: another buffer, another success."""
    small = {"members": 12, "coordinators": 4, "load": 3.0, "rounds": 30, "loss": 0.1, "fanout": 2, "buffer": 0.5}
    runs = [evaluation.point({**small, "aging": aging}) for aging in (False, True)]
    assert runs[0]["asked"] and runs[0]["answered"] / runs[0]["asked"] != runs[1]["answered"] / runs[1]["asked"]


# -- availability


def test_the_model_of_section_4_4() -> None:
    tried, found = availability.model(200, 0.5, 0.1, 500, 1)
    assert tried > 1000 and found == tried
    tried, found = availability.model(200, 0.5, 0.8, 500, 1)
    assert found < 0.9 * tried


def test_lives_of_coordinators() -> None:
    actions, judged = availability_run.schedule(availability_run.RingRun(tickets=12, alpha=0.5, failure=0.1))
    crashed = [a.who for a in actions if isinstance(a, availability_run.Crash)]
    joined = [a.who for a in actions if isinstance(a, availability_run.CoordinateAction)]
    assert len(crashed) == len(joined) > 10 and "n0" not in crashed
    assert len(set(crashed)) == len(crashed) and set(judged) <= set(joined)


def test_a_founder_may_crash_like_the_others() -> None:
    setting = availability_run.RingRun(tickets=12, alpha=0.5, failure=0.1, founder=True)
    assert "n0" in [a.who for a in availability_run.schedule(setting)[0]]
    many = {"tickets": 16, "alpha": 0.5, "failure": 0.03, "crashes": 20, "founder": True}
    found = availability_run.point({**many, "seed": 2})  # of seed 0 the core dies before a join is over
    assert found["founder_crashed"] and found["core_joined"] == found["core_joins"] > 0


def test_a_few_crashes_cost_nobody_a_ticket() -> None:
    found = availability_run.point({"tickets": 16, "alpha": 0.5, "failure": 0.01, "crashes": 8})
    assert found["joined"] == found["joins"] > 0 and not found["died"]
    assert 0.5 < found["reclaim_sum"] / found["reclaims"] < 6


def test_a_core_dies_of_lost_quorums_and_then_nobody_gets_a_ticket() -> None:
    found = availability_run.point({"tickets": 12, "alpha": 0.5, "failure": 0.15, "crashes": 60, "k": 1, "seed": 1})
    assert found["died"] and found["joined"] < found["joins"]
    assert found["core_joined"] == found["core_joins"]


def test_reclaiming_takes_longer_than_the_paper_says() -> None:
    """Its TempRounds counts the tickets of the excluder, too."""
    for alpha in (0.25, 0.5):
        assert 1 / alpha < availability.as_printed_reclaims(alpha) < 2 / alpha + 1


# -- end to end, small


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fig4, "QUICK", (6, 9, 12))
    monkeypatch.setattr(fig4, "INSTANCES", (("5 updaters", 2), ("25 updaters", 4), ("all updaters", 0)))
    monkeypatch.setattr(fig5, "MEMBERS", 6)
    monkeypatch.setattr(evaluation, "TRIES", 1)
    monkeypatch.setattr(fig5, "QUICK", (0.2, 0.5))


CHEAP = ["ccc11/fig5", "ccc11/fig4"]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", few(CHEAP, 1))
def test_an_experiment_end_to_end(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert main(["paper", name, "--quick", "--out", str(tmp_path)]) == 0
    stem = name.rpartition("/")[2]
    assert {f.name for f in tmp_path.iterdir()} == {
        "claims.json", *(f"{stem}.{end}" for end in ("csv", "parquet", "png", "svg"))
    }  # fmt: skip
    claims = json.loads((tmp_path / "claims.json").read_text())["claims"]
    assert all(c["text"] for c in claims) and sum(c["worst"] is not None for c in claims) >= 5


def test_an_editing_session_as_load(tmp_path: Path) -> None:
    """Two write in turns, then at the same time; who reads along ends with their text."""
    txns = [
        {"parents": [i - 1] if i else [], "agent": i // 3 % 2, "patches": [[i, 0, chr(97 + i % 26)]]} for i in range(30)
    ]
    txns += [
        {"parents": [29], "agent": 0, "patches": [[0, 0, "A"]]},
        {"parents": [29], "agent": 1, "patches": [[30, 0, "Z"]]},
    ]
    text = "A" + "".join(chr(97 + i % 26) for i in range(30)) + "Z"
    path = tmp_path / "session.json"
    path.write_text(json.dumps({"endContent": text, "numAgents": 2, "txns": txns}))
    for variant, loss in (("causal", 0.0), ("R4", 0.1)):
        setting = {"path": str(path), "members": 5, "transactions": 10**6, "variant": variant, "loss": loss}
        found = editing.point({**setting, "seed": 1})
        assert found["written"] == 1 and found["same_text"] == 1 and found["operations"] == 1
    part = editing.beginning(editing.session(path), 10)
    assert sum(map(len, part.authors)) == 10 and part.final == ""


@pytest.mark.parametrize("kind", ["synthetic", "recorded"])
def test_the_beginning_of_a_session(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(recorded("friendsforever.json.gz")) if kind == "recorded" else ""
    monkeypatch.delenv("WHENCE_DATA", raising=False)
    setting = {"path": path, "members": 4, "transactions": 300, "variant": "R1"}
    found = editing.point({**setting, "loss": 0.05})
    assert found["same_text"] == 1 and found["transactions"] == 300


def test_few_of_many_publish_on_sockets() -> None:
    """Figure 4's: two of five, in processes of which one has none of them."""
    size = live.Size(members=5, processes=2, rounds=20, coordinators=2, round_ms=100.0)
    [row] = live.over_runs(RunOptions(seed=os.getpid()), size, [4.0], ["R1"], 1)
    assert row["coordinators"] == 2 and 1 < row["events"] <= 2 * 2 * 20 and row["pairs"] == 4 * row["events"]
    assert row["inversions"] == 0
