"""Audits of files, in this process: what is wrong is found, and nothing else; bad input and full disks get a name.

With Spark the same code runs in tasks: tests/audit/spark/test_spark.py compares the tables.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.audit.judge.batch.rows import HOSTILE
from tests.audit.judge.traces import pairs
from tests.audit.spark import traces
from tests.audit.spark.disk import fill
from tests.audit.spark.traces import Injected, make, spoil, write
from tests.lab.sim.runs import Run
from whence.audit import audit_files
from whence.audit.spark import blocks, ingest
from whence.audit.spark.tables import arrow_schema, manifest
from whence.audit.trace import Row, open_trace, read, shiviz
from whence.cli import main
from whence.errors import TraceError
from whence.lab.sim.scenario import parse


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


def found_in(out: Path) -> dict[str, set[tuple[str, str, str]]]:
    found: dict[str, set[tuple[str, str, str]]] = {}
    for v in pq.read_table(out / "violations").to_pylist():
        found.setdefault(v["rule"], set()).add((v["run"], v["member"], v["event"]))
    return found


def exactly(out: Path, injected: Injected) -> None:
    """Precision and recall 1.0: what was put in and nothing else."""
    found = found_in(out)
    assert found.pop("causal") == injected.inverted
    assert found.pop("gap") == injected.openers
    assert found.pop("integrity") == injected.duplicates
    assert {v[:2] for v in found.pop("two owners")} == injected.owners
    assert found.pop("reused id") == injected.reused
    assert found.pop("agreement") == injected.gaps
    assert not found


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[pa.Table], Injected]:
    return make(100_000, runs=5, origins=5, members=40, wrongs=15)


@pytest.mark.parametrize("layout", ["run", "mixed"])
def test_injected_wrongs_are_found_and_nothing_else(
    small: tuple[list[pa.Table], Injected], tmp_path: Path, layout: str
) -> None:
    tables, injected = small
    write(tables, tmp_path / "in", layout=layout, files=3)
    found = audit_files([tmp_path / "in"], tmp_path / "out", complete=True)
    exactly(tmp_path / "out", injected)
    assert found.rows == sum(table.num_rows for table in tables) and found.runs == 5
    assert found.verdicts["inverted"] == found.verdicts["duplicate"] == 15 and found.verdicts["unknown"] == 0
    verdicts = pq.read_table(tmp_path / "out" / "verdicts")
    assert verdicts.num_rows == found.deliveries == sum(t["kind"].to_pylist().count("deliver") for t in tables)
    assert verdicts["violation"].to_pylist().count(True) == 15 * 4


def test_a_clean_audit_has_all_tables(tmp_path: Path) -> None:
    """Also those without rows have a file with a schema, so that a query over `violations/*.parquet` works."""
    write(make(2_000, runs=2, origins=3, members=5, wrongs=0)[0], tmp_path / "in")
    (tmp_path / "in" / "empty.parquet").write_bytes(b"")
    found = audit_files([tmp_path / "in"], tmp_path / "out", sparse=True)
    known = manifest(tmp_path / "out")
    assert found.clean and (found.quarantined, known["design"]) == (1, "local")
    for table, entry in known["tables"].items():
        rows = [pq.read_table(tmp_path / "out" / table / file).num_rows for file in entry["files"]]
        assert sum(rows) == entry["rows"] and rows
    footer = pq.read_metadata(tmp_path / "out" / "members" / known["tables"]["members"]["files"][0])
    known_by = {column.path_in_schema: column.statistics for column in map(footer.row_group(0).column, range(3))}
    assert (known_by["run"].min, known_by["member"].max) == ("run-0000", "m4#1"), "so that one run can be asked for"
    for table in known["tables"]:
        query = duckdb.sql(f"SELECT * FROM '{tmp_path}/out/{table}/*.parquet'")
        assert query.columns == arrow_schema(table).names, table
    assert duckdb.sql(f"SELECT count(*) FROM '{tmp_path}/out/violations/*.parquet'").fetchall() == [(0,)]
    assert next(Path(str(entry["file"])).name for entry in known["inputs"]) == "empty.parquet"
    assert known["cost"]["rows"] == found.rows and known["cost"]["seconds"] > 0


def test_spark_is_started_for_many_rows_only(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def start() -> NoReturn:
        raise KeyError("Spark")

    assert audit_files([folder], tmp_path / "out", spark=start, few=100_000).design == "local"
    with pytest.raises(KeyError, match="Spark"):
        audit_files([folder], tmp_path / "out", spark=start, few=1_000)
    monkeypatch.setattr("whence.audit.session", lambda *_: start())
    command = ["audit", str(folder), "--out", str(tmp_path / "out")]
    assert main(command) in (0, 1, 3) and "in this process" in capsys.readouterr().out
    for more in (["--engine", "spark"], ["--master", "local[1]"]):
        with pytest.raises(KeyError, match="Spark"):
            main([*command, *more])


def test_sparse_verdicts_say_the_same_as_all(folder: Path, tmp_path: Path) -> None:
    audit_files([folder], tmp_path / "all")
    audit_files([folder], tmp_path / "sparse", sparse=True)
    every = [json.loads(row) for row in rows(tmp_path / "all", "verdicts")]
    few = [json.loads(row) for row in rows(tmp_path / "sparse", "verdicts")]
    fine = [row for row in every if row["verdict"] == "in order" and not row["violation"]]
    assert few == [row for row in every if row not in fine]
    for table in ("members", "violations", "doubts", "quarantine"):
        assert rows(tmp_path / "sparse", table) == rows(tmp_path / "all", table)


def test_the_command_imports_nothing_that_it_does_not_need(folder: Path, tmp_path: Path) -> None:
    """Each of these takes about as long to import as a small audit takes."""
    code = (
        "import sys; from whence.cli import main; code = main(); "
        "unwanted = {'pyspark', 'numba'} & set(sys.modules); assert not unwanted, unwanted; sys.exit(code)"
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
        found = audit_files([place], place / "out")
        assert found.violations == {} and found.runs == 1
        assert found.doubts or found.quarantined


# -- bad input


def test_bad_files_beside_good_ones(tmp_path: Path) -> None:
    tables = make(8_000, runs=4, origins=5, members=20, wrongs=4)[0]
    write(tables[:3], tmp_path / "good")
    write(tables[:3], tmp_path / "mixed")
    reasons = spoil(tmp_path / "mixed", tables)
    clean = audit_files([tmp_path / "good"], tmp_path / "out-good")
    found = audit_files([tmp_path / "mixed"], tmp_path / "out-mixed")
    assert (found.rows, found.verdicts, found.violations) == (clean.rows, clean.verdicts, clean.violations)
    for table in ("verdicts", "violations", "members"):
        assert rows(tmp_path / "out-good", table) == rows(tmp_path / "out-mixed", table), table
    bad = [json.loads(row) for row in rows(tmp_path / "out-mixed", "quarantine")]
    assert Counter(Path(row["file"]).name for row in bad) == {**dict.fromkeys(reasons, 1), "noise.jsonl": 3}
    assert len(bad) == found.quarantined == 9 and len(found.refused) == 5
    for row in bad:
        assert reasons[Path(row["file"]).name] in row["reason"], row
        assert row["position"] == -1 or row["file"].endswith(".jsonl")


def test_a_full_disk_while_tables_are_written(tmp_path: Path, small_disk: Path) -> None:
    write(make(60_000, runs=4, origins=5, members=20, wrongs=4)[0], tmp_path / "trace")
    fill(small_disk, but=16_384)
    with pytest.raises(TraceError, match="No space left on device"):
        audit_files([tmp_path / "trace"], small_disk / "out")
    assert not manifest(small_disk / "out").get("tables")
    (small_disk / "ballast").unlink()
    assert audit_files([tmp_path / "trace"], small_disk / "out").rows > 50_000  # with room, the same place will do


# -- the command


def audit_command(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, dict[str, Any], str]:
    code = main(["audit", *map(str, args), "--engine", "local", "--json"])
    said = capsys.readouterr()
    return code, json.loads(said.out) if said.out else {}, said.err


def test_a_trace_with_parts_cut_out_is_in_doubt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file of a publisher was not copied: exit code 3, and one line about it."""
    rows = Run(parse(HOSTILE), 1).rows
    absent = next(row.member for row in rows if row.kind == "publish")
    of_it = sum(row.kind == "deliver" and str(row.event).endswith(f"@{absent}") for row in rows if row.member != absent)
    with open_trace(tmp_path / "in" / "t.jsonl") as trace:
        trace.append_many([row for row in rows if row.member != absent])
    exit_code, said, _ = audit_command(capsys, tmp_path / "in", "--out", tmp_path / "out")
    assert exit_code == 3 and said["clean"] and not said["violations"]
    (doubt,) = [d for d in pq.read_table(tmp_path / "out" / "doubts").to_pylist() if d["member"] == absent]
    assert doubt["deliveries"] == of_it > 0
    assert any(absent in text for text in said["unjudged"])
    exit_code, said, _ = audit_command(capsys, tmp_path / "in", "--out", tmp_path / "out", "--complete")
    assert exit_code == 1 and said["violations"]["integrity"] == of_it


