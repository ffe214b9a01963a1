"""The audit against the simulator's oracle, verdict by verdict, and against wrongs of known identity."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.sim.runs import Run
from tests.spark.session import spark  # noqa: F401
from tests.spark.traces import Injected, make, write
from whence.cli import main
from whence.errors import UsageError
from whence.sim.oracle import Oracle
from whence.sim.scenario import Loaded, parse
from whence.sim.verdicts import Counts, OracleReport
from whence.spark import audit as audits
from whence.spark import findings, ingest, tables
from whence.spark.coding import READ, code
from whence.spark.pictures import draw, file_name
from whence.trace import Row, in_causal_order, open_trace, shiviz

pytestmark = pytest.mark.xdist_group("spark")

HOSTILE = """
members = 6
round = "250ms"
duration = "40r"
settle = "30r"
operator = "12r"
snapshot_delay = "20ms"
[network]
latency = "normal"
mean = "5ms"
sd = "1ms"
loss = 0.15
dup = 0.02
reorder = 0.2
reorder_by = "400ms"
[clocks]
offset = "1h"
[cluster]
tickets = 3
coordinators = 3
order = { reliable = 2, causal = 2, fifo = 1, unordered = 1 }
recovery = "Rk"
abandon = "25r"
[cluster.workload]
rate = 0.6
[chaos]
start = "10r"
crash = "12r"
down = "4r"
disk = 0.5
leave = "25r"
away = "4r"
cut = "12r"
cut_for = "4r"
churn = "10r"
"""

KINDS = {"text": pa.string(), "int32": pa.int32(), "int64": pa.int64()}


def table_of(rows: Iterable[Row], columns: Iterable[str] = READ) -> pa.Table:
    schema = tables.arrow_schema("events")
    rows = list(rows)
    return pa.table({c: pa.array([getattr(row, c) for row in rows], schema.field(c).type) for c in columns})


def by_oracle(rows: list[Row]) -> tuple[dict[tuple[str, int], str], OracleReport]:
    """The oracle's verdict on every delivery, and its report."""
    oracle, out = Oracle(), {}
    used = {row.token for row in rows if row.kind == "join"}
    for row in in_causal_order(rows):
        match row.kind:
            case "deliver":
                out[row.member, row.lseq] = oracle.delivered_frame(row.member, row.event).value
            case "publish":
                oracle.published(row.member, (row.event,))
            case "join":
                how = row.reason or ""
                oracle.joined(row.member, how, order=row.order or "causal", peer=row.peer, token=row.token)
            case "snapshot":
                oracle.snapshot(row.member, row.token or "", row.token in used)
            case "leave" | "crash":
                oracle.left(row.member)
    return out, oracle.report()


def agree(rows: list[Row]) -> Counts:
    """Every verdict and every count of every member, ours and the oracle's."""
    expected, report = by_oracle(rows)
    a = findings.audited(code(table_of(rows)))
    assert not a.circles
    with_news = findings.audited(a.coded, room=0).found  # as where whole vectors would take too much room
    assert (with_news.verdict == a.found.verdict).all() and (with_news.cause == a.found.cause).all()
    found = findings.verdicts(a, "r", "c").to_pylist()
    assert {(row["member"], row["lseq"]): row["verdict"] for row in found} == expected
    for row in findings.members(a, "r", "c").to_pylist():
        counts = report.members.get(row["member"], Counts())
        for field in fields(Counts):
            assert row[field.name] == getattr(counts, field.name), (row["member"], field.name)
        assert row["in_order"] == counts.in_order
        if row["member"] in report.orders:
            assert row["order"] == report.orders[row["member"]]
            assert row["alive"] == (row["member"] in report.live)
    assert len(a.coded.reused) == report.reused_ids
    broken = findings.violations(a, "r", "c")["rule"].to_pylist()
    rules = {
        "causal": ("causal: inverted", "reliable: inverted"),
        "fifo": ("fifo: fifo_inverted",),
        "gap": ("reliable: over_gap",),
    }
    for rule, names in rules.items():
        assert broken.count(rule) == sum(report.broken.get(name, 0) for name in names)
    twice_or_unknown = [n for name, n in report.broken.items() if name.endswith(("duplicates", "unknown"))]
    assert broken.count("integrity") == sum(twice_or_unknown)
    assert ("agreement" in broken) == bool(
        report.broken.get("reliable: disagreements", 0) or report.broken.get("reliable: lost_of_live", 0)
    )
    assert "two owners" not in broken
    return report.total


