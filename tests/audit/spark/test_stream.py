"""A stream and a trace that grows get the verdicts of the batch, in whatever pieces they come."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.audit.judge.traces import trace
from tests.audit.spark.traces import make
from tests.long import few
from whence.audit.judge.batch import audited, tables
from whence.audit.judge.batch.coding import code
from whence.audit.judge.batch.saved import CHECKPOINTS, SavedRun, waiting
from whence.audit.spark import blocks, growing
from whence.audit.spark.findings import frozen, thawed
from whence.audit.spark.growing import FollowedBatch, follow
from whence.audit.spark.keyed import judged
from whence.audit.spark.tables import arrow_schema, table_files
from whence.audit.trace import JsonlTrace, Row
from whence.cli import main
from whence.errors import TraceError
from whence.lab.sim.run import run
from whence.lab.sim.scenario import load

SCENARIOS = Path(__file__).parents[3] / "src" / "whence" / "lab" / "scenarios"
Verdicts = dict[tuple[str, str, str, int], dict[str, Any]]


@cache
def _hostile(seed: int) -> list[Row]:
    rows: list[Row] = []
    run(load(SCENARIOS / "hostile.toml"), seed, sink=rows.append)
    return rows


def hostile(seed: int) -> list[Row]:
    return _hostile(seed).copy()


def as_table(rows: Iterable[Row]) -> pa.Table:
    fields = [f for f in arrow_schema("events") if f.name != "file"]
    columns = {f.name: [getattr(r, f.name) for r in rows] for f in fields}
    return pa.Table.from_pydict(columns, schema=pa.schema(fields))


def to_rows(table: pa.Table) -> list[Row]:
    return [Row(**{k: v for k, v in row.items() if k in Row.__struct_fields__}) for row in table.to_pylist()]


def batch(rows: list[Row]) -> tuple[Verdicts, list[dict[str, Any]]]:
    """What the batch says of these rows."""
    judged = audited.audited(code(as_table(rows)))
    assert not judged.found.early.any()
    return by_step(tables.verdicts(judged).to_pylist()), tables.violations(judged).to_pylist()


def by_step(rows: Iterable[dict[str, Any]]) -> Verdicts:
    found = list(rows)
    out = {(r["run"], r["cluster"], r["member"], r["lseq"]): r for r in found}
    assert len(out) == len(found), "a delivery was judged twice"
    return out


def found_by(out: Path, table: str) -> list[dict[str, Any]]:
    return [row for file in table_files(out, table) for row in pq.read_table(file).to_pylist()]


def streamed(out: Path) -> Verdicts:
    return by_step(found_by(out, "verdicts"))


class Stream:
    """The judge of one run, which is saved and read again after each piece."""

    def __init__(self) -> None:
        self.state = frozen(SavedRun())

    def feed(self, rows: Iterable[Row] | pa.Table, run: tuple[str, str] = ("r", "main")) -> dict[str, pa.Table]:
        done, found = judged(thawed(self.state), run, rows if isinstance(rows, pa.Table) else as_table(rows))
        self.state = frozen(done.saved)
        return found

    def told(self, rows: Iterable[Row]) -> list[dict[str, Any]]:
        return self.feed(rows)["violations"].to_pylist()

    @property
    def waiting(self) -> dict[str, tuple[int, str]]:
        return waiting(thawed(self.state))


@pytest.fixture
def signals() -> Iterator[None]:
    """The command takes these; afterwards they are pytest's again."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


# -- the audit alone


def step(member: str, lseq: int, kind: str, event: str | None = None, t: int = 0, **more: Any) -> Row:
    return Row("r", "main", member, lseq, t, kind, event, **more)


def in_pieces(rows: list[Row], rng: random.Random) -> tuple[Verdicts, set[tuple[Any, ...]]]:
    """Feed them in pieces."""
    stream, at = Stream(), 0
    verdicts: list[dict[str, Any]] = []
    violations: list[dict[str, Any]] = []
    while at < len(rows):
        size = rng.randint(1, 700)
        found = stream.feed(rows[at : at + size], (rows[0].run, "main"))
        verdicts += found["verdicts"].to_pylist()
        violations += found["violations"].to_pylist()
        at += size
    assert not stream.waiting
    return by_step(verdicts), all_but_agreement(violations)


