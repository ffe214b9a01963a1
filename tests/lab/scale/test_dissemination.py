"""Runs with many members: any number of threads, what the model of the planner says, settings, the command."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numba
import numpy as np
import pytest

from whence.cli import main
from whence.errors import ConfigError
from whence.lab.scale import GossipResult, GossipSettings, run_gossip
from whence.lab.scale.dissemination import GossipRun
from whence.lab.scale.flood import AGE, NEVER
from whence.lab.scale.picture import bearers_of
from whence.lab.scale.run import point

MACHINE = {"seconds", "cpu_seconds", "deliveries_per_s", "deliveries_per_cpu_s", "memory_mb", "threads"}
BUSY = {"members": 3000, "events": 60, "publishers": 10, "rate": 20.0, "fanout": 5}


def ran(threads: int | None = 1, **settings: object) -> GossipResult:
    return run_gossip(GossipSettings(**settings), threads)  # type: ignore[arg-type]


def figures(result: GossipResult) -> dict[str, object]:
    return {name: value for name, value in msgspec.to_builtins(result).items() if name not in MACHINE}


@pytest.mark.parametrize(
    "changed", [{}, {"mode": "rounds", "view": 20}, {"crash": 0.3, "crash_at": 0.1, "tenure": 1.0}]
)
def test_threads_change_nothing(changed: dict[str, object]) -> None:
    alone = figures(ran(1, **BUSY, **changed))
    for threads in (2, 4):
        if threads <= numba.config.NUMBA_NUM_THREADS:
            assert figures(ran(threads, **BUSY, **changed)) == alone
    assert figures(ran(1, **BUSY, **changed, seed=1)) != alone


def test_gossip_reaches_whom_the_model_says() -> None:
    for changed in ({"fanout": 6}, {"fanout": 3, "termination": 6, "mode": "rounds"}, {"loss": 0.3}):
        found = ran(**{**BUSY, "members": 20_000, "events": 10, "rate": 2.0, **changed})
        assert abs(found.coverage - found.predicted.coverage) < 0.01, changed
        assert abs(found.copies_per_delivery / found.predicted.copies * found.delivered / found.expected - 1) < 0.03


def test_orders() -> None:
    """What one order delivers before its past, another one holds back; with recovery nothing is lost."""
    found = {order: ran(**BUSY, order=order) for order in ("unordered", "fifo", "causal", "reliable")}
    assert found["unordered"].inversions > found["fifo"].inversions > found["causal"].inversions == 0
    assert found["unordered"].held == 0 < found["fifo"].held < found["causal"].held
    assert found["causal"].held == pytest.approx(found["unordered"].inversions, rel=0.2)
    assert {one.lost for one in found.values()} == {0}
    assert found["causal"].missed == found["causal"].recovered > 500
    off = ran(**BUSY, recovery="off")
    assert off.lost >= off.missed > 500 and off.recovered == off.requests == 0
    assert ran(**BUSY, buffer=1).lost > 0  # the recovery buffer forgets before anybody asks
    assert ran(**BUSY, recovery="R1").requests < found["causal"].requests / 3


def test_members_that_crash_and_come_back() -> None:
    crashed = ran(**{**BUSY, "fanout": 12}, crash=0.5)
    assert 0.45 < crashed.expected / (3000 * crashed.events) < 0.55
    assert crashed.coverage < 0.999 < crashed.coverage + (1 - crashed.coverage) * 1.1 + 0.1
    told = ran(**{**BUSY, "fanout": 12}, crash=0.5, forget=1e-6)
    assert told.coverage > crashed.coverage  # nothing is sent to them any more
    away = ran(**BUSY, churn=300.0, away=0.05)
    assert 0 < away.expected < 3000 * away.events


def test_coordinators_come_and_go() -> None:
    stays, goes = ran(**BUSY), ran(**{**BUSY, "rate": 5.0}, tenure=1.0)
    assert stays.unpublished == 0 and goes.events + goes.unpublished == 60 and goes.lost == 0


def test_recorded_latencies() -> None:
    far = ran(**BUSY, latencies=((1.0, 300.0), (300.0, 1.0)))
    assert 150 < far.arrival_ms.p50 < 160  # half of the longest round trip; hops inside a city are almost free


@pytest.mark.parametrize(
    ("field", "value"),
    [("members", 1), ("fanout", 65), ("loss", 1.0), ("view", 3), ("churn", -1), ("tenure", 0.5), ("latency", 0)],
)
def test_settings_that_make_no_sense(field: str, value: float) -> None:
    with pytest.raises(ConfigError, match=field):
        GossipSettings(**{field: value})


def test_too_much_for_the_machine_is_refused() -> None:
    with pytest.raises(ConfigError, match="GB"):
        ran(members=10_000_000, rate=100.0, events=1000)


COMMAND = ["scale", "gossip", "--members", "2000", "--events", "9", "--fanout", "8", "--loss", "0.01"]


def test_the_command_prints_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMMAND, "--order", "causal", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["delivered"] == found["expected"] == 9 * 1999
    assert found["predicted"]["latency_p50_ms"] > 0 and found["fanout"] == 8
    assert main(COMMAND) == 0
    assert "planned" in capsys.readouterr().out
    assert main(["scale", "--members", "5"]) == 2


@pytest.mark.parametrize("mode", ["eager", "rounds", "tree"])
def test_a_picture_of_one_event(mode: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Everybody but the publisher was brought the event by somebody who had it before, one hop less away."""
    run = GossipRun(GossipSettings(members=500, events=3, mode=mode))  # type: ignore[arg-type]
    came, bearer = bearers_of(run)
    brought = np.flatnonzero((came != NEVER) & (came > 0))
    assert len(brought) > 450 and (bearer[brought] >= 0).all() and bearer[run.times.owner[0]] == -1
    if mode != "tree":  # a repair does not change the tree
        assert (came[bearer[brought]] >> AGE < came[brought] >> AGE).all()
        assert ((came[bearer[brought]] & 31) < (came[brought] & 31)).all()
    file = tmp_path / "event.png"
    assert main(["scale", "gossip", "--members", "500", "--events", "3", "--mode", mode, "--plot", str(file)]) == 0
    assert file.read_bytes().startswith(b"\x89PNG")
    assert main(["scale", "gossip", "--members", "500", "--events", "3", "--plot", str(tmp_path / "x.gif")]) == 2


def test_trees_repair_what_is_lost() -> None:
    """A copy a member; whoever is below a lost push asks, and crashed neighbours are replaced once they are silent."""
    tree = {"members": 3000, "events": 40, "publishers": 4, "rate": 5.0, "mode": "tree"}
    calm, lossy = ran(**tree, loss=0.0), ran(**tree, loss=0.1)
    assert calm.copies_per_delivery == 1.0 and calm.missed == 0
    assert calm.arrival_ms.most < 5 * calm.arrival_ms.p50 < lossy.arrival_ms.p99
    assert lossy.missed < 20 and lossy.lost == 0 and 1 < lossy.copies_per_delivery < 1.5
    crashed = ran(**tree, crash=0.5, crash_at=0.3)
    assert crashed.lost < 0.001 * crashed.expected
    assert figures(ran(2, **tree, loss=0.1)) == figures(lossy)


def test_a_point_of_a_sweep_is_a_run(tmp_path: Path) -> None:
    settings = {"members": 1000, "events": 5, "fanout": 6, "seed": 3}
    found = point(settings)
    assert found["load.sent_mean"] > 0 and found["members"] == 1000
    json.dumps(found)
