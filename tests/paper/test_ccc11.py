"""CCC11's evaluation: what is measured is what is said, claims can fail, every experiment runs end to end (small)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.data import recorded
from whence.cli import main
from whence.paper import EXPERIMENTS
from whence.paper.ccc11 import (
    availability,
    availability_run,
    editing,
    evaluation,
    fig4,
    fig5,
    live,
    planner,
    theorems,
    world,
)
from whence.paper.ccc11.evaluation import FAILED, UPLINK, Setting, tuned, tuned_round
from whence.paper.ccc11.seeds import NEAR, fit, over_seeds, rate, tuned_runs
from whence.paper.frame import Context
from whence.paper.points import run_all
from whence.ring.config import need_alive
from whence.sim.run import run as simulate

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
    [row] = tuned_runs(Context(), [setting], 2, ("members", "round_ms"))
    assert 0 < row["failed"] <= FAILED and row["seeds"] == 2 and row["round_ms"] < 100
    assert 1 / NEAR <= row["shortest"] <= 1
    tight = evaluation.point({**setting, "round_ms": row["round_ms"] / 2, "uplink": UPLINK})
    assert tight["failed"] > 10 * FAILED


def test_failed_connections_are_those_that_the_network_gave_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a whole run the replay of its sendings counts what the simulated network counted."""
    outcomes = []

    def run(loaded: Any, seed: int, make: Any) -> Any:
        make.__self__.start, make.__self__.stop = 0, 1 << 62
        outcomes.append(simulate(loaded, seed, make=make))
        return outcomes[-1]

    monkeypatch.setattr(evaluation, "run", run)
    setting = Setting(members=12, coordinators=4, load=3.0, rounds=20, round_ms=3.0, uplink=UPLINK)
    meter, result = evaluation.measure(setting)
    given_up = outcomes[0].report.network["overflowed"]
    assert given_up > 50
    assert result["failed"] * len(meter.sendings) == pytest.approx(given_up, rel=0.01)


def test_larger_messages_mean_longer_rounds_and_later_events() -> None:
    few: dict[str, Any] = {"members": 12, "coordinators": 2, "load": 3.0, "rounds": 20}
    rows = tuned_runs(Context(), [few, {**few, "coordinators": 12}], 1, ("round_ms",))
    assert rows[1]["round_ms"] > 1.5 * rows[0]["round_ms"]
    assert rows[1]["latency_ms"] > 1.3 * rows[0]["latency_ms"]


def test_the_same_seed_is_the_same_run() -> None:
    setting = {"members": 10, "coordinators": 3, "load": 2.0, "rounds": 10, "seed": 7}
    assert evaluation.point(setting) == evaluation.point(setting) != evaluation.point({**setting, "seed": 8})


def test_gossip_alone_inverts_and_the_causal_layer_does_not() -> None:
    busy = {"members": 15, "coordinators": 15, "load": 7.5, "rounds": 15}
    assert evaluation.point({**busy, "variant": "gossip"})["inversions"] > 0.02
    for variant in ("causal", "R1", "R4"):
        assert evaluation.point({**busy, "variant": variant})["inversions"] == 0


def test_fits() -> None:
    assert fit([1, 2, 3], [3, 5, 7]) == pytest.approx({"a": 1.0, "b": 2.0, "r2": 1.0})
    assert fit([1, 10, 100], [0, 1, 2], logarithmic=True)["r2"] == pytest.approx(1.0)
    assert fit([1, 10, 100], [0, 1, 2])["r2"] < 0.95


def test_what_gossip_brought_meanwhile_is_no_failed_recovery() -> None:
    assert rate({"asked": 10, "overtaken": 2, "answered": 8, "seeds": 1})["success"] == 1
    assert rate({"asked": 10, "overtaken": 0, "answered": 8, "seeds": 1})["success"] == 0.8
    assert rate({"asked": 0, "overtaken": 0, "answered": 0, "seeds": 3})["success"] is None


def test_binomial_sums() -> None:
    assert theorems.binomial_above(10, 0.5, 4) == pytest.approx(638 / 1024)
    assert theorems.binomial_above(10, 0.5, 10) == 0


def test_runs_in_processes_keep_their_order() -> None:
    settings = [{"members": 6, "coordinators": 2, "load": 1.0, "rounds": 8, "seed": s} for s in (3, 1, 2)]
    runner = "whence.paper.ccc11.evaluation:point"
    assert run_all(runner, settings) == [evaluation.point(s) for s in settings]


def test_rows_over_seeds() -> None:
    setting = {"members": 6, "coordinators": 2, "load": 1.0, "rounds": 8}
    [row] = over_seeds(Context(), [setting], 2, ("members",))
    assert row["members"] == 6 and row["seeds"] == 2 and row["latency_ms_error"] >= 0


# -- claims can fail