def spoiled(rows: list[Row], rng: random.Random) -> list[Row]:
    """The same run with deliveries lost, doubled, delayed and invented. Never earlier: no delivery comes before its own
    publish."""
    steps: dict[str, list[Row]] = {}
    for row in rows:
        steps.setdefault(row.member, []).append(row)
    out: list[Row] = []
    for member in sorted(steps):
        new: list[Row] = []
        held: list[tuple[int, Row]] = []
        for row in sorted(steps[member], key=lambda r: r.lseq):
            held = [(n - 1, h) for n, h in held]
            new += [h for n, h in held if n <= 0]
            held = [(n, h) for n, h in held if n > 0]
            fate = rng.random() if row.kind == "deliver" else 1.0
            if fate < 0.03:
                continue
            if fate < 0.06:
                held.append((rng.randrange(1, 40), row))
                continue
            new.append(row)
            if fate < 0.08:
                new.append(row)
            elif fate < 0.085:
                new.append(msgspec.structs.replace(row, event="9:9.9.9:1@nobody#1"))
        out += [msgspec.structs.replace(row, lseq=at) for at, row in enumerate(new)]
    rng.shuffle(out)
    return out


@pytest.mark.parametrize("part", range(4))
def test_agrees_with_the_oracle(part: int) -> None:
    """240 traces: 60 random runs with crashes, restarts, churn and snapshots, each as it was, and spoiled in 3 ways."""
    total = Counts()
    joined: set[str | None] = set()
    for seed in range(part, 60, 4):
        rows = Run(parse(HOSTILE), seed).rows
        joined |= {row.reason for row in rows if row.kind == "join"}
        total += agree(rows)
        rng = random.Random(seed)
        for _ in range(3):
            total += agree(spoiled(rows, rng))
    assert joined == {"genesis", "snapshot", "checkpoint"}
    assert min(total.inverted, total.fifo_inverted, total.over_gap, total.after_gap, total.duplicates) > 100
    assert min(total.unknown, total.gaps, total.lost, total.disagreements) > 10


def test_the_packaged_hostile_scenario_is_clean() -> None:
    loaded: Loaded = parse((Path(__file__).parents[2] / "scenarios" / "hostile.toml").read_text())
    for seed in range(2):
        rows = Run(loaded, seed).clean().rows
        agree(rows)
        assert not findings.violations(findings.audited(code(table_of(rows))), "r", "c").num_rows


def step(member: str, lseq: int, kind: str, event: str | None = None, **more: Any) -> Row:
    return Row(run="r", cluster="c", member=member, lseq=lseq, t_ns=lseq, kind=kind, event=event, **more)


A, B, C = "0:1.0.1:1@a#1", "1:1.0.1:1@b#1", "0:1.0.1:2@a#1"


def triangle(*at_q: Row) -> list[Row]:
    """a publishes A; b, having delivered it, publishes B; q does as it is told."""
    return [
        step("a#1", 0, "join", order="causal", reason="genesis"),
        step("a#1", 1, "publish", A),
        step("a#1", 2, "deliver", A),
        step("b#1", 0, "join", order="causal", reason="genesis"),
        step("b#1", 1, "deliver", A),
        step("b#1", 2, "publish", B),
        step("b#1", 3, "deliver", B),
        *at_q,
    ]


