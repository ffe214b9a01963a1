"""Writers and readers: what goes in comes out, equal rows give equal bytes, and whatever is no trace has a name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whence.audit.trace import COLUMNS, TRACE_VERSION, JsonlTrace, ParquetTrace, Row, open_trace, read, trace_files
from whence.errors import TraceError, UsageError

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def sample(n: int = 10) -> list[Row]:
    kinds = ("join", "publish", "deliver", "drop", "ticket")
    return [
        Row(
            *("run", "main", f"m{i % 3}#1", i // 3, i * 1000, kinds[i % 5]),
            event=f"0:0.0.1:{i}@m0#1" if i % 2 else None,
            ticket=i if i % 5 == 4 else None,
            bytes=2**40 + i if i % 3 else None,
            reason='späť\n"quoted"' if i % 4 == 0 else None,
        )
        for i in range(n)
    ]


def write(path: Path, rows: list[Row]) -> Path:
    with open_trace(path) as trace:
        trace.append_many(rows)
    return path


@pytest.fixture(params=[".parquet", ".jsonl"])
def suffix(request: pytest.FixtureRequest) -> str:
    return str(request.param)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
rows_of_any_kind = st.lists(
    st.builds(
        Row,
        run=texts,
        cluster=texts,
        member=texts,
        lseq=st.integers(0, 2**63 - 1),
        t_ns=st.integers(-(2**63), 2**63 - 1),
        kind=texts,
        event=st.none() | texts,
        age=st.none() | st.integers(-(2**31), 2**31 - 1),
        clock=st.none() | texts,
        token=st.none() | texts,
        version=st.integers(1, 9),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=60)
@given(rows=rows_of_any_kind)
def test_what_goes_in_comes_out(tmp_path_factory: pytest.TempPathFactory, rows: list[Row]) -> None:
    folder = tmp_path_factory.mktemp("trace")
    for name in ("t.parquet", "t.jsonl"):
        assert list(read(write(folder / name, rows))) == rows


def test_the_file_depends_on_the_rows_alone(tmp_path: Path, suffix: str) -> None:
    rows, make = sample(100), {".parquet": ParquetTrace, ".jsonl": JsonlTrace}[suffix]
    one_by_one, at_once, odd = (tmp_path / f"{n}{suffix}" for n in "abc")
    with make(one_by_one, batch=16) as trace:
        for row in rows:
            trace.append(row)
    with make(at_once, batch=16) as trace:
        trace.append_many(rows)
    with make(odd, batch=16) as trace:
        trace.append_many(rows[:7])
        trace.append(rows[7])
        trace.append_many(iter(rows[8:]))
    assert one_by_one.read_bytes() == at_once.read_bytes() == odd.read_bytes()
    assert list(read(odd)) == rows
    if suffix == ".parquet":
        meta = pq.ParquetFile(odd).metadata
        assert [meta.row_group(i).num_rows for i in range(meta.num_row_groups)] == [16] * 6 + [4]


def test_the_parquet_schema_is_the_published_one(tmp_path: Path) -> None:
    schema = pq.read_schema(write(tmp_path / "t.parquet", sample()))
    types = {"text": "string", "int32": "int32", "int64": "int64"}
    assert [(f.name, str(f.type), f.nullable) for f in schema] == [
        (c.name, types[c.type], not c.required) for c in COLUMNS
    ]
    assert {c.name for c in COLUMNS} == set(Row.__struct_fields__)


def test_every_json_line_says_its_version(tmp_path: Path) -> None:
    lines = write(tmp_path / "t.jsonl", sample()).read_text().splitlines()
    assert [msgspec.json.decode(line)["version"] for line in lines] == [TRACE_VERSION] * 10
    assert "null" not in "".join(lines)


def test_a_file_has_its_name_only_when_it_is_complete(tmp_path: Path) -> None:
    trace = ParquetTrace(tmp_path / "t.parquet", batch=4)
    trace.append_many(sample(9))
    with pytest.raises(TraceError, match="no trace in this directory"):
        read(tmp_path)
    trace.close()
    trace.close()
    assert [p.name for p in tmp_path.iterdir()] == ["t.parquet"]
    for add in (trace.append, lambda row: trace.append_many([row])):
        with pytest.raises(UsageError, match="closed"):
            add(sample(1)[0])


def test_a_run_that_fails_leaves_its_trace(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(ZeroDivisionError), open_trace(tmp_path / f"t{suffix}") as trace:
        trace.append_many(sample())
        raise ZeroDivisionError
    assert list(read(tmp_path)) == sample()


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    code = """
import resource, sys
from whence.errors import TraceError
from whence.audit.trace import ParquetTrace, Row
resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, 5_000))
rows = [Row("r", "c", "m#1", i, hash(str(i)), "publish", event=str(hash(i * 7919.5))) for i in range(4_000)]
try:
    with ParquetTrace(sys.argv[1] + "/t.parquet", batch=500) as trace:
        trace.append_many(rows)
except TraceError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert f"{tmp_path}/t.parquet: cannot write the trace" in done.stdout and not done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_named_for_lines_too() -> None:
    trace = JsonlTrace("/dev/full", batch=2)
    with pytest.raises(TraceError, match=r"/dev/full: cannot write the trace: No space left"):
        trace.append_many(sample())


def test_a_value_that_does_not_fit_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"t\.parquet: column ticket"), open_trace(tmp_path / "t.parquet") as trace:
        trace.append(Row("r", "c", "m", 0, 0, "ticket", ticket=2**40))
        trace.close()
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, suffix: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TraceError, match="cannot write the trace"):
        open_trace(tmp_path / "file" / f"t{suffix}")
    with pytest.raises(UsageError, match=r"\.parquet or a \.jsonl"):
        open_trace(tmp_path / "t.csv")


