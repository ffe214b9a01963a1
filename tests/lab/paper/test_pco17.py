"""The papers' experiments: files and claims."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from whence.cli import main
from whence.lab.latencies import CITIES, read_latencies
from whence.lab.paper import EXPERIMENTS, LIVE, Experiment
from whence.lab.paper.frame import RunOptions, Study, by_run, on_arrays
from whence.lab.paper.pco17 import fig3
from whence.lab.paper.run import load

ROOT = Path(__file__).parents[3]
POINT = {"processes": 50, "entries": 20, "keys": 2, "rate": 100.0, "deliveries": 40_000.0}


def test_every_experiment_can_be_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    for name in EXPERIMENTS:
        assert isinstance(Experiment(name).study, Study)
    for name in LIVE:
        assert Experiment(name, live=True).study is not Experiment(name).study
    assert main(["paper", "pco17/fig99"]) == 2
    assert "pco17/fig3" in capsys.readouterr().err


def test_what_cannot_run_on_sockets_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paper", "pco17/fig3", "--live", "--out", str(tmp_path)]) == 2
    assert "on real sockets there are ccc11/fig4, ccc11/fig5" in capsys.readouterr().err


def test_an_experiment_leaves_data_plot_and_claims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fig3, "NS", (40, 60))
    monkeypatch.setattr(fig3, "KS", (2, 4))
    monkeypatch.setattr(fig3, "NEAR", (2, 4))
    monkeypatch.setattr(fig3, "BESIDE", (2,))
    assert main(["paper", "pco17/fig3", "--quick", "--out", str(tmp_path)]) == 0
    claims = json.loads((tmp_path / "claims.json").read_text(encoding="utf-8"))
    assert claims["experiment"] == "pco17/fig3"
    assert {claim["status"] for claim in claims["claims"]} <= {"holds", "fails", "not decided"}
    assert claims["statistics"]["least-40"][0][0].startswith("K = 2")
    with (tmp_path / "fig3.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    table = pq.read_table(tmp_path / "fig3.parquet").to_pylist()
    assert [float(row["exact_rate"]) for row in rows] == [row["exact_rate"] for row in table]
    assert [(row["processes"], row["keys"]) for row in table] == [(40, 2), (40, 4), (60, 2), (60, 4)] * 2
    again = load(tmp_path, "pco17/fig3", RunOptions(quick=True))
    assert again is not None and [row["exact_rate"] for row in again[0]] == [row["exact_rate"] for row in table]
    assert again[1].date and again[1].machine  # when and where they were measured
    assert load(tmp_path, "pco17/fig3", RunOptions(quick=True, seed=1)) is None
    assert load(tmp_path / "nothing", "pco17/fig3", RunOptions(quick=True)) is None
    assert (tmp_path / "fig3.png").read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / "fig3.svg").read_text(encoding="utf-8").startswith("<?xml")


def test_measure_keeps_the_runs_apart_and_their_deliveries_together() -> None:
    row = on_arrays(RunOptions(seed=2), [POINT], seeds=3)[0]
    assert row["deliveries"] >= 40_000
    assert len(row["runs"]) == 3 and row["deliveries"] == sum(by_run(row, "deliveries"))
    assert row["exact_rate"] == pytest.approx(sum(by_run(row, "exact_rate")) / 3)


def test_alerts_find_every_overtaken_message() -> None:
    rows = on_arrays(RunOptions(), [{**POINT, "keys": k, "memory": m} for k in (1, 3) for m in (1, 40)], 2)
    assert all(row["unalerted4"] == 0 and row["overtaken"] > 0 for row in rows)
    assert rows[0]["unalerted5"] > rows[1]["unalerted5"] == 0


def test_recorded_latencies_are_used() -> None:
    rows = on_arrays(RunOptions(), [{**POINT, "latencies": read_latencies(CITIES), "skew": 5.0}], 1)
    assert rows[0]["p_nc"] > 0
