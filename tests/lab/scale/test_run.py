"""`whence scale`, a run from settings to a result, and a point of a sweep."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from whence.cli import main
from whence.errors import ConfigError
from whence.lab.latencies import read_latencies
from whence.lab.scale import ScaleSettings, run_scale
from whence.lab.scale.run import point

KEYS = ["deliveries", "errors", "exact_rate", "eps_min", "eps_max", "alerts4", "alerts5", "seconds", "deliveries_per_s"]
SMALL = [
    word
    for setting in ("processes=60", "entries=20", "keys=2", "deliveries=2e4", "rate=150")
    for word in ("--set", setting)
]


def figures(result: dict) -> dict:
    """What does not depend on the machine."""
    return {
        key: value
        for key, value in result.items()
        if key not in ("seconds", "total_seconds", "threads", "deliveries_per_s")
    }


def test_scale_prints_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scale", *SMALL, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found)[: len(KEYS)] == KEYS
    assert found["deliveries"] >= 2e4
    assert found["exact_rate"] == found["errors"] / found["deliveries"]
    assert 0 < found["eps_min"] <= found["eps_max"]
    assert found["unalerted4"] == 0 and found["alerts4"] >= found["overtaken"]
    assert main(["scale", *SMALL, "--json", "--jobs", "1"]) == 0
    other = json.loads(capsys.readouterr().out)
    assert other["threads"] == 1 and figures(other) == figures(found)


def test_scale_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scale", *SMALL, "--set", "loss=0.1", "--set", "churn=5"]) == 0
    assert "deliveries per second" in capsys.readouterr().out


def test_latencies_are_read_by_name_and_used(tmp_path: Path) -> None:
    file = tmp_path / "rtt.csv"
    file.write_text(",B,A\nA,200,1\nB,1,200\n", encoding="utf-8")
    assert read_latencies(file) == ((1.0, 200.0), (200.0, 1.0))
    result = run_scale(
        ScaleSettings(processes=40, entries=20, keys=2, deliveries=4000, latencies=read_latencies(file), skew=1.0)
    )
    assert 0 < result.p_nc < 1


def test_a_point_of_a_sweep_is_a_run() -> None:
    settings = {"processes": 60, "entries": 20, "keys": 2, "deliveries": 20000, "rate": 150, "seed": 4}
    found = point(settings)
    same = msgspec.to_builtins(run_scale(msgspec.convert(settings, ScaleSettings), threads=1))
    assert {key: found[key] for key in figures(same)} == figures(same)
    assert found["keys"] == 2
    json.dumps(found)
    with pytest.raises(ConfigError, match="unknown"):
        point({"unknown": 1})