def all_but_agreement(violations: Iterable[dict[str, Any]]) -> set[tuple[Any, ...]]:
    """What the stream tells of while it runs; that one rule needs the end of the trace."""
    return {(v["rule"], v["member"], v["lseq"], v["event"]) for v in violations if v["rule"] != "agreement"}


@pytest.mark.parametrize("seed", [3, 7, 11, 39])
def test_verdict_by_verdict_as_the_batch_in_any_order(seed: int) -> None:
    rows = hostile(seed)
    verdicts, violations = batch(rows)
    rng = random.Random(seed)
    assert in_pieces(rows, rng) == (verdicts, all_but_agreement(violations))
    rng.shuffle(rows)
    assert in_pieces(rows + rows[:100], rng) == (verdicts, all_but_agreement(violations))


def test_injected_wrongs_are_all_found() -> None:
    tables, injected = make(20_000, runs=2, origins=5, members=60, wrongs=8)
    found: dict[str, set[tuple[str, str, str]]] = {}
    claims: set[tuple[str, str, str]] = set()
    for table in tables:
        rows = to_rows(table)
        random.Random(1).shuffle(rows)
        verdicts, violations = batch(rows)
        mine, told = in_pieces(rows, random.Random(2))
        assert mine == verdicts and told == all_but_agreement(violations)
        claims |= {(v[0], rows[0].run, v[1] if v[0] == "two owners" else v[3]) for v in told}
        for v in mine.values():
            found.setdefault(v["verdict"], set()).add((v["run"], v["member"], v["event"]))
    assert found["inverted"] == injected.inverted
    assert found["over a gap"] == injected.openers
    assert found["duplicate"] == injected.duplicates
    assert {(of, again) for rule, of, again in claims if rule == "two owners"} == injected.owners
    assert {(of, again) for rule, of, again in claims if rule == "reused id"} == {(w[0], w[2]) for w in injected.reused}


@pytest.mark.parametrize("part", few(range(4), 1))
def test_generated_traces_in_any_pieces(part: int) -> None:
    """Every kind of wrong, restarts, states and tickets that change hands. Causes come late: until then their effects
    wait; some rows come twice."""
    for seed in range(12 * part, 12 * (part + 1)):
        rows = [msgspec.structs.replace(row, cluster="main") for row in trace(seed, wrong=seed % 3 > 0)]
        a = audited.audited(code(as_table(rows)))
        rng, stream = random.Random(seed), Stream()
        every = by_step(tables.verdicts(a).to_pylist())
        wrong = {key[:3] for key in all_but_agreement(tables.violations(a).to_pylist())}
        rng.shuffle(rows)
        found: dict[str, list[dict[str, Any]]] = {"verdicts": [], "violations": []}
        for at in range(0, len(rows), 25):
            for name, table in stream.feed([*rows[at : at + 25], *rows[:3]]).items():
                found[name] += table.to_pylist()
        told, waits = by_step(found["verdicts"]), set(stream.waiting)
        assert told == {key: row for key, row in every.items() if key in told}, seed
        assert {key[2] for key in every.keys() - told.keys()} <= waits, seed
        mine = [(v["rule"], v["member"], v["lseq"]) for v in found["violations"]]
        assert len(mine) == len(set(mine)) and set(mine) <= wrong, seed
        assert {one[1] for one in wrong - set(mine)} <= waits, seed


