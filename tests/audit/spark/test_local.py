"""The audit without Spark: the same tables as with it, and pyspark is not even imported."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.audit.judge.traces import pairs
from tests.audit.spark import traces
from tests.audit.spark.session import spark
from whence.audit.spark import audit as judge_frame
from whence.audit.spark import blocks
from whence.audit.spark.findings import TABLES
from whence.audit.spark.job import audit_files
from whence.audit.spark.local import audit_here
from whence.audit.spark.made import plan
from whence.audit.trace import Row, open_trace, read
from whence.cli import main
from whence.errors import UsageError

__all__ = ["spark"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs with wrongs, one of them also as JSON lines with half a line and a row that is none."""
    place = tmp_path_factory.mktemp("local") / "traces"
    tables, _ = traces.make(6_000, runs=3, origins=5, members=40, wrongs=6)
    files = traces.write(tables, place)
    with open_trace(place / "again.jsonl") as trace:
        trace.append_many(read(files[0]))
    with (place / "again.jsonl").open("ab") as damaged:
        damaged.write(b'{"run":"r","cluster":"c"}\n{"run":"run-0000","clus')
    return place


def rows(out: Path, table: str) -> list[str]:
    found = [pq.read_table(file) for file in sorted((out / table).glob("*.parquet"))]
    whole: list[dict[str, Any]] = [row for one in found for row in pa.Table.to_pylist(one)]
    return sorted(json.dumps(row, sort_keys=True) for row in whole)