def judged(rows: list[Row], member: str) -> list[dict[str, Any]]:
    found = findings.verdicts(findings.audited(code(table_of(rows))), "r", "c").to_pylist()
    return [row for row in found if row["member"] == member]


def test_an_effect_before_its_cause_is_explained() -> None:
    rows = triangle(
        step("q#1", 0, "join", order="causal", reason="genesis"),
        step("q#1", 1, "deliver", B),
        step("q#1", 2, "deliver", A),
    )
    first, second = judged(rows, "q#1")
    assert (first["verdict"], first["cause_event"], first["violation"]) == ("over a gap", A, False)
    assert (second["verdict"], second["cause_event"], second["cause_origin"]) == ("inverted", B, "b#1")
    assert second["violation"] and second["cause_seq"] == 1 and second["origin"] == "a#1"
    found = findings.violations(findings.audited(code(table_of(rows))), "r", "c").to_pylist()
    assert [(v["rule"], v["member"], v["lseq"], v["event"]) for v in found] == [("causal", "q#1", 2, A)]
    assert found[0]["witness"] == [B, A]
    assert found[0]["detail"] == (
        f"q#1 delivered {B} (b#1's 1st) and then {A} (a#1's 1st); "
        "but b#1 published the former with the latter in its past"
    )


def test_an_unordered_member_promises_none_of_this() -> None:
    rows = triangle(
        step("q#1", 0, "join", order="unordered", reason="genesis"),
        step("q#1", 1, "deliver", B),
        step("q#1", 2, "deliver", A),
        step("q#1", 3, "deliver", A),
    )
    assert [row["verdict"] for row in judged(rows, "q#1")] == ["over a gap", "inverted", "duplicate"]
    assert not findings.violations(findings.audited(code(table_of(rows))), "r", "c").num_rows


def test_the_past_is_the_true_one() -> None:
    rows = triangle(step("q#1", 0, "join", order="causal", reason="genesis"))
    a = findings.audited(code(table_of(rows)))
    assert findings.origins_table(a, "r", "c")["member"].to_pylist() == ["a#1", "b#1"]
    past = {
        row["event"]: (row["origin"], row["seq"], row["vector"]) for row in findings.past_table(a, "r", "c").to_pylist()
    }
    assert past == {A: ("a#1", 1, [0, 0]), B: ("b#1", 1, [1, 0])}


def test_missing_steps_are_counted_and_nobody_is_accused_for_them() -> None:
    """q's step 1, which delivered A, is missing: B is not over a gap then. b's publish is missing: B is unknown, which
    is no reproach, because b's rows are not all there."""
    q = [step("q#1", 0, "join", order="reliable", reason="genesis"), step("q#1", 2, "deliver", B)]
    assert [(row["verdict"], row["violation"]) for row in judged(triangle(*q), "q#1")] == [("in order", False)]
    rows = [row for row in triangle(*q) if (row.member, row.kind) != ("b#1", "publish")]
    assert [(row["verdict"], row["violation"]) for row in judged(rows, "q#1")] == [("unknown", False)]
    found = findings.members(findings.audited(code(table_of(rows))), "r", "c").to_pylist()
    assert {row["member"]: row["missing"] for row in found} == {"a#1": 0, "b#1": 1, "q#1": 1}


def test_a_join_from_an_unknown_snapshot() -> None:
    """What q began with is not known: what it skips first may have been in it, what it skips later was not."""
    rows = triangle(
        step("a#1", 3, "publish", C),
        step("a#1", 4, "publish", "0:1.0.1:3@a#1"),
        step("q#1", 0, "join", order="reliable", reason="snapshot", token="never taken"),
        step("q#1", 1, "deliver", B),
        step("q#1", 2, "deliver", "0:1.0.1:3@a#1"),
    )
    assert [row["verdict"] for row in judged(rows, "q#1")] == ["in order", "in order"]