def test_state_does_not_grow_with_deliveries_or_checkpoints() -> None:
    def steps(first: int, n: int) -> list[Row]:
        out: list[Row] = []
        for k in range(first, first + n, 2):
            out += [
                step("b#1", k, "deliver", "0:0.0.1:1@a#1"),
                step("b#1", k + 1, "snapshot", token=f"checkpoint {k}"),
            ]
        return out

    stream = Stream()
    stream.feed([step("a#1", 0, "join", reason="genesis"), step("a#1", 1, "publish", "0:0.0.1:1@a#1")])
    stream.feed(steps(0, 10 * CHECKPOINTS))
    before = len(stream.state)
    assert stream.feed(steps(10 * CHECKPOINTS, 10_000))["violations"].num_rows == 5_000
    assert len(stream.state) < before + 100
    last = f"checkpoint {10 * CHECKPOINTS + 9_998}"
    stream.feed([step("b#2", 0, "join", reason="checkpoint", peer="b#1", token=last)])
    (found,) = stream.feed([step("b#2", 1, "deliver", "0:0.0.1:1@a#1")])["verdicts"].to_pylist()
    assert found["verdict"] == "duplicate", "its last checkpoint was kept"


def test_rows_of_a_stream_need_the_required_columns_only() -> None:
    """`audit_stream` sends no others through the JVM. A row without a value where one is needed is left out."""
    table = pa.table(
        {
            "run": ["r", "r", None],
            "cluster": ["main"] * 3,
            "member": ["a#1"] * 3,
            "lseq": [0, 1, 2],
            "kind": ["join", "publish", "publish"],
            "event": [None, "a#1/1", "a#1/2"],
        }
    )
    good, refused = blocks.packed(iter(table.to_batches())), blocks.REFUSED
    found = {one["run"]: one for batch in good for one in batch.to_pylist()}
    assert sorted(found) == sorted(["r", refused, blocks.NOTICE]) and found["r"]["rows"] == 2
    assert not any(table.num_rows for table in Stream().feed(blocks.unpacked([found["r"]["block"]])).values())


def test_a_block_of_a_small_run_has_no_texts_of_others() -> None:
    """Else what is shuffled grows with the square of the runs."""
    parts = []
    for k, table in enumerate(make(12_000, runs=200, origins=2, members=5, wrongs=0)[0]):
        ids = pa.array([None if e is None else f"{e} of {k}" for e in table["event"].to_pylist()])
        parts.append(table.set_column(table.schema.get_field_index("event"), "event", ids))
    rows = pa.concat_tables(parts, promote_options="permissive").unify_dictionaries().combine_chunks()
    made = [one for batch in blocks.packed(iter(rows.to_batches())) for one in batch.to_pylist()]
    assert len(made) == 200 and sum(len(one["block"]) for one in made) < 150 * rows.num_rows


# -- with Spark


def member_files(rows: list[Row]) -> dict[str, bytes]:
    """A file per member, as a live cluster writes them."""
    files: dict[str, bytes] = {}
    for row in rows:
        name = f"{row.run}-{row.member.replace('#', '_')}.jsonl"
        files[name] = files.get(name, b"") + msgspec.json.encode(row) + b"\n"
    return files


class Watcher(threading.Thread):
    """Follows a trace until it is stopped."""

    def __init__(self, trace: Path, out: Path) -> None:
        super().__init__()
        self.told: list[FollowedBatch] = []
        self._over, self._where = threading.Event(), (trace, out)

    def run(self) -> None:
        follow(*self._where, self.told.append, stop=self._over)

    def stop(self) -> None:
        self._over.set()
        self.join()

    def rows(self) -> int:
        return self.told[-1].sums.rows if self.told else 0


