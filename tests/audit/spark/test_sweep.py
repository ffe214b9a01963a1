"""Sweeps: the same results however the points are spread, finished ones are not run again, failing ones stop nobody."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from whence.audit.spark.sweep import (
    Grid,
    all_points,
    finished,
    gather,
    keep,
    load_grid,
    missing,
    parse_grid,
    results,
    run_missing,
)
from whence.audit.spark.sweep import sweep as run_sweep
from whence.audit.spark.tables import alone
from whence.cli import main
from whence.errors import ConfigError, UsageError
from whence.lab.sim.run import point
from whence.lab.sim.scenario import load

RUNNERS = """
import os, time
from pathlib import Path

def square(setting):
    if setting.get("log"):
        with open(setting["log"], "a") as log:
            log.write(f"{setting['seed']}\\n")
    if setting["x"] in setting.get("fails", []):
        raise ValueError(f"no {setting['x']} here")
    return {"square": setting["x"] ** 2, "drawn": setting["seed"] % 1000, "half": setting["x"] / 2, "nothing": None}

def dies(setting):
    if setting["x"] == 3:
        os._exit(7)
    return {"x": 10 * setting["x"], "seed": setting["seed"]}

def slow(setting):
    time.sleep(0.5)
    return {"x": setting["x"]}

def wrong(setting):
    return 3
"""


@pytest.fixture(scope="module")
def runners(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A module of runners that can be imported here."""
    place = tmp_path_factory.mktemp("runners")
    (place / "runners_of_a_test.py").write_text(RUNNERS)
    sys.path.insert(0, str(place))
    return "runners_of_a_test"


def swept(grid: Grid, out: Path) -> list[dict[str, Any]]:
    """What a sweep does, but for Spark."""
    (out / "points").mkdir(parents=True, exist_ok=True)
    keep(missing(grid, out), grid.runner, out / "points" / f"{time.time_ns()}.jsonl")
    return gather(grid, out).to_pylist()


# -- the grid


def test_every_combination_with_every_seed() -> None:
    text = 'runner = "sim"\nseeds = 3\n[settings]\na = 1\nb.c = true\n[grid]\nx = [1, 2]\ny.z = ["p", "q"]\n'
    grid = parse_grid(text, "g")
    assert grid == Grid("g", "sim", 3, {"a": 1, "b.c": True}, {"x": [1, 2], "y.z": ["p", "q"]})
    found = all_points(grid)
    settings = [json.loads(p["setting"]) for p in found]
    assert settings[::3] == [{"a": 1, "b.c": True, "x": x, "y.z": z} for x in (1, 2) for z in ("p", "q")]
    assert [p["seed_number"] for p in found[:4]] == [0, 1, 2, 0]
    assert len({p["point"] for p in found}) == len({p["seed"] for p in found}) == 12
    assert all(0 <= p["seed"] < 2**52 for p in found)


def test_a_seed_depends_on_name_setting_and_number_alone() -> None:
    def seeds(name: str = "g", runner: str = "sim", seeds: int = 2, x: tuple[int, ...] = (1, 2)) -> dict[object, int]:
        found = all_points(Grid(name, runner, seeds, {"a": 1}, {"x": list(x)}))
        return {(p["setting"], p["seed_number"]): p["seed"] for p in found}

    base = seeds()
    assert seeds(seeds=5, x=(3, 2, 1)).items() >= base.items()
    assert not set(seeds("other").values()) & set(base.values())
    # Written down once and for ever: whoever changes the hash changes every published sweep.
    assert sorted(base.values()) == [960018547550657, 1493528590816376, 2320155202376209, 2970446059160174]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("runner = ", "not TOML"),
        ("seeds = 3", "missing required field `runner`"),
        ('runner = "sim"\nseeds = 0', "seeds: must be at least 1"),
        ('runner = "sim"\nsed = 1', "unknown field `sed`"),
        ('runner = "sim"\ngrid = 3', "grid: write it as a table"),
        ('runner = "sim"\n[grid]\nx = 1', "expected `array`"),
        ('runner = "sim"\n[grid]\nx = []', "grid.x: has no values"),
        ('runner = "sim"\n[grid]\nx = [1, 1]', "the same value twice"),
        ('runner = "sim"\n[settings]\nx = 1\n[grid]\nx = [1]', "x: is both"),
        ('runner = "sim"\n[settings]\nseed = 1', "seed: is derived"),
        ('runner = "sim"\n[settings]\nx = 2020-01-01', "neither text"),
        ('runner = "sim"\n[settings]\nx = nan', "neither text"),
        ('runner = "sim"\nseeds = 1000000\n[grid]\nx = [1, 2]', "2,000,000 points"),
        ('runner = "nobody"', "'nobody' is none; give one of sim, scale"),
        ('runner = "whence.nowhere:f"', "cannot be imported"),
        ('runner = "whence.errors:nothing"', "has no function nothing"),
    ],
)
def test_a_bad_grid_is_named(text: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "g.toml").write_text(text)
    with pytest.raises(ConfigError, match=reason) as caught:
        load_grid(tmp_path / "g.toml")
    assert "g.toml" in str(caught.value)


