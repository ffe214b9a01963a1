"""What is a row and what is not: nothing is lost without a word, and nothing stops the run."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from whence.audit import audit_files
from whence.audit.spark import ingest, tables
from whence.audit.spark.place import found as files_at
from whence.audit.trace import Row, open_trace, read
from whence.audit.trace.schema import COLUMNS, TRACE_VERSION
from whence.errors import TraceError

NAMES = [column.name for column in COLUMNS]
IDS = [f"0:1.0.1:{k + 1}@a#1" for k in range(20)]


def steps(run: str = "r") -> list[Row]:
    """a publishes 20 events, q delivers them; all is well."""
    out = [Row(run, "c", "a#1", 0, 0, "join", reason="genesis", order="reliable")]
    for event in IDS:
        out.append(Row(run, "c", "a#1", len(out), len(out), "publish", event, "a#1", 0, bytes=10))
        out.append(Row(run, "c", "a#1", len(out), len(out), "deliver", event, "a#1", 0))
    out.append(Row(run, "c", "q#1", 0, 0, "join", reason="genesis", order="reliable"))
    out += [Row(run, "c", "q#1", k + 1, 100 + k, "deliver", event, "a#1", 0) for k, event in enumerate(IDS)]
    return out


def save(path: Path, rows: list[Row]) -> Path:
    with open_trace(path) as trace:
        trace.append_many(rows)
    return path


def all_of(place: Path) -> tuple[list[dict[str, Any]], list[ingest.Bad]]:
    pieces, bad = ingest.plan(ingest.find([place]))
    found: list[dict[str, Any]] = []
    for piece in pieces:
        table, wrong = ingest.read_piece(piece, NAMES)
        found += table.to_pylist()
        bad += wrong
    return found, bad


def as_dicts(rows: list[Row]) -> list[dict[str, Any]]:
    return [{name: getattr(row, name) for name in NAMES} for row in rows]


def without_position(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: row[name] for name in NAMES} for row in found]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_rows_as_our_reader_gives_them(tmp_path: Path, suffix: str) -> None:
    save(tmp_path / f"t.{suffix}", steps())
    found, bad = all_of(tmp_path)
    assert not bad and without_position(found) == as_dicts(steps()) == as_dicts(list(read(tmp_path)))


def test_a_json_file_is_cut_at_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = save(tmp_path / "t.jsonl", steps())
    lines = file.read_bytes().splitlines(keepends=True)
    lines[50] = b"{broken\n"
    file.write_bytes(b"".join(lines))
    for size in (97, 333, 10**6):
        monkeypatch.setattr(ingest, "PIECE_BYTES", size)
        found, bad = all_of(tmp_path)
        assert without_position(found) == as_dicts([row for k, row in enumerate(steps()) if k != 50])
        assert [(b.position, b.raw) for b in bad] == [(51, "{broken")]  # lines count from 1


def test_lines_that_are_no_rows(tmp_path: Path) -> None:
    good = [msgspec.json.encode(row) for row in steps()]
    one = json.loads(good[3])
    wrong = {
        "Object missing": json.dumps({k: v for k, v in one.items() if k != "lseq"}),
        "Expected `int`": json.dumps({**one, "lseq": "3"}),
        "Expected `int` >= 1": json.dumps({**one, "version": 0}),
        "Expected `int` >= 0": json.dumps({**one, "lseq": -1}),
        "Expected `int` <= 2147483647": json.dumps({**one, "ticket": 2**40}),
        "malformed": "{x}",
        "truncated": good[4][:30].decode(),
    }
    lines = [*good, *(text.encode() for text in wrong.values())]
    (tmp_path / "t.jsonl").write_bytes(b"\n".join(lines))
    found, bad = all_of(tmp_path)
    assert without_position(found) == as_dicts(steps())
    assert [b.position for b in bad] == list(range(len(good) + 1, len(lines) + 1))
    for says, b in zip(wrong, bad, strict=True):
        assert says in b.reason and b.raw == wrong[says]


def test_a_line_without_end(tmp_path: Path) -> None:
    good = msgspec.json.encode(steps()[0])
    (tmp_path / "t.jsonl").write_bytes(b"x" * (3 << 20) + b"\n" + good + b"\n")
    found, bad = all_of(tmp_path)
    assert len(found) == 1 and len(bad) == 1 and len(bad[0].raw or "") == ingest.RAW_LIMIT
    assert bad[0].position == 1 and "longer than" in bad[0].reason


def test_files_that_are_no_traces(tmp_path: Path) -> None:
    good = save(tmp_path / "good.parquet", steps()).read_bytes()
    (tmp_path / "empty.parquet").write_bytes(b"")
    (tmp_path / "empty.jsonl").write_bytes(b"")
    (tmp_path / "truncated.parquet").write_bytes(good[:-20])
    (tmp_path / "text.parquet").write_bytes(b"hello")
    (tmp_path / ".hidden.parquet.partial").write_bytes(good[:100])
    (tmp_path / "_other.parquet").write_bytes(b"")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "foreign.parquet")
    table = pq.read_table(tmp_path / "good.parquet")
    wrong = table.set_column(table.schema.get_field_index("lseq"), "lseq", table["lseq"].cast(pa.string()))
    pq.write_table(wrong, tmp_path / "wrong.parquet")
    found, bad = all_of(tmp_path)
    assert without_position(found) == as_dicts(steps())
    assert {Path(b.file).name: b.position for b in bad} == dict.fromkeys(
        ("empty.jsonl", "empty.parquet", "foreign.parquet", "text.parquet", "truncated.parquet", "wrong.parquet"), -1
    )
    says = {Path(b.file).name: b.reason for b in bad}
    assert (
        "no column 'run', 'cluster', 'member'" in says["foreign.parquet"]
        and "'lseq' is string" in says["wrong.parquet"]
    )


def test_a_file_that_would_fill_the_memory(tmp_path: Path) -> None:
    """A million rows in a few bytes."""
    one = dict.fromkeys(ingest.NEEDED, "x") | {"lseq": 1, "kind": "clock"}
    rows = pa.table({name: pa.repeat(pa.scalar(value), 1_000_000) for name, value in one.items()})
    pq.write_table(rows, tmp_path / "bomb.parquet", compression="zstd")
    _, (bad,) = ingest.plan(ingest.find([tmp_path]))
    assert "1,000,000 rows in" in bad.reason and "no trace is so repetitive" in bad.reason


def test_a_damaged_page_costs_its_row_group_only(tmp_path: Path) -> None:
    many = [Row("r", "c", "q#1", k, k, "deliver", f"{random.Random(k).random()}") for k in range(3000)]
    save(tmp_path / "all.parquet", many)
    table = pq.read_table(tmp_path / "all.parquet")
    (tmp_path / "all.parquet").unlink()
    path = tmp_path / "t.parquet"
    pq.write_table(table, path, row_group_size=1000, compression="zstd")
    group = pq.read_metadata(path).row_group(1)
    at = next(group.column(c) for c in range(group.num_columns) if group.column(c).path_in_schema == "event")
    data = bytearray(path.read_bytes())
    begin = at.dictionary_page_offset or at.data_page_offset
    data[begin : begin + at.total_compressed_size] = b"\xff" * at.total_compressed_size
    path.write_bytes(data)
    found, bad = all_of(tmp_path)
    assert [row["lseq"] for row in found] == [*range(1000), *range(2000, 3000)]
    assert [(b.position, b.reason[:7]) for b in bad] == [(1000, "damaged")]


def test_rows_of_other_versions(tmp_path: Path) -> None:
    """Fewer optional columns, more columns, other widths and other text types: all the same rows."""
    save(tmp_path / "a.parquet", steps())
    table = pq.read_table(tmp_path / "a.parquet")
    at = table.schema.get_field_index
    newer = table.append_column("colour", pa.array(["red"] * table.num_rows))
    newer = newer.set_column(at("version"), "version", pa.array([9] * table.num_rows, pa.int64()))
    pq.write_table(newer, tmp_path / "b.parquet")
    older = table.drop_columns(["token", "peer", "clock", "control", "held"])
    older = older.set_column(at("run"), "run", older["run"].cast(pa.large_string()))
    pq.write_table(older.set_column(at("t_ns"), "t_ns", older["t_ns"].cast(pa.int32())), tmp_path / "c.parquet")
    line = {**json.loads(msgspec.json.encode(steps()[0])), "colour": "red", "version": 7}
    (tmp_path / "d.jsonl").write_text(json.dumps(line) + "\n")
    found, bad = all_of(tmp_path)
    assert not bad
    rows = without_position(found)
    assert [{**row, "version": TRACE_VERSION} for row in rows] == 3 * as_dicts(steps()) + as_dicts(steps())[:1]
    assert [row["version"] for row in rows] == [TRACE_VERSION] * 62 + [9] * 62 + [TRACE_VERSION] * 62 + [7]


def test_rows_of_a_parquet_file_that_lack_something(tmp_path: Path) -> None:
    table = pa.Table.from_pylist(as_dicts(steps()))
    table = table.cast(pa.schema([pa.field(f.name, f.type) for f in tables.arrow_schema("events") if f.name != "file"]))
    for row, name, value in ((3, "member", None), (5, "lseq", -2), (7, "version", 0)):
        values = table[name].to_pylist()
        values[row] = value
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, pa.array(values, table.schema.field(name).type))
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=10)
    found, bad = all_of(tmp_path)
    assert [row["position"] for row in found] == [k for k in range(62) if k not in (3, 5, 7)]
    assert sorted((b.position, b.reason) for b in bad) == [
        (3, "no value in column 'member'"),
        (5, "lseq is below 0"),
        (7, "version is below 1"),
    ]


def test_which_files(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no such file"):
        ingest.find([tmp_path / "gone"])
    with pytest.raises(TraceError, match="no trace in this directory"):
        ingest.find([tmp_path])
    file = save(tmp_path / "t.jsonl", steps())
    assert ingest.find([tmp_path, file, tmp_path]) == files_at(file)
    save(tmp_path / "out" / "verdicts" / "part.jsonl", steps())
    (tmp_path / "out" / tables.MANIFEST).write_text("{}")  # tables of an audit are no traces
    assert ingest.find([tmp_path]) == files_at(file)


def test_the_same_rows_from_many_files(tmp_path: Path) -> None:
    """Late and out of order, doubled, contradicting, in two formats: each step once, the rest is in the quarantine."""
    rows = steps()
    mixed = rows[:]
    random.Random(1).shuffle(mixed)
    save(tmp_path / "in" / "b.jsonl", mixed[:40])
    save(tmp_path / "in" / "a.parquet", mixed[30:])
    other = next(row for row in rows if row.member == "q#1" and row.lseq == 20)
    save(tmp_path / "in" / "c.jsonl", [msgspec.structs.replace(other, event=IDS[0])])
    with (tmp_path / "in" / "c.jsonl").open("a") as file:
        file.write("no row\n")
    found = audit_files([tmp_path / "in"], tmp_path / "out", complete=True)
    assert (found.rows, found.repeated, found.quarantined, found.missing) == (73, 10, 3, 1)
    assert found.verdicts["in order"] == 39 and found.clean and not found.sure
    said = pa.Table.to_pylist(pq.read_table(tmp_path / "out" / "quarantine"))
    told = {(Path(row["file"]).name, row["position"], "different ways" in row["reason"]) for row in said}
    assert len(said) == 3 and {("c.jsonl", 1, True), ("c.jsonl", 2, False)} < told


@pytest.mark.parametrize("name", ["t.parquet", "t.jsonl"])
def test_a_row_with_an_unknown_order_is_refused(tmp_path: Path, name: str) -> None:
    """Three members, one of which claims an order that nobody knows."""
    orders = ("causal", "casual", "unordered")
    with open_trace(tmp_path / name) as trace:
        trace.append_many([Row("r", "c", f"{order}#1", 0, 0, "join", order=order) for order in orders])
    pieces, _ = ingest.plan(ingest.find([tmp_path]))
    table, bad = ingest.read_piece(pieces[0], ("member", "order"))
    assert [str(member) for member in table["member"].to_pylist()] == ["causal#1", "unordered#1"]
    (refused,) = bad
    assert refused.reason.startswith("unknown order 'casual' (known: ")


# -- JSON lines

ROWS = [
    Row("r", "c", "a#1", 0, 0, "join", reason="genesis", order="causal"),
    Row("r", "c", "a#1", 1, 10, "publish", event="0:1.0.1:1@a#1", origin="a#1", ticket=0, clock="1 -", bytes=64),
    Row("r", "c", "b#1", 0, -5, "receive", event="0:1.0.1:1@a#1", origin="a#1", age=3, control=9, held=1, peer="a#1"),
    Row("rün", "c", "b#1", 1, 2**60, "deliver", event="0:1.0.1:1@a#1", origin="ä#1"),
    Row("r", "", "", 123456789012345678, 7, "snapshot", token="t 1"),
]  # fmt: skip
GOOD = [msgspec.json.encode(row) for row in ROWS]


def test_each_line_is_a_row_or_is_quarantined(tmp_path: Path) -> None:
    """Whatever is changed, put in or cut out."""
    rng, file = random.Random(1), tmp_path / "t.jsonl"
    alphabet = b'{}[]",:\\\n -0123456789abruneflsvx\x00\xff\xc3'
    for _ in range(400):
        text = bytearray(b"\n".join(rng.choices(GOOD, k=rng.randint(1, 5))) + b"\n")
        for _ in range(rng.randint(0, 3)):
            at = rng.randrange(len(text))
            text[at : at + rng.choice((0, 1, 30))] = bytes([rng.choice(alphabet)])
        file.write_bytes(text)
        table, bad = ingest.read_piece(ingest.Piece(str(file), False, (), 0, len(text), 1, None), NAMES)
        there = [*table["position"].to_pylist(), *(one.position for one in bad)]
        assert sorted(there) == list(range(1, text.count(b"\n") + (not text.endswith(b"\n")) + 1)), bytes(text)
        untouched = {n for n, line in enumerate(text.split(b"\n"), 1) if line in GOOD and text.count(b"\n") >= n}
        assert untouched <= set(table["position"].to_pylist()), bytes(text)


def test_a_line_belongs_to_the_piece_it_begins_in(tmp_path: Path) -> None:
    text = b"\n".join([*GOOD, b"half a li", GOOD[0]]) + b"\n"
    (tmp_path / "t.jsonl").write_bytes(text)
    whole = ingest.read_piece(ingest.Piece(str(tmp_path / "t.jsonl"), False, (), 0, len(text), 1, None), NAMES)
    for cut in range(1, len(text)):
        parts = [
            ingest.read_piece(ingest.Piece(str(tmp_path / "t.jsonl"), False, (), a, b, 1, None), NAMES)
            for a, b in ((0, cut), (cut, len(text)))
        ]
        rows = [row for table, _ in parts for row in table.drop_columns(["position"]).to_pylist()]
        assert rows == whole[0].drop_columns(["position"]).to_pylist()
        assert [bad for _, some in parts for bad in some] == whole[1]