@pytest.mark.parametrize("turns", few([3, 5], 1))
def test_appended_in_awkward_pieces(turns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace, out = tmp_path / "trace", tmp_path / "out"
    trace.mkdir()
    monkeypatch.setattr(growing, "BATCH_BYTES", 50_000)
    monkeypatch.setattr(growing, "EVERY", 0.01)
    rows = hostile(3)
    verdicts, violations = batch(rows)
    files = member_files(rows)
    done = dict.fromkeys(files, 0)
    rng = random.Random(5)
    last = sorted(files)[-1]
    parquet = sorted(files)[0]  # one member writes Parquet: it appears at the end
    watcher = Watcher(trace, out)
    watcher.start()
    for turn in range(turns):
        for name, data in files.items():
            if name == parquet or (name == last and turn < turns - 2):  # a file that comes late
                continue
            upto = (
                len(data) if turn == turns - 1 else rng.randint(done[name], len(data))
            )  # within a line, most of the time
            with (trace / name).open("ab") as file:
                file.write(data[done[name] : upto])
            done[name] = upto
        there = sum(data[: done[name]].count(b"\n") for name, data in files.items())
        wait_for(lambda there=there: watcher.rows() == there)
        assert turn == turns - 1 or watcher.told[-1].waiting
    mine = [r for r in rows if f"{r.run}-{r.member.replace('#', '_')}.jsonl" == parquet]
    (trace / "late.parquet").write_bytes(b"PAR1 and half of")  # it is still being copied
    pq.write_table(as_table(mine), tmp_path / "whole", row_group_size=50)
    (tmp_path / "whole").replace(trace / "late.parquet")
    wait_for(lambda: watcher.rows() == len(rows))
    watcher.stop()
    assert not watcher.told[-1].waiting and len(watcher.told) > 6
    assert streamed(out) == verdicts and not found_by(out, "quarantine")
    found = found_by(out, "violations")
    assert {(v["rule"], v["member"], v["lseq"], v["event"]) for v in found} == all_but_agreement(violations)
    assert sum(len(one.violations) for one in watcher.told) == len(found)


def test_the_end_of_a_trace(tmp_path: Path) -> None:
    """A lost publish, a last line without an end, and files that are no trace: as in the batch, once it is said to be
    the end. What is followed again is found again."""
    trace, out = tmp_path / "trace", tmp_path / "out"
    trace.mkdir()
    rows = hostile(11)
    lines = [msgspec.json.encode(r) + b"\n" for r in rows]
    lost = next(n for n, r in enumerate(rows) if r.kind == "publish" and n > len(rows) // 2)
    (trace / "a.jsonl").write_bytes(b"no row\n" + b"".join(lines[:lost] + lines[lost + 1 :])[:-1])
    (trace / "b.parquet").write_bytes(b"PAR1 and then nothing")
    verdicts, _ = batch(rows[:lost] + rows[lost + 1 :])
    for _ in range(2):
        end = follow(trace, out, once=True)
        assert streamed(out) == verdicts and end.sums.deliveries == len(verdicts)
        bad = {(Path(r["file"]).name, r["position"]): r["reason"] for r in found_by(out, "quarantine")}
        assert bad.keys() == {("a.jsonl", 1), ("b.parquet", -1)} and end.sums.quarantined == 2
        assert end.sums.rows == len(rows) - 1
    follow(trace, out, once=True, sparse=True)
    assert streamed(out) == {at: row for at, row in verdicts.items() if row["verdict"] != "in order"}


def test_what_contradicts_and_what_is_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str], signals: None) -> None:
    """As the audit sees it: not clean, though each row by itself would be."""
    steps = [step("a#1", 0, "publish", "e@a#1"), step("a#1", 1, "deliver", "e@a#1"), step("b#1", 0, "deliver", "e@a#1")]
    good = b"".join(msgspec.json.encode(row) + b"\n" for row in steps)
    other = msgspec.json.encode(msgspec.structs.replace(steps[2], event="f@a#1")) + b"\n"
    for name, files in {"good": [good], "empty": [good, b""], "contradiction": [good, other]}.items():
        (tmp_path / name).mkdir()
        for k, text in enumerate(files):
            (tmp_path / name / f"{k}.jsonl").write_bytes(text)
        command = ["audit", str(tmp_path / name), "--json", "--out", str(tmp_path / f"{name}-out")]
        codes = [main([*command, *how]) for how in (["--engine", "local"], ["--follow", "--once"])]
        assert codes == ([0, 0] if name == "good" else [3, 3]), name
        bad = json.loads(capsys.readouterr().out.splitlines()[-1])["summary"]["bad"]
        assert bad == {"good": 0, "empty": 1, "contradiction": 2}[name]