def test_a_grid_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read grid"):
        load_grid(tmp_path / "g.toml")


# -- points


def test_a_failing_point_is_a_row_and_is_tried_again(runners: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    grid = Grid("g", f"{runners}:square", 2, {"fails": [2], "log": str(log)}, {"x": [0, 1, 2, 3, 4]})
    rows = swept(grid, tmp_path / "out")
    assert [(row["x"], row["seed_number"]) for row in rows] == [(x, n) for x in range(5) for n in (0, 1)]
    assert [row["square"] for row in rows] == [0, 0, 1, 1, None, None, 9, 9, 16, 16]
    assert [row["error"] for row in rows] == [None] * 4 + ["ValueError: no 2 here"] * 2 + [None] * 4
    assert all(row["drawn"] == row["seed"] % 1000 for row in rows if not row["error"])
    assert pq.read_table(tmp_path / "out" / "results").num_rows == 10
    again = swept(grid, tmp_path / "out")
    assert [{**row, "seconds": 0} for row in again] == [{**row, "seconds": 0} for row in rows]
    assert sorted(Counter(log.read_text().split()).values()) == [1] * 8 + [2] * 2  # only the failed ones, once more
    more = Grid("g", grid.runner, 3, grid.settings, {"x": [0, 1, 2, 3, 4, 5]})
    with pytest.raises(UsageError, match="8 points of g have not been run"):
        gather(more, tmp_path / "out")
    assert len(swept(more, tmp_path / "out")) == 18
    assert max(Counter(log.read_text().split()).values()) == 3  # what was finished is not run again


def test_a_point_that_takes_its_worker_with_it(runners: str, tmp_path: Path) -> None:
    grid = Grid("g", f"{runners}:dies", 1, {}, {"x": [1, 2, 3, 4, 5, 6]})
    rows = {row["x"]: row for row in swept(grid, tmp_path)}
    assert [x for x, row in rows.items() if row["error"]] == [3] and rows[3]["error"] == "the worker died"
    assert [rows[x]["result_x"] for x in (1, 2, 4, 5, 6)] == [10, 20, 40, 50, 60]
    assert "result_seed" not in rows[1]  # only said again
    (wrong,) = swept(Grid("g", f"{runners}:wrong", 1, {}, {"x": [1]}), tmp_path)
    assert wrong["error"] == "TypeError: the runner gave a int, not a dict"


@pytest.mark.long  # two more JVMs; that finished points are not run again: above, with points that fail
def test_killed_and_interrupted_it_goes_on(spark: SparkSession, runners: str, tmp_path: Path) -> None:
    (tmp_path / "g.toml").write_text(f'runner = "{runners}:slow"\nseeds = 6\n[grid]\nx = [1, 2, 3]\n')
    grid, out = load_grid(tmp_path / "g.toml"), tmp_path / "out"
    spark.sparkContext.addPyFile(sys.modules[runners].__file__ or "")
    place = Path(sys.modules[runners].__file__ or "").parent
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(place), os.environ.get("PYTHONPATH", "")])}
    arguments = ["sweep", str(tmp_path / "g.toml"), "--out", str(out), "--master", "local[2]"]
    code = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    code += "from whence.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, *arguments]
    before = 0
    for how, code_wanted in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)):
        process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            while len(finished(out)) <= before and process.poll() is None:
                time.sleep(0.05)
            process.send_signal(how)
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
            process.wait()
        assert process.returncode == code_wanted, said.decode()
        assert before < len(finished(out)) < 18
        assert not (out / "results").exists()  # nothing that looks like a finished table
        before = len(finished(out))
    files = {file: file.stat().st_mtime_ns for file in (out / "points").glob("*.jsonl")}
    with pytest.raises(UsageError, match="have not been run"):
        gather(grid, out)
    rows = run_sweep(spark, grid, out).collect()
    assert len(rows) == 18 and not any(row.error for row in rows)
    assert all(file.stat().st_mtime_ns == when for file, when in files.items())
    assert sorted((row.x, row.seed) for row in rows) == sorted(
        (json.loads(p["setting"])["x"], p["seed"]) for p in all_points(grid)
    )


def test_one_sweep_at_a_time_and_what_is_damaged_is_run_again(runners: str, tmp_path: Path) -> None:
    grid = Grid("g", f"{runners}:square", 1, {}, {"x": [1]})
    swept(grid, tmp_path)
    with alone(tmp_path), pytest.raises(UsageError, match="another process is writing here"):
        gather(grid, tmp_path)
    [file] = (tmp_path / "points").glob("*.jsonl")
    file.write_bytes(file.read_bytes()[:100])
    assert missing(grid, tmp_path) == all_points(grid)
    assert len(swept(grid, tmp_path)) == 1 and missing(grid, tmp_path) == []