def test_a_half_line_is_named_and_does_not_spoil_what_follows(tmp_path: Path) -> None:
    path, rows = tmp_path / "t.jsonl", sample()
    write(path, rows)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(TraceError, match=r"t\.jsonl: line 10 \(byte \d+\): truncated: "):
        list(read(path))
    write(path, rows[:1])
    reader = read(path, on_bad="collect")
    assert list(reader) == [*rows[:9], rows[0]]
    assert reader.bad_count == len(reader.bad) == 1 and "line 10" in str(reader.bad[0])


def test_lines_that_are_no_rows_are_named(tmp_path: Path) -> None:
    good = msgspec.json.encode(sample(1)[0])
    lines = [
        good,
        b"",
        b"{}",
        good.replace(b'"lseq":0', b'"lseq":"0"'),
        b"\xff",
        b'{"a":' * 5000,
        b"x" * 2_000_000,
        b"7",
    ]
    lines += [good.replace(b'"version":%d' % TRACE_VERSION, b'"version":0'), good]
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n")
    reader = read(path, on_bad="collect")
    assert len(list(reader)) == 2
    found = [str(error) for error in reader.bad]
    assert [f"line {n} " in text for n, text in zip(range(2, 10), found, strict=True)] == [True] * 8
    assert "missing required field `run`" in found[1] and "$.lseq" in found[2] and "longer than" in found[5]
    offset = sum(len(line) + 1 for line in lines[:7])
    assert f"line 8 (byte {offset})" in found[6]


def test_what_is_collected_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_bytes(b"no\n" * 3_000)
    reader = read(tmp_path, on_bad="collect")
    assert not list(reader) and reader.bad_count == 3_000 and len(reader.bad) == reader.KEPT


def test_files_that_are_no_trace_are_named(tmp_path: Path) -> None:
    whole = write(tmp_path / "whole.parquet", sample(1000)).read_bytes()

    def reason(content: bytes, name: str = "t.parquet") -> str:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(TraceError) as caught:
            list(read(tmp_path / name))
        assert str(caught.value).startswith(str(tmp_path / name))
        return str(caught.value)

    assert "empty file" in reason(b"") and "empty file" in reason(b"", "t.jsonl")
    for content in (whole[: len(whole) // 2], b"PAR1", b"\x89PNG\r\n"):
        assert "row 0: damaged, or not a Parquet file" in reason(content)
    assert "line 1" in reason(b"\x89PNG\r\n", "t.jsonl")
    assert "row 0: damaged" in reason(whole[:4] + bytes(200) + whole[204:])
    with pytest.raises(TraceError, match="no such file"):
        read(tmp_path / "nowhere")


def test_foreign_parquet_is_named(tmp_path: Path) -> None:
    def reason(**columns: object) -> str:
        pq.write_table(pa.table(columns), tmp_path / "t.parquet")
        with pytest.raises(TraceError) as caught:
            list(read(tmp_path))
        return str(caught.value)

    required: dict[str, object] = {c.name: ["x"] * 3 if c.type == "text" else [1] * 3 for c in COLUMNS if c.required}
    assert "not a whence trace: it has no column 'version'" in reason(price=[1.0])
    assert "column 'lseq' is string, not int64" in reason(**required | {"lseq": ["a", "b", "c"]})
    assert "row 1: no value in column 'run'" in reason(**required | {"run": ["a", None, "c"]})


def test_rows_of_other_versions_are_read(tmp_path: Path, suffix: str) -> None:
    """A later version has a column more; an earlier one had none of the optional ones."""
    required = {"version": 2, "run": "r", "cluster": "c", "member": "m#1", "lseq": 0, "t_ns": 5, "kind": "teleport"}
    for name, row in (("later", required | {"colour": "red"}), ("earlier", required | {"version": 1})):
        if suffix == ".jsonl":
            (tmp_path / f"{name}.jsonl").write_bytes(msgspec.json.encode(row))
        else:
            pq.write_table(pa.Table.from_pylist([row]), tmp_path / f"{name}.parquet")
    write(tmp_path / f"now{suffix}", sample(2))
    got = list(read(tmp_path))
    assert got == [
        Row("r", "c", "m#1", 0, 5, "teleport", version=1),
        Row("r", "c", "m#1", 0, 5, "teleport", version=2),
        *sample(2),
    ]


def test_a_directory_of_both_formats(tmp_path: Path) -> None:
    rows = sample(9)
    write(tmp_path / "run=1" / "b.parquet", rows[:4])
    write(tmp_path / "a.jsonl", rows[4:])
    (tmp_path / "notes.txt").write_text("not a trace")
    write(tmp_path / "_hidden" / "c.jsonl", rows)
    (tmp_path / "run=1" / "z.parquet").write_bytes(b"PAR1 cut")
    assert [p.name for p in trace_files(tmp_path)] == ["a.jsonl", "b.parquet", "z.parquet"]
    reader = read(tmp_path, on_bad="collect")
    assert list(reader) == rows[4:] + rows[:4]
    assert ["z.parquet" in str(error) for error in reader.bad] == [True]


def test_without_pyarrow_parquet_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet, lines = write(tmp_path / "t.parquet", sample()), tmp_path / "t.jsonl"
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(TraceError, match=r"pip install 'whence\[trace\]'"):
        list(read(parquet))
    with pytest.raises(TraceError, match=r"pip install 'whence\[trace\]'"):
        open_trace(tmp_path / "u.parquet")
    assert list(read(write(lines, sample()))) == sample()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["t.jsonl", "t.parquet"]