def test_what_cannot_be_followed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growing, "EVERY", 0.01)
    (tmp_path / "a.jsonl").write_bytes(msgspec.json.encode(Row("r", "main", "a#1", 0, 0, "fault")) + b"\n")

    def shorten(told: FollowedBatch) -> None:
        (tmp_path / "a.jsonl").write_bytes(b"{")

    with pytest.raises(TraceError, match="a trace only grows"):
        follow(tmp_path, tmp_path / "out", shorten)
    with pytest.raises(TraceError, match="no such directory"):
        follow(tmp_path / "nowhere", tmp_path / "out")


def wait_for(happened: Callable[[], bool]) -> None:
    for _ in range(3_000):
        if happened():
            return
        time.sleep(0.1)
    raise AssertionError("it did not happen")


def test_the_command_on_a_trace_that_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], signals: None
) -> None:
    """It tells while the trace grows; stopped, it has what the batch has. After kill -9 the next one has it."""
    trace = tmp_path / "trace"
    tables, injected = make(6_000, runs=1, origins=3, members=30, wrongs=3)
    rows = to_rows(tables[0])
    verdicts, violations = batch(rows)
    trace.mkdir()
    arguments = ["audit", str(trace), "--out", str(trace / ".watch"), "--follow", "--json", "--verdicts", "all"]
    with (tmp_path / "said").open("w") as said:
        command = [sys.executable, "-m", "whence", *arguments]
        watcher = subprocess.Popen(command, stdout=said, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        with JsonlTrace(trace / "run.jsonl", batch=97) as writer:
            writer.append_many(rows[: len(rows) // 2])
            writer.flush()
            wait_for(lambda: b"\n" in (tmp_path / "said").read_bytes())
            os.killpg(watcher.pid, signal.SIGKILL)
            watcher.wait()
            writer.append_many(rows[len(rows) // 2 :])
    finally:
        if watcher.poll() is None:
            os.killpg(watcher.pid, signal.SIGKILL)
            watcher.wait()
    first = json.loads((tmp_path / "said").read_text().splitlines()[0])
    assert first.keys() & {"batch", "violation"}
    with pytest.raises(TraceError, match="no finished table"):
        table_files(trace / ".watch", "verdicts")
    assert main([*arguments, "--once"]) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[-1]["summary"]["rows"] == len(rows)
    assert lines[-1]["summary"]["inversions"] == len(injected.inverted)
    assert sum(lines[-1]["violations"].values()) == len(all_but_agreement(violations))
    assert streamed(trace / ".watch") == verdicts


KEYED = """
import sys
from whence.audit import audit_stream
from whence.audit.spark.session import session
from whence.audit.spark.tables import spark_schema
spark = session("local[1]", "1g")
files = spark.readStream.schema(spark_schema("events")).option("maxFilesPerTrigger", 2)
steps = files.parquet(sys.argv[1])
sink = audit_stream(steps).writeStream.format("parquet").option("checkpointLocation", sys.argv[2] + "/saved")
trigger = {"availableNow": True} if sys.argv[3] == "once" else {"processingTime": "100 milliseconds"}
sink.trigger(**trigger).start(sys.argv[2] + "/found").awaitTermination()
"""


@pytest.mark.long
def test_a_keyed_stream_that_is_killed_and_another_that_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    """`audit_stream` in a process that is killed (-9) after some of its batches, whatever it is doing then. The next
    one goes on from the state store: together each verdict once, those of the batch."""
    trace = tmp_path / "trace"
    trace.mkdir()
    rows = [row for table in make(8_000, runs=2, origins=3, members=30, wrongs=3)[0] for row in to_rows(table)]
    verdicts, violations = batch(rows)
    parts = [as_table(rows[k::8]) for k in range(8)]  # out of order, so that much waits from one batch to the next
    command = [sys.executable, "-c", KEYED, str(trace), str(tmp_path)]

    def write(some: Iterable[int]) -> None:
        for k in some:
            pq.write_table(parts[k], tmp_path / "part")
            (tmp_path / "part").rename(trace / f"{k}.parquet")

    write(range(5))
    with (tmp_path / "said").open("wb") as said:
        first = subprocess.Popen([*command, "on"], stdout=said, stderr=said, start_new_session=True)
    try:
        wait_for((tmp_path / "saved" / "commits" / "1").exists)
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    write(range(5, 8))
    done = subprocess.run([*command, "once"], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    found = spark.read.parquet(str(tmp_path / "found"))
    assert by_step(r.asDict() for r in found.where("verdicts is not null").select("verdicts.*").collect()) == verdicts
    wrong = found.where("violations is not null").select("violations.*").collect()
    told = [(row.run, row.rule, row.member, row.lseq, row.event) for row in wrong]
    expected = {(v["run"], v["rule"], v["member"], v["lseq"], v["event"]) for v in violations}
    assert len(told) == len(set(told)) and set(told) == {one for one in expected if one[1] != "agreement"}


def test_what_only_the_end_shows_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str], signals: None) -> None:
    unknown = Row("r", "main", "a#1", 0, 0, "deliver", event="0:0.0.1:1@b#1")
    left = Row("r", "main", "b#1", 0, 0, "leave")  # its trace has an end, and no such event in it
    (tmp_path / "a.jsonl").write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in (unknown, left)))
    assert main(["audit", str(tmp_path), "--out", str(tmp_path / "out"), "--follow", "--once"]) == 1
    said = capsys.readouterr()
    assert said.out.startswith("integrity: r, a#1 at step 0: a#1 delivered 0:0.0.1:1@b#1, which nobody has published")
    assert "2 rows, 1 deliveries" in said.err and "broken: 1 integrity" in said.err


def test_watch_says_what_is_wrong_with_its_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], signals: None
) -> None:
    follow = ["--out", str(tmp_path / "out"), "--follow"]
    assert main(["audit", str(tmp_path / "nowhere"), *follow]) == 2
    assert "no such directory" in capsys.readouterr().err
    assert main(["audit", str(tmp_path), *follow, "--once"]) == 2
    assert "no trace in this directory" in capsys.readouterr().err