def test_a_trace_of_a_circle_does_not_hang() -> None:
    """a publishes A after B, b publishes B after A."""
    rows = [
        step("a#1", 0, "deliver", B),
        step("a#1", 1, "publish", A),
        step("b#1", 0, "deliver", A),
        step("b#1", 1, "publish", B),
        step("q#1", 0, "deliver", A),
        step("q#1", 1, "deliver", B),
        step("x#1", 0, "deliver", "0:1.0.1:9@x#1"),
        step("x#1", 1, "publish", "0:1.0.1:9@x#1"),
        step("y#1", 0, "join", reason="checkpoint", peer="z#1"),
        step("z#1", 0, "join", reason="checkpoint", peer="y#1"),
    ]
    a = findings.audited(code(table_of(rows)))
    assert a.circles == 3
    found = {(row["member"], row["event"]): row["verdict"] for row in findings.verdicts(a, "r", "c").to_pylist()}
    assert found["a#1", B] == "unknown" and found["b#1", A] == "in order"
    assert found["x#1", "0:1.0.1:9@x#1"] == "unknown"
    assert found["q#1", A] == "in order" and found["q#1", B] == "in order"


def test_many_holes_cost_no_more_than_rows() -> None:
    """One member gets 20,000 events in random order, another in reverse: linear, or this would not end."""
    n = 20_000
    ids = [f"0:1.0.1:{k + 1}@a#1" for k in range(n)]
    order = random.Random(1).sample(ids, n)
    rows = [step("a#1", k, "publish", event) for k, event in enumerate(ids)]
    rows += [step("q#1", k, "deliver", event) for k, event in enumerate(order)]
    rows += [step("s#1", k, "deliver", event) for k, event in enumerate(reversed(ids))]
    rows += [
        step("t#1", 0, "deliver", ids[-1]),
        *(step("t#1", k + 1, "deliver", event) for k, event in enumerate(ids[:-1])),
    ]
    found = {
        row["member"]: row for row in findings.members(findings.audited(code(table_of(rows))), "r", "c").to_pylist()
    }
    assert found["s#1"]["fifo_inverted"] == found["t#1"]["fifo_inverted"] == n - 1
    assert (
        found["q#1"]["inverted"] + found["q#1"]["over_gap"] + found["q#1"]["after_gap"] + found["q#1"]["in_order"] == n
    )


def test_a_picture_of_a_violation(tmp_path: Path) -> None:
    """The neighbourhood only, as a log that our own reader of ShiViz logs takes."""
    at_q = [step("q#1", 0, "join", order="causal", reason="genesis")]
    at_q += [step("q#1", k, "receive", B) for k in range(1, 30)]
    at_q += [step("q#1", 30, "deliver", B), step("q#1", 31, "deliver", A)]
    at_q += [step("p#1", k, "receive", B) for k in range(30)]
    table = table_of(triangle(*at_q))
    audited = findings.audited(code(table))
    wrong = findings.violations(audited, "r", "c")
    assert draw(table, audited.coded, wrong, "r", "c", str(tmp_path)) == 1
    (file,) = (tmp_path / "shiviz").iterdir()
    assert file.name == file_name("r", "c", "causal") and file.name.startswith("r-c-causal-")
    log = shiviz.load_log(file, shiviz.EXPRESSION)
    assert {record.host for record in log.records} == {"a#1", "b#1", "q#1"}
    assert len([record for record in log.records if record.host == "q#1"]) == 5
    clocks = {(record.host, record.event): record.clock for record in log.records}
    assert len(clocks) == len(log.records) == 5 + 3 + 4


def test_pictures_of_different_violations_have_different_names() -> None:
    """Also where a name of a file cannot tell their texts apart."""
    names = [("a-b", "c"), ("a", "b-c"), ("a b", "c"), ("a/b", "c"), ("x" * 300, "c"), ("x" * 301, "c")]
    found = {file_name(run, cluster, "causal") for run, cluster in names}
    assert len(found) == len(names) and max(map(len, found)) < 200