def _fig4_rows(latency: float = 0.0, size: float = -1.0) -> list[dict[str, Any]]:
    """As the paper has them, for latencies that grow by so much a member, sizes by so many bytes."""
    rows = []
    for name, c in fig4.INSTANCES:
        for n in (25, 50, 75, 100, 125):
            full = c == 0
            row = {
                "instance": name,
                "members": n,
                "latency_ms": n * 2.0 if full else 10 * (n**0.15) + latency * n,
                "latency_rounds": n**0.15,
                "throughput": 1000 / n if full else 100.0,
                "message_bytes": n * 50.0 if full else 1000 + size * n,
                "failed": FAILED,
                "shortest": 1.0,
            }
            rows.append({**row, **{f"{k}_error": 0.0 for k in ("latency_ms", "throughput", "message_bytes")}})
    return rows


def test_claims_of_figure_4_can_fail() -> None:
    assert all(c.holds for c in fig4.claims(_fig4_rows()))
    assert [c.holds for c in fig4.claims(_fig4_rows(latency=1.0))].count(False) == 2
    assert [c.holds for c in fig4.claims(_fig4_rows(size=1.0))].count(False) == 2
    rows = _fig4_rows()
    rows[3]["failed"] = 1.1 * FAILED
    assert [c.holds for c in fig4.claims(rows)].count(False) == 1


def _live_rows(growing: float) -> list[dict[str, Any]]:
    return [
        {"where": where, "instance": name, "members": n, "lost_ordered": 0.0, "latency_rounds": 2.0}
        | {"overslept_rounds": 0.0}
        | {"bytes_a_round": 100.0 * n**power, "latency_at_uplink_ms": 5.0 * n**power}
        for where in fig4.WHERE
        for name, power in (("5 updaters", 0.0), ("all updaters", growing))
        for n in (10, 20)
    ]


def test_claims_of_the_live_figure_4_can_fail() -> None:
    assert all(c.holds for c in fig4.live_claims(_live_rows(1.0)))
    assert [c.holds for c in fig4.live_claims(_live_rows(0.1))] == [False, False, True, True]


def _fig5_rows(lost: float) -> list[dict[str, Any]]:
    rows = []
    for variant, bad, late in (("gossip", 0.2, 2.0), ("causal", 0.01, 2.5), ("R1", lost, 2.3), ("R4", lost, 2.3)):
        for p in (0.1, 0.5):
            row = {"variant": variant, "p": p, "seeds": 2, "lost_ordered": bad * p, "lost_ordered_error": 0.0}
            success = None if variant in ("gossip", "causal") else 0.98
            row |= {"latency_rounds": late, "latency_ms": late * 10, "asked": 100 * p}
            rows.append({**row, "success": success, "predicted_success": 0.99})
    return rows


def test_claims_of_figure_5_can_fail() -> None:
    assert all(c.holds for c in fig5.claims(_fig5_rows(0.001)))
    assert not all(c.holds for c in fig5.claims(_fig5_rows(0.1)))


def _editing_rows(**worse: float) -> list[dict[str, Any]]:
    """As one would have them; `worse`: figures of R1 where messages are lost."""
    good = {"written": 1.0, "seconds": 9.0, "lost": 0.0, "same_text": 1.0, "asked": 1, "answered": 1}
    rows = []
    for variant in editing.TRIED:
        for loss in (0.0, editing.USUAL):
            row = {"variant": variant, "loss": loss, "latency_ms": 100.0, "latency_p99_ms": 200.0, **good}
            if variant == "causal":
                row |= {"written": 0.2, "same_text": 0.0}
            rows.append(row | (worse if variant == "R1" and loss else {}))
    return rows


def test_claims_of_the_editing_session_can_fail() -> None:
    def failed(**worse: float) -> int:
        return [c.holds for c in editing.claims(_editing_rows(**worse))].count(False)

    assert failed() == 0
    assert failed(same_text=0.9) == 1
    assert failed(same_text=0.9, lost=0.02) == 2
    assert failed(same_text=0.0, lost=0.02, written=0.5) == 3


def test_the_model_of_section_4_4() -> None:
    tried, found = availability.model(200, 0.5, 0.1, 500, 1)
    assert tried > 1000 and found == tried
    tried, found = availability.model(200, 0.5, 0.8, 500, 1)
    assert found < 0.9 * tried


def test_claims_of_availability_can_fail() -> None:
    """Nearly as measured: 4 of 40 joins fail, with k = 1 only, and all for want of a coordinator."""
    row: dict[str, Any] = {"alpha": 0.5, "failure": 0.01, "share_of_limit": 0.04, "seeds": 2, "alive_per_round": 1.0}
    row |= {"joins": 10, "core_joins": 8, "core_joined": 8, "reclaim_rounds": 2.5}
    bad = {"k": 1, "joined": 8, "success": 0.8, "low": 0.6, "high": 0.9, "by_quorums": 0.8}
    good = {"k": 4, "joined": 10, "success": 1.0, "low": 0.8, "high": 1.0, "by_quorums": 1.0}
    rows = [{**row, **bad, "died": 1, "lapsed": 1, "by_quorum": 1}]
    rows.append({**row, **good, "died": 0, "lapsed": 0, "by_quorum": 0})

    def failed() -> list[str]:
        return [c.text for c in availability.claims(rows) if not c.holds]

    sentence, printed = failed()
    assert "p_f < (1 - alpha) / 2" in sentence and "as printed" in printed
    rows[0]["by_quorum"] = 0.5
    assert any("in every such run" in text for text in failed())
    rows[0]["core_joins"] = 10
    assert any("while there is a coordinator" in text for text in failed())