def test_two_owners_are_told_once_as_soon_as_they_overlap() -> None:
    def owned(member: str, lseq: int, t: int, incarnation: str, change: str = "owner") -> Row:
        return step(member, lseq, "ticket", reason=f"{change} {incarnation}", ticket=3, t=t)

    def published(member: str, lseq: int, t: int, event: str) -> Row:
        return step(member, lseq, "publish", event, t=t)

    stream = Stream()
    stream.feed([owned("a#1", 0, 10, "0.0.1"), published("a#1", 1, 20, "3:0.0.1:1@a#1")])
    stream.feed([step("b#1", 0, "deliver", "3:0.0.1:1@a#1")])
    assert not stream.told([owned("b#1", 1, 15, "0.0.2")]), "by its clock early, but it had the last event of the other"
    (claim,) = stream.told([published("a#1", 2, 30, "3:0.0.1:2@a#1")])
    assert (claim["rule"], claim["member"], claim["lseq"]) == ("two owners", "b#1", 1)
    assert "ticket 3 had two owners: a#1 as 0.0.1 from 10 to 30 ns" in claim["detail"]
    stream.feed([published("a#1", 3, 40, "3:0.0.1:3@a#1"), owned("a#1", 4, 50, "0.0.1", "released")])
    assert not stream.told([owned("c#1", 0, 50, "0.0.3"), published("c#1", 1, 60, "3:0.0.3:1@c#1")])
    found = stream.told([published("d#1", 0, 50, "3:0.0.4:1@d#1"), published("d#1", 1, 55, "3:0.0.4:2@d#1")])
    assert [(c["member"], c["lseq"]) for c in found] == [("c#1", 0)], "they began in the same moment"
    found = stream.told([published("e#1", 0, 99, "3:0.0.3:1@e#1")])
    assert {(c["rule"], c["member"]) for c in found} == {("two owners", "e#1"), ("reused id", "e#1")}