def test_what_is_no_trace_and_no_log_at_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not clean: there is nothing to say about it. The quarantine says why."""
    (tmp_path / "trace").mkdir()
    (tmp_path / "trace" / "a.parquet").write_bytes(b"noise")
    (tmp_path / "trace" / "b.jsonl").write_text("{}\nnoise\n")
    exit_code, said, told = audit_command(capsys, tmp_path / "trace", "--out", tmp_path / "out")
    assert exit_code == 2 and not said and "nothing readable" in told.splitlines()[-1]
    assert pq.read_table(tmp_path / "out" / "quarantine").num_rows == 3
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_text("noise\nand more\n")
    (tmp_path / "logs" / "b.log").write_bytes(b"\xff\xfe\x00")
    logs = [tmp_path / "logs", "--format", "shiviz", "--parser", shiviz.EXPRESSION]
    exit_code, said, told = audit_command(capsys, *logs, "--out", tmp_path / "out-logs")
    assert exit_code == 2 and not said and "nothing readable" in told.splitlines()[-1]
    assert pq.read_table(tmp_path / "out-logs" / "quarantine").num_rows >= 2


def wrong_inputs(place: Path) -> Iterator[tuple[list[object], str]]:
    (place / "empty").mkdir()
    (place / "file").write_text("")
    (place / "good").mkdir()
    (place / "good" / "t.jsonl").write_text("")
    yield [place / "gone", "--out", place / "out"], "no such file or directory"
    yield [place / "empty", "--out", place / "out"], "no trace in this directory"
    yield [place / "good", "--out", place / "file"], "is a file"
    yield [place / "good", "--out", place / "out", "--parser", "x"], "--format shiviz"
    yield [place / "good", "--out", place / "out", "--master", "local"], "leave --engine local out"
    yield [place / "good" / "t.jsonl", "--out", place / "out"], "t.jsonl: empty file"


def test_input_that_makes_no_sense(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for args, says in wrong_inputs(tmp_path):
        exit_code, _, said = audit_command(capsys, *args)
        assert exit_code == 2 and says in said and said.count("\n") == 1


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


def test_rows_that_went_through_blocks_look_the_same(folder: Path) -> None:
    """Columns without a value are left out of a block. A quarantined row is written in the order of its columns."""
    piece = next(piece for piece in ingest.plan(ingest.find([folder]))[0] if piece.parquet)
    rows, _ = blocks.read([piece])
    (block,) = (batch["block"][0].as_py() for batch in blocks.of_piece(0, piece))
    assert blocks.unpacked([block]).column_names == rows.drop_columns(["run", "cluster"]).column_names