def test_columns_have_the_narrowest_type() -> None:
    def row(number: int, setting: dict[str, object], result: dict[str, object] | None) -> dict[str, object]:
        texts = {"setting": json.dumps(setting), "result": result and json.dumps(result)}
        return {"point": str(number), "seed_number": 0, "seed": 1, "error": None, "seconds": 0.5, **texts}

    first = {"n": 1, "f": 1, "b": True, "t": "x", "mixed": 1, "a.b": 2, "seconds": 3, "deep": [1], "big": 2**70}
    second = {"n": None, "f": 0.5, "b": False, "t": None, "mixed": "y", "late": 4}
    table = results([row(0, {"a.b": 1}, first), row(1, {"a.b": 7}, second), row(2, {"a.b": 8}, None)])
    assert {f.name: str(f.type) for f in table.schema if f.name not in ("point", "seed_number", "seed")} == {
        "setting": "string",
        "error": "string",
        "seconds": "double",
        "a_b": "int64",
        "n": "int64",
        "f": "double",
        "b": "bool",
        "t": "string",
        "mixed": "string",
        "result_a_b": "int64",
        "result_seconds": "int64",
        "deep": "string",
        "big": "string",
        "late": "int64",
    }
    assert table["f"].to_pylist() == [1.0, 0.5, None] and table["mixed"].to_pylist() == ["1", "y", None]


# -- the simulator as a runner, and the command


def test_settings_go_where_their_name_says() -> None:
    loaded = load("two-clusters", settings={"network.loss": 0.25, "cluster.order": "fifo", "duration": "7s"})
    assert loaded.scenario.network.loss == 0.25 and loaded.scenario.duration == 7 * 10**9
    assert [cluster.order for cluster in loaded.scenario.cluster] == ["fifo", "fifo"]
    assert load("demo", settings={"cluster.order": {"causal": 8}}).scenario.cluster[0].order == {"causal": 8}
    with pytest.raises(ConfigError, match=r"network\.lost"):
        load("demo", settings={"network.lost": 1})
    with pytest.raises(ConfigError, match="nowhere"):
        load("nowhere", settings={})


def test_the_simulator_as_a_runner() -> None:
    small = {"scenario": "demo", "duration": "8s", "settle": "6s", "network.loss": 0.3}
    mixed = point({**small, "seed": 5})
    assert mixed == point({**small, "seed": 5}) != point({**small, "seed": 6})
    assert mixed["delivered"] == mixed["causal.delivered"] + mixed["reliable.delivered"] + mixed["unordered.delivered"]
    causal = point({**small, "seed": 5, "cluster.order": "causal"})
    assert causal["inversions"] == 0 and causal["violation"] is None and causal["latency_p50_ms"] > 0


def test_the_command(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "loss.toml").write_text(
        'runner = "sim"\nseeds = 2\n[settings]\nscenario = "demo"\nduration = "3s"\nsettle = "2s"\n'
        "[grid]\nnetwork.loss = [0.0, 0.3, 7.0]\n"
    )
    arguments = ["sweep", str(tmp_path / "loss.toml"), "--out", str(tmp_path / "out"), "--json"]
    assert main(arguments) == 1  # a loss of 7 is none
    said = json.loads(capsys.readouterr().out)
    assert (said["points"], said["failed"], said["finished_before"]) == (6, 2, 0)
    assert all("loss" in error["error"] for error in said["errors"])
    table = pq.read_table(said["results"])
    assert table.num_rows == 6 and table["network_loss"].to_pylist() == [0.0, 0.0, 0.3, 0.3, 7.0, 7.0]
    (tmp_path / "loss.toml").write_text((tmp_path / "loss.toml").read_text().replace(", 7.0", ""))
    assert main(arguments[:-1]) == 0
    assert "finished before" in capsys.readouterr().out
    seen: list[tuple[int, int, int]] = []
    grid = load_grid(tmp_path / "loss.toml")
    run_missing(spark, grid, tmp_path / "again", lambda *counts: seen.append(counts))
    assert seen[0] == (0, 0, 4) and seen[-1] == (4, 0, 4) and seen == sorted(seen)
    (tmp_path / "loss.toml").write_text("seeds = 1")
    assert main(arguments) == 2


def test_the_document_is_true(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """docs/pipeline.md: its commands, its grid and its example are run, in the order in which they stand there."""
    text = (Path(__file__).parents[3] / "docs" / "pipeline.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```(sh|toml|python)\n(.*?)```", text, re.DOTALL)
    assert [kind for kind, _ in blocks] == ["sh", "python", "python", "python", "toml", "sh"]
    names: dict[str, object] = {}
    for kind, block in blocks:
        if kind == "toml":
            Path("grid.toml").write_text(block)
        elif kind == "python":
            there = block.replace('"traces"', repr(str(tmp_path / "traces")))  # Spark is in another directory
            exec(compile(there, "docs/pipeline.md", "exec"), names)
        else:
            for line in block.splitlines():
                assert main(shlex.split(line)[1:]) == 0, line
    assert "latency_p99_ms" in capsys.readouterr().out
    assert pq.read_table("results/results").num_rows == 12
    assert main(["sweep", "grid.toml", "--out", "results", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["finished_before"] == 12