def test_the_tables_are_those_of_spark(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    with_spark = audit_files(spark, [folder], tmp_path / "spark")
    here = audit_here([folder], tmp_path / "here")
    for table in TABLES:
        assert rows(tmp_path / "here", table) == rows(tmp_path / "spark", table), table
    assert rows(tmp_path / "here", "quarantine") and rows(tmp_path / "here", "violations")
    assert here.design == "local"
    assert (here.rows, here.runs, here.verdicts, here.violations, here.repeated, here.doubts, here.quarantined) == (
        with_spark.rows,
        with_spark.runs,
        with_spark.verdicts,
        with_spark.violations,
        with_spark.repeated,
        with_spark.doubts,
        with_spark.quarantined,
    )
    names = [sorted(file.name for file in (tmp_path / each / "shiviz").iterdir()) for each in ("here", "spark")]
    assert names[0] == names[1] != []


def test_sparse_verdicts_say_the_same_as_all(folder: Path, tmp_path: Path) -> None:
    audit_here([folder], tmp_path / "all")
    audit_here([folder], tmp_path / "sparse", sparse=True)
    every = [json.loads(row) for row in rows(tmp_path / "all", "verdicts")]
    few = [json.loads(row) for row in rows(tmp_path / "sparse", "verdicts")]
    fine = [row for row in every if row["verdict"] == "in order" and not row["violation"]]
    assert few == [row for row in every if row not in fine]
    covered = 0
    for one in map(json.loads, rows(tmp_path / "sparse", "in_order")):
        mine = [row for row in every if all(row[name] == one[name] for name in ("run", "cluster", "member", "order"))]
        mine = [row for row in mine if one["lseq"] <= row["lseq"] <= one["last"]]
        assert all(row in fine for row in mine) and len(mine) == one["deliveries"]
        covered += len(mine)
    assert covered == len(fine)
    assert not rows(tmp_path / "all", "in_order")
    for table in ("members", "violations", "doubts", "quarantine"):
        assert rows(tmp_path / "sparse", table) == rows(tmp_path / "all", table)


def test_the_command_imports_nothing_that_it_does_not_need(folder: Path, tmp_path: Path) -> None:
    """Each of these takes about as long to import as a small audit takes."""
    code = (
        "import sys; from whence.cli import main; code = main(); "
        "unwanted = {'pyspark', 'pandas', 'numba'} & set(sys.modules); assert not unwanted, unwanted; sys.exit(code)"
    )
    out = tmp_path / "out"
    command = [sys.executable, "-c", code, "audit", str(folder), "--out", str(out), "--engine", "local", "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["design"] == "local"
    assert (out / "report.html").exists()


@pytest.mark.parametrize("run", ["r", ""])
def test_a_file_cut_in_the_middle_of_a_line_accuses_nobody(tmp_path: Path, run: str) -> None:
    """Three members in order, a file each; one file ends somewhere. A run without a name is one like any other."""
    rng = random.Random(1)
    steps: dict[str, list[Row]] = {
        m: [Row(run, "c", m, 0, 0, "join", reason="genesis", order="reliable")] for m in ("a#1", "b#1", "c#1")
    }
    for n, publisher in enumerate(rng.choices(list(steps), k=30)):
        event = f"{'abc'.index(publisher[0])}:1.0.1:{n + 1}@{publisher}"
        for member in sorted(steps, key=lambda m: m != publisher):
            for kind in ("publish", "deliver") if member == publisher else ("deliver",):
                mine = steps[member]
                mine.append(Row(run, "c", member, len(mine), n, kind, event=event, origin=publisher))
    for turn in range(12):
        place = tmp_path / str(turn)
        for member, mine in steps.items():
            with open_trace(place / f"{member}.jsonl") as trace:
                trace.append_many(mine)
        victim = place / f"{rng.choice(list(steps))}.jsonl"
        text = victim.read_bytes()
        victim.write_bytes(text[: rng.randrange(1, len(text))])
        found = audit_here([place], place / "out")
        assert found.violations == {} and found.runs == 1
        assert found.doubts or found.quarantined


def test_what_needs_spark_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for more in (["--measure"], ["--master", "local[1]"], ["--format", "shiviz"]):
        assert main(["audit", str(tmp_path), "--out", str(tmp_path / "out"), "--engine", "local", *more]) == 2
        assert "need Spark" in capsys.readouterr().err


def test_an_empty_file_and_an_empty_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.jsonl").touch()
    for path in (tmp_path / "t.jsonl", tmp_path / "nothing"):
        assert main(["audit", str(path), "--out", str(tmp_path / "out"), "--engine", "local"]) == 2
        assert str(path) in capsys.readouterr().err


# -- the error rate of a probabilistic cluster


def probabilistic(place: Path, over: bool = False) -> Path:
    """Three runs of 800 deliveries, of which 0, 8 and 40 are inverted. `over`: all members leave at the end."""
    late = {"none": {}, "few": dict.fromkeys(range(0, 80, 10), 1), "many": dict.fromkeys(range(0, 80, 4), 2)}
    for name, mine in late.items():
        with open_trace(place / f"{name}.jsonl") as trace:
            trace.append_many(pairs(100, mine, name, over=over))
    return place


def audit(place: Path, out: Path, *more: str) -> int:
    return main(["audit", str(place), "--out", str(out), "--engine", "local", *more])


def outcomes(out: Path) -> dict[str, str]:
    return {row["run"]: row["outcome"] for row in map(json.loads, rows(out, "rates"))}


def test_the_command_judges_an_error_rate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place, out = probabilistic(tmp_path / "in"), tmp_path / "out"
    assert audit(place, out, "--complete", "--error-rate", "0.01", "--json") == 1
    said = json.loads(capsys.readouterr().out)
    assert said["rates"] == {"above": 1, "not decided": 1, "within": 1} and said["violations"] == {"rate": 1}
    assert said["first"]["rate"] == [text for text in said["rated"] if text.endswith("above")]
    found = {row["run"]: row for row in map(json.loads, rows(out, "rates"))}
    assert {run: (row["deliveries"], row["inverted"], row["outcome"]) for run, row in found.items()} == {
        "none": (800, 0, "within"),
        "few": (800, 8, "not decided"),
        "many": (800, 40, "above"),
    }
    (wrong,) = map(json.loads, rows(out, "violations"))
    assert (wrong["run"], wrong["rule"], wrong["member"], wrong["lseq"]) == ("many", "rate", "", None)
    assert wrong["detail"] == (
        "40 of 800 deliveries at 5 probabilistic members are inverted: 0.05 (99% interval 0.0262 to 0.0851); "
        "allowed: 0.01; above"
    )
    assert not list((out / "shiviz").iterdir())  # it shows at no step


@pytest.mark.parametrize(("allowed", "code"), [("0.2", 0), ("0.01", 3)])
def test_the_exit_code_where_a_rate_is_decided_and_where_it_is_not(tmp_path: Path, allowed: str, code: int) -> None:
    place = probabilistic(tmp_path / "in")
    (place / "many.jsonl").unlink()
    assert audit(place, tmp_path / "out", "--complete", "--error-rate", allowed) == code


def test_without_an_error_rate_nothing_is_judged(tmp_path: Path) -> None:
    assert audit(probabilistic(tmp_path / "in"), tmp_path / "out", "--complete") == 0
    assert outcomes(tmp_path / "out") == {}


def test_a_rate_is_in_doubt_where_a_trace_is_not_complete(tmp_path: Path) -> None:
    """Without `--complete` it is, unless all members left; and with it, if a step is missing."""
    for name, over, outcome in (("open", False, "in doubt"), ("over", True, "above")):
        place, out = probabilistic(tmp_path / name, over), tmp_path / f"{name}-out"
        assert audit(place, out, "--error-rate", "0.01") == (1 if over else 3)
        assert outcomes(out)["many"] == outcome
    place, out = probabilistic(tmp_path / "cut"), tmp_path / "cut-out"
    text = (place / "many.jsonl").read_text().splitlines(keepends=True)
    (place / "many.jsonl").write_text("".join(line for k, line in enumerate(text) if k != 300))
    assert audit(place, out, "--complete", "--error-rate", "0.01") == 3
    assert outcomes(out) == {"many": "in doubt", "few": "not decided", "none": "within"}


def test_an_error_rate_is_a_share(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = probabilistic(tmp_path / "in")
    for wrong in ("0", "1.5", "-1", "nan"):
        assert audit(place, tmp_path / "out", "--error-rate", wrong) == 2
        assert "want more than 0, at most 1" in capsys.readouterr().err
    shiviz = ["audit", str(place), "--out", str(tmp_path / "out"), "--format", "shiviz", "--error-rate", "0.1"]
    assert main(shiviz) == 2 and "--error-rate is for whence traces" in capsys.readouterr().err


def test_where_nobody_promises_a_rate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_trace(tmp_path / "in" / "t.jsonl") as trace:
        trace.append_many(pairs(5, {}, order="causal"))
    assert audit(tmp_path / "in", tmp_path / "out", "--complete", "--error-rate", "0.01") == 0
    assert "no probabilistic members" in capsys.readouterr().out


def test_rates_are_those_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Also of runs that are spread over workers, and of a DataFrame."""
    place = probabilistic(tmp_path / "in")
    audit_here([place], tmp_path / "here", complete=True, error_rate=0.01)
    for name, giant in (("one", None), ("many", 100)):
        found = audit_files(spark, [place], tmp_path / name, complete=True, error_rate=0.01, giant=giant)
        assert found.rates == {"above": 1, "not decided": 1, "within": 1} and found.violations == {"rate": 1}
        for table in TABLES:
            assert rows(tmp_path / name, table) == rows(tmp_path / "here", table), (name, table)
    with judge_frame(spark.read.json(str(place)), complete=True, error_rate=0.01) as frames:
        mine = sorted(json.dumps(row.asDict(), sort_keys=True) for row in frames.rates.collect())
    assert mine == rows(tmp_path / "here", "rates")
    with pytest.raises(UsageError, match="error rate is 3;"):
        judge_frame(spark.read.json(str(place)), error_rate=3)


def test_rows_that_went_through_blocks_look_the_same(folder: Path) -> None:
    """Columns without a value are left out of a block. A quarantined row is written in the order of its columns."""
    piece = next(piece for piece in plan([folder]).pieces if piece.parquet)
    rows, _ = blocks.read([piece])
    (block,) = (batch["block"][0].as_py() for batch in blocks.of_piece(0, piece))
    assert blocks.unpacked([block]).column_names == rows.drop_columns(["run", "cluster"]).column_names