def test_lives_of_coordinators() -> None:
    actions, judged = availability_run.schedule(availability_run.Setting(tickets=12, alpha=0.5, failure=0.1))
    crashed = [a.who for a in actions if isinstance(a, availability_run.Crash)]
    joined = [a.who for a in actions if isinstance(a, availability_run.Coordinate)]
    assert len(crashed) == len(joined) > 10 and "n0" not in crashed
    assert len(set(crashed)) == len(crashed) and set(judged) <= set(joined)


def test_a_few_crashes_cost_nobody_a_ticket() -> None:
    found = availability_run.point({"tickets": 16, "alpha": 0.5, "failure": 0.01, "crashes": 8})
    assert found["joined"] == found["joins"] > 0 and not found["died"]
    assert 0.5 < found["reclaim_sum"] / found["reclaims"] < 6


def test_a_core_dies_of_lost_quorums_and_then_nobody_gets_a_ticket() -> None:
    found = availability_run.point({"tickets": 12, "alpha": 0.5, "failure": 0.15, "crashes": 60, "k": 1, "seed": 1})
    assert found["died"] and found["by_quorum"] and found["joined"] < found["joins"]
    assert found["core_joined"] == found["core_joins"]


def test_quorums_are_those_of_the_ring() -> None:
    assert [availability_run.quorum(n) for n in range(40)] == [need_alive(n) for n in range(40)]


def test_the_model_of_quorums() -> None:
    def share(k: int, failure: float) -> float:
        setting = availability_run.Setting(tickets=40, alpha=0.5, failure=failure, k=k)
        return availability_run.quorums(setting, 2.5, runs=20)

    assert share(8, 0.002) == 1.0
    assert share(1, 0.05) < share(2, 0.05) < share(8, 0.05)
    assert share(8, 0.25) < 0.2


# -- end to end, small


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fig4, "QUICK", (6, 9, 12))
    monkeypatch.setattr(fig4, "INSTANCES", (("5 updaters", 2), ("25 updaters", 4), ("all updaters", 0)))
    monkeypatch.setattr(fig5, "MEMBERS", 8)
    monkeypatch.setattr(fig5, "QUICK", (0.2, 0.5))
    monkeypatch.setattr(theorems, "BUFFERS", (0.25, 2.0))
    monkeypatch.setattr(theorems, "ASKED", (1, 4))
    monkeypatch.setattr(availability, "QUICK", (0.05, 1.5))


CHEAP = ["ccc11/fig4", "ccc11/fig5"]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", CHEAP)
def test_an_experiment_end_to_end(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert main(["paper", name, "--quick", "--out", str(tmp_path)]) == 0
    stem = name.rpartition("/")[2]
    assert {f.name for f in tmp_path.iterdir()} == {
        "claims.json", *(f"{stem}.{end}" for end in ("csv", "parquet", "png", "svg"))
    }  # fmt: skip
    claims = json.loads((tmp_path / "claims.json").read_text())["claims"]
    assert len(claims) >= 5 and all(c["text"] and c["numbers"] for c in claims)


def test_every_experiment_is_registered() -> None:
    mine = {name for name in EXPERIMENTS if name.startswith("ccc11/")}
    modules = (fig4, fig5, theorems, availability, world, editing, planner)
    assert mine == {f"ccc11/{module.__name__.rpartition('.')[2]}" for module in modules}


def test_recorded_latencies() -> None:
    near, far = [[10.0] * 8 for _ in range(8)], [[400.0] * 8 for _ in range(8)]
    late = [
        evaluation.point(
            {"members": 8, "coordinators": 2, "load": 1.0, "rounds": 10, "round_ms": 500.0, "latencies": matrix}
        )["latency_ms"]
        for matrix in (near, far)
    ]
    assert late[1] > late[0] + 150


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


@pytest.mark.long  # nothing is lost, unless the machine is busy
def test_figure_5_on_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "ROUND_MS", 100.0)
    size = live.Live(members=4, processes=2, rounds=10)
    [row] = live.measure(Context(seed=os.getpid()), size, [2.0], ["R1"])
    assert row["events"] > 3 and row["pairs"] == 3 * row["events"]
    assert row["lost"] == pytest.approx(0) and row["inversions"] == 0
    assert row["latency_rounds"] > 0 and row["bytes_a_round"] > 100


def test_few_of_many_publish_on_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figure 4's: two of five, in processes of which one has none of them."""
    monkeypatch.setattr(live, "ROUND_MS", 100.0)
    size = live.Live(members=5, processes=2, rounds=10, coordinators=2)
    [row] = live.measure(Context(seed=os.getpid()), size, [4.0], ["R1"])
    assert row["coordinators"] == 2 and 1 < row["events"] <= 2 * 2 * 10 and row["pairs"] == 4 * row["events"]
    assert row["inversions"] == 0


def test_settings_are_strict() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"members": "many", "coordinators": 1, "load": 1.0}, Setting)