# -- two owners


def tenure(member: str, lseq: int, t: int, change: str, incarnation: str) -> Row:
    return Row("r", "c", member, lseq, t, "ticket", ticket=0, reason=f"{change} {incarnation}")


def owners(*rows: Row) -> list[str]:
    found = findings.violations(findings.audited(code(table_of(rows))), "r", "c").to_pylist()
    return [f"{v['rule']} {v['member']}" for v in found]


def test_two_owners_at_one_time() -> None:
    first = tenure("a#1", 0, 100, "owner", "1.0.1")
    second = tenure("b#1", 0, 200, "owner", "1.0.2")
    assert owners(first, tenure("a#1", 1, 150, "released", "1.0.1"), second) == []
    assert owners(first, tenure("a#1", 1, 250, "released", "1.0.1"), second) == ["two owners b#1"]
    # Who loses it notices late; what counts is what it did.
    assert owners(first, tenure("a#1", 1, 250, "lost", "1.0.1"), second) == []
    late = Row("r", "c", "a#1", 1, 240, "publish", "0:1.0.1:1@a#1")
    assert owners(first, late, second) == ["two owners b#1"]
    # One incarnation is one owner's, whenever.
    assert owners(first, tenure("a#1", 1, 150, "released", "1.0.1"), tenure("b#1", 0, 300, "owner", "1.0.1")) == [
        "two owners b#1"
    ]


def test_clocks_that_differ_make_no_second_owner() -> None:
    """By its own clock b began before a's last publish; but it had delivered that before."""
    rows = [
        tenure("a#1", 0, 100, "owner", "1.0.1"),
        Row("r", "c", "a#1", 1, 240, "publish", A),
        Row("r", "c", "b#1", 0, 190, "deliver", A),
        tenure("b#1", 1, 200, "owner", "1.0.2"),
    ]
    assert owners(*rows) == []


def test_an_id_is_used_once() -> None:
    rows = triangle(step("q#1", 0, "publish", "0:1.0.1:1@q#1"))
    found = findings.violations(findings.audited(code(table_of(rows))), "r", "c").to_pylist()
    assert {v["rule"] for v in found} == {"reused id", "two owners"}


# -- with Spark


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


@pytest.mark.parametrize("design", ["runs", "shuffle"])
def test_injected_wrongs_are_found_and_nothing_else(
    spark: SparkSession,  # noqa: F811
    small: tuple[list[pa.Table], Injected],
    tmp_path: Path,
    design: str,
) -> None:
    tables_, injected = small
    write(tables_, tmp_path / "in", layout="run" if design == "runs" else "mixed", files=3)
    found = audits.audit(spark, [tmp_path / "in"], tmp_path / "out", design=design)
    exactly(tmp_path / "out", injected)
    assert found.rows == sum(table.num_rows for table in tables_) and found.runs == 5
    assert found.verdicts["inverted"] == found.verdicts["duplicate"] == 15 and found.verdicts["unknown"] == 0
    verdicts = tables.read_table(spark, tmp_path / "out", "verdicts")
    assert verdicts.count() == found.deliveries == sum(t["kind"].to_pylist().count("deliver") for t in tables_)
    assert verdicts.where("violation").count() == 15 * 4


@pytest.mark.parametrize("layout", ["run", "mixed"])
def test_giant_runs_are_spread_over_workers(
    spark: SparkSession,  # noqa: F811
    small: tuple[list[pa.Table], Injected],
    tmp_path: Path,
    layout: str,
) -> None:
    """The same tables, whether a run is judged at one place or at many."""
    tables_, injected = small
    write(tables_, tmp_path / "in", layout=layout, files=3)
    for name, giant in (("one", 10**9), ("many", 10_000)):
        found = audits.audit(spark, [tmp_path / "in"], tmp_path / name, giant=giant)
        assert found.design == ("giant" if name == "many" else "runs")
        exactly(tmp_path / name, injected)
    assert_same_tables(tmp_path / "one", tmp_path / "many")


def test_what_does_not_fit_into_a_worker_is_spread(
    spark: SparkSession,  # noqa: F811
    small: tuple[list[pa.Table], Injected],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write(small[0], tmp_path / "in", layout="run")
    monkeypatch.setattr(audits.session, "worker_memory", lambda spark: 10_000 * audits.ROW_BYTES)
    assert audits.audit(spark, [tmp_path / "in"], tmp_path / "out").design == "giant"
    with pytest.raises(UsageError, match="no design 'fastest'"):
        audits.audit(spark, [tmp_path / "in"], tmp_path / "out", design="fastest")


def assert_same_tables(a: Path, b: Path) -> None:
    keys = {
        "verdicts": ("run", "member", "lseq"),
        "members": ("run", "member"),
        "violations": ("run", "rule", "detail"),
    }
    for name, key in keys.items():
        one, other = (sorted(pq.read_table(x / name).to_pylist(), key=lambda r: [r[k] for k in key]) for x in (a, b))
        assert one == other


def test_giant_runs_with_restarts_and_snapshots(spark: SparkSession, tmp_path: Path) -> None:  # noqa: F811
    """Members that begin with the state of others, who are judged elsewhere; duplicates and conflicts, too."""
    rows = []
    for seed in range(6):
        mine = spoiled(Run(parse(HOSTILE), seed).rows, random.Random(seed))
        rows += mine + mine[:20] + [msgspec.structs.replace(mine[-1], t_ns=1)]
    save = tmp_path / "in" / "t.parquet"
    with open_trace(save) as trace:
        trace.append_many(rows)
    one = audits.audit(spark, [save], tmp_path / "one")
    many = audits.audit(spark, [save], tmp_path / "many", giant=100)
    assert many.design == "giant" and (one.rows, one.repeated, one.quarantined) == (len(rows), 120, 12)
    for name in (
        "rows",
        "runs",
        "members",
        "published",
        "deliveries",
        "repeated",
        "missing",
        "quarantined",
        "verdicts",
    ):
        assert getattr(one, name) == getattr(many, name), name
    assert one.violations == many.violations
    assert_same_tables(tmp_path / "one", tmp_path / "many")


def test_a_million_rows(spark: SparkSession, tmp_path: Path) -> None:  # noqa: F811
    tables_, injected = make(1_000_000, runs=4, origins=10, members=100, wrongs=40, seed=3)
    write(tables_, tmp_path / "in", layout="mixed", files=4)
    found = audits.audit(spark, [tmp_path / "in"], tmp_path / "out", design="shuffle")
    exactly(tmp_path / "out", injected)
    assert found.rows == sum(table.num_rows for table in tables_)


def test_functions_from_dataframe_to_dataframe(
    spark: SparkSession,  # noqa: F811
    tmp_path: Path,
) -> None:
    rows = Run(parse(HOSTILE), 3).rows
    rows += [msgspec.structs.replace(row, run="again") for row in rows]
    with open_trace(tmp_path / "t.parquet") as trace:
        trace.append_many(rows)
    events = ingest.events(ingest.raw(spark, [tmp_path]))
    expected, _ = by_oracle([row for row in rows if row.run == "again"])
    found = audits.verdicts(events).collect()
    for run in {row.run for row in rows}:
        assert {(row.member, row.lseq): row.verdict for row in found if row.run == run} == expected
    past, origins = audits.past(events).collect(), audits.origins(events).collect()
    assert len(past) == sum(row.kind == "publish" for row in rows)
    assert {len(row.vector) for row in past} == {len(origins) // 2}
    assert audits.violations(events).count() == 0
    assert audits.members(events).count() == 2 * len({row.member for row in rows})


# -- the command


def audit_command(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, dict[str, Any], str]:
    code_ = main(["audit", *map(str, args), "--json"])
    said = capsys.readouterr()
    return code_, json.loads(said.out) if said.out else {}, said.err


def test_the_command(
    spark: SparkSession,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = Run(parse(HOSTILE), 1).rows
    for name, some in (("good", rows), ("bad", spoiled(rows, random.Random(1)))):
        with open_trace(tmp_path / name / "t.jsonl") as trace:
            trace.append_many(some)
    exit_code, said, progress = audit_command(capsys, tmp_path / "good", "--out", tmp_path / "out")
    assert exit_code == 0 and said["clean"] and said["rows"] == len(rows) and "starting Spark" in progress
    exit_code, said, _ = audit_command(capsys, tmp_path / "bad", "--out", tmp_path / "out")
    rule, count = next(iter(said["violations"].items()))
    assert exit_code == 1 and count and said["first"][rule]
    assert main(["audit", str(tmp_path / "bad"), "--out", str(tmp_path / "out")]) == 1
    shown = capsys.readouterr().out
    assert f"violations: {rule}" in shown and said["first"][rule][0] in shown


def test_the_command_on_what_is_no_trace_at_all(
    spark: SparkSession,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Not clean: there is nothing to say about it. The quarantine says why."""
    (tmp_path / "trace").mkdir()
    (tmp_path / "trace" / "a.parquet").write_bytes(b"noise")
    (tmp_path / "trace" / "b.jsonl").write_text("{}\nnoise\n")
    exit_code, said, told = audit_command(capsys, tmp_path / "trace", "--out", tmp_path / "out")
    assert exit_code == 2 and not said and "nothing readable" in told.splitlines()[-1]
    assert pq.read_table(tmp_path / "out" / "quarantine").num_rows == 3


def test_the_command_on_what_is_no_log_at_all(
    spark: SparkSession,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_text("noise\nand more\n")
    (tmp_path / "logs" / "b.log").write_bytes(b"\xff\xfe\x00")
    parser = r"(?<host>\S*) (?<clock>{.*})\n(?<event>.*)"
    shiviz_logs = [tmp_path / "logs", "--format", "shiviz", "--parser", parser]
    exit_code, said, told = audit_command(capsys, *shiviz_logs, "--out", tmp_path / "out")
    assert exit_code == 2 and not said and "nothing readable" in told.splitlines()[-1]
    assert pq.read_table(tmp_path / "out" / "quarantine").num_rows >= 2


def wrong_inputs(place: Path) -> Iterator[tuple[list[object], str]]:
    (place / "empty").mkdir()
    (place / "file").write_text("")
    (place / "good").mkdir()
    (place / "good" / "t.jsonl").write_text("")
    yield [place / "gone", "--out", place / "out"], "no such file or directory"
    yield [place / "empty", "--out", place / "out"], "no trace in this directory"
    yield [place / "good", "--out", place / "file"], "is a file"
    yield [place / "good", "--out", place / "out", "--parser", "x"], "--format shiviz"


def test_input_that_makes_no_sense(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for args, says in wrong_inputs(tmp_path):
        exit_code, _, said = audit_command(capsys, *args)
        assert exit_code == 2 and says in said and said.count("\n") == 1


def test_the_command_without_java(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.jsonl").write_text("")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(SparkSession, "getActiveSession", classmethod(lambda cls: None))
    exit_code, _, said = audit_command(capsys, tmp_path / "t.jsonl", "--out", tmp_path / "out")
    assert exit_code == 2 and "Java 17" in said.splitlines()[-1]


def test_a_relative_out_is_where_the_caller_is(
    spark: SparkSession,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Workers live where Spark was started; the caller may have moved on."""
    (tmp_path / "trace").mkdir()
    write(make(2_000, runs=1)[0], tmp_path / "trace")
    monkeypatch.chdir(tmp_path)
    found = audits.audit(spark, ["trace"], "out")
    assert pq.read_table(tmp_path / "out" / "verdicts").num_rows == found.deliveries > 0
