"""Every format, and errors that say where."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from whence.audit.history import check, discover, read
from whence.errors import HistoryError

TEXT = "w(1,1,0,0)\nw(1,2,0,1)\nw(2,2,0,1)\nr(2,2,1,2)\nr(1,1,1,3)\n"
"""COConflictAO: RC and RA hold, TCC does not."""

AWDIT = "w 1 1\n---\nw 1 2\nw 2 2\n====\nr 2 2\n--\nr 1 1\n"
HIST = "// a comment\n[x:=1] [x:=2 y:=2]\n---\n[y==2] [x==1]\n"
EDN = """; a comment
{:type :ok, :process 0, :f :txn, :value [[:w :x 1]]} {:process :nemesis :type :info :f :kill}
{:type :ok, :process 0, :f :txn, :value [[:w :x 2] [:w "y" 2]]}
#jepsen.history.Op{:type :invoke, :process 1, :f :txn, :value [[:r "y" nil]]}
{:type :ok, :process 1, :f :txn, :value [[:r "y" 2]]}, {:type :ok, :process 1, :f :txn, :value [[:r :x 1]]}
"""
ELLE = """{"type": "ok", "process": 0, "f": "txn", "value": [["w", "x", 1]]}
{"type": "ok", "process": 0, "f": "txn", "value": [["w", "x", 2], ["w", "y", 2]]}
{"type": "ok", "process": 1, "f": "txn", "value": [["r", "y", 2]]}
{"type": "ok", "process": 1, "f": "txn", "value": [["r", "x", 1]]}
"""
DBCOP = """{"params": {}, "data": [
[{"events": [{"Write": {"variable": 0, "version": 1}}], "committed": true},
 {"events": [{"Write": {"variable": 0, "version": 2}}, {"Write": {"variable": 1, "version": 2}}], "committed": true}],
[{"events": [{"Read": {"variable": 1, "version": 2}}], "committed": true},
 {"events": [{"Read": {"variable": 0, "version": 1}}], "committed": true}]]}"""


ROWS = """{"session": "ann", "txn": 0, "kind": "w", "key": "x", "value": "1"}
{"session": "ann", "txn": 1, "kind": "w", "key": "x", "value": "2"}
{"session": "ann", "txn": 1, "kind": "w", "key": "y", "value": "2", "status": "committed"}
{"txn": 2, "session": "bob", "kind": "r", "key": "y", "value": "2"}
{"session": "bob", "txn": 3, "kind": "r", "key": "x", "value": "1"}
"""
CSV = "session,txn,kind,key,value\nann,0,w,x,1\nann,1,w,x,2\nann,1,w,y,2\nbob,2,r,y,2\nbob,3,r,x,1\n"


def bincode() -> bytes:
    sessions = [[[(1, 1, 1)], [(1, 1, 2), (1, 2, 2)]], [[(0, 2, 2)], [(0, 1, 1)]]]
    out = struct.pack("<5Q", 0, 2, 2, 4, 5) + b"".join(struct.pack("<Q", len(s)) + s for s in (b"", b"now", b"then"))
    out += struct.pack("<Q", len(sessions))
    for session in sessions:
        out += struct.pack("<Q", len(session))
        for txn in session:
            out += struct.pack("<Q", len(txn))
            out += b"".join(struct.pack("<?QQ?", bool(w), key, value, True) for w, key, value in txn) + b"\1"
    return out


def cobra(folder: Path) -> None:
    def txn(number: int, *records: bytes) -> bytes:
        return b"S" + struct.pack(">q", number) + b"".join(records) + b"C" + struct.pack(">q", number)

    def write(wid: int, key: int) -> bytes:
        return b"W" + struct.pack(">3q", wid, key, 7)

    def took(wid: int, key: int) -> bytes:
        return b"R" + struct.pack(">4q", 0, wid, key, 7)

    folder.mkdir()
    (folder / "T0.log").write_bytes(txn(0, write(1, 1)) + txn(1, write(2, 1), write(3, -5)))
    (folder / "T1.log").write_bytes(txn(2, took(3, -5)) + txn(3, took(1, 1)) + b"S" + struct.pack(">q", 9))
    (folder / "T1.debug").write_text("no part of it")


@pytest.mark.parametrize(
    "name, content",
    [
        ("a.txt", TEXT),
        ("crlf.txt", TEXT.replace("\n", "\r\n")),
        ("no-last-newline.txt", TEXT.rstrip()),
        ("awdit.txt", AWDIT),
        ("a.hist", HIST),
        ("a.edn", EDN),
        ("vector.edn", f"[{EDN}]"),
        ("a.jsonl", ELLE),
        ("array.json", f"[{','.join(ELLE.splitlines())}]"),
        ("dbcop.json", DBCOP),
        ("a.bincode", bincode()),
        ("nameless", TEXT),
        ("rows.jsonl", ROWS),
        ("a.csv", CSV),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_one_history_in_every_format(tmp_path: Path, name: str, content: str | bytes, packed: bool) -> None:
    raw = content if isinstance(content, bytes) else content.encode()
    path = tmp_path / (f"{name}.gz" if packed else name)
    path.write_bytes(gzip.compress(raw) if packed else raw)
    report = check(read(path))
    assert report.levels == {"RC": True, "RA": True, "TCC": False}
    assert report.patterns == {"COConflictAO": 1} and report.operations == 5 and report.sessions == 2


@pytest.mark.parametrize(
    "name, content",
    [
        ("a.txt", "w(1,9,0,-1)\nr(1,0,1,0)\nr(1,9,2,1)\n"),
        ("a.hist", "[x:=9]!\n---\n[x==?]\n---\n[x==9]\n"),
        (
            "a.json",
            '[[{"events": [{"Write": {"variable": 0, "version": 9}}], "committed": false}], '
            '[{"events": [{"Read": {"variable": 0, "version": null}}], "committed": true}], '
            '[{"events": [{"Read": {"variable": 0, "version": 9}}], "committed": true}]]',
        ),
        (
            "a.edn",
            "{:type :fail :process 0 :value [[:w 0 9]]} {:type :ok :process 1 :value [[:r 0 nil]]}"
            "{:type :ok :process 2 :value [[:r 0 9]]}",
        ),
        ("a.parquet", ""),
    ],
)
def test_aborted_writes_and_the_initial_value(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    if name == "a.parquet":
        columns = {"session": [0, 1, 2], "txn": [0, 0, 0], "kind": ["w", "r", "r"], "key": ["x"] * 3}
        columns |= {"value": [9, None, 9], "status": ["aborted", None, "committed"]}
        pq.write_table(pa.table(columns), tmp_path / name)
    report = check(read(tmp_path / name))
    assert report.patterns == {"AbortedRead": 1} and report.transactions == 2


def test_cobra_is_a_folder(tmp_path: Path) -> None:
    cobra(tmp_path / "logs")
    assert discover([tmp_path]) == [tmp_path / "logs"]
    report = check(read(tmp_path / "logs"))
    assert report.patterns == {"COConflictAO": 1}
    assert any("T1.log: the log ends inside transaction 9" in note for note in report.notes)


@pytest.mark.parametrize(
    "name, content, told",
    [
        ("a.txt", "w(1,1,0,0)\nr(1,one,1,2)\n", r"a.txt, line 2: 'r\(1,one,1,2\)' is not"),
        ("a.txt", "w(1,1,0,0)\nr(1,1", r"line 2: 'r\(1,1' is not"),
        ("a.txt", "w 1 1\nx 2 2\n", r"line 2: 'x 2 2' is not"),
        ("a.hist", "[x:=1]\n[x=1]", r"a.hist, line 2: 'x=1' is not an event"),
        ("a.edn", "{:type :ok :process 0 :value [[:r 1 nil]]}\n{:type", "line 2: the file ends inside"),
        ("a.edn", "{:type :ok :process 0 :f :transfer :value nil}", "line 1: the workload 'transfer'"),
        ("a.edn", "{:type :maybe :process 0}", "line 1: the type is invoke, ok, fail or info, not 'maybe'"),
        ("a.edn", "{:type :ok :process 0 :value [[:cas 1 2]]}", "line 1: .*is not"),
        ("a.json", '[[{"events": [{"Drop": 1}], "committed": true}]]', "session 0, transaction 0: .*neither"),
        ("a.json", "[[1", "a.json, line 1: not JSON"),
        ("a.json", "{}", "not dbcop's JSON"),
        ("a.bincode", bincode()[:-1], "the file ends inside a record"),
        ("a.bincode", bincode() + b"x", "1 bytes after the end"),
        ("a.bincode", b"\xff" * 200, "is longer than the rest of the file"),
        ("a", "hello", "begins no format known here"),
        ("a.txt", b"\xff\xfe\x00", "no text"),
        ("a.txt", f"w({'9' * 5000},1,0,0)\n", "line 1: 'w.9999*...' is not an operation"),
        ("a.json", "[" * 100_000, "a.json, line 1: nested too deeply"),
        ("a.edn", "[" * 100_000, "a.edn, line 1: nested too deeply"),
        ("a.json", '[{"type": "ok", "process": 0, "value": [["r", 1, NaN]]}]', "a.json, line 1: .* is not"),
        ("a.json", '[{"type": "ok", "process": 0, "value": [["r", 1, [[1]]]]}]', "a.json, line 1: .* is not"),
        ("a.json", '[{"type": "ok", "process": 0, "value": 7}]', "a.json, line 1: 7 is not"),
        ("a.json", '[[{"events": [{"Read": {"variable": 1, "version": NaN}}], "committed": true}]]', "neither"),
        ("a.parquet", b"PAR1 and nothing else", "no Parquet file"),
        ("a.csv", "session,txn,kind,key\na,1,w,x\n", "a.csv: no column 'value'"),
        ("a.csv", "session,txn,kind,key,value\na,1\n", "a.csv: no table of operations: CSV parse error"),
        ("a.jsonl", ROWS + '{"session": 7, "txn": 1, "kind": "w", "key": "x", "value": "3"}', "no table of operations"),
        ("a.jsonl", ROWS.replace('"r"', '"read"'), "a.jsonl, row 3: the kind is r, w or a, not 'read'"),
        # every level would hold for want of an operation, which says nothing about the store
        ("a.txt", "", "a.txt: holds no operation"),
        ("a.jsonl", " \n", "a.jsonl: holds no operation"),
        ("a.edn", "[]", "a.edn: holds no operation"),
        ("a.json", "[[]]", "a.json: holds no operation"),
        ("a.txt", "w(1,9,0,-1)", "a.txt: holds no operation"),
        ("a.edn", "{:type :invoke :process 0 :f :txn :value [[:append 1 1]]}", "a.edn: holds no operation"),
    ],
)
def test_bad_input_is_named(tmp_path: Path, name: str, content: str | bytes, told: str) -> None:
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(HistoryError, match=told):
        read(tmp_path / name)


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="no such file"):
        discover([tmp_path / "none"])
    with pytest.raises(HistoryError, match="no history in this folder"):
        discover([tmp_path])


def notes_of(tmp_path: Path, text: str) -> list[str]:
    (tmp_path / "a.txt").write_text(text)
    return check(read(tmp_path / "a.txt")).notes


def test_a_value_written_twice_is_named(tmp_path: Path) -> None:
    notes = notes_of(tmp_path, "w(1,1,0,0)\nw(1,1,1,1)\nr(1,1,2,2)\n")
    assert "a.txt, line 2: (1, 1) is written twice" in notes[0] and "the first is taken" in notes[0]


def test_loading_transactions(tmp_path: Path) -> None:
    assert (
        "2 writes of loading transactions were dropped" in notes_of(tmp_path, "w(1,0,0,0)\nw(2,0,0,0)\nr(1,0,1,1)")[0]
    )
    assert "line 2: the initial value of key 1 is written" in notes_of(tmp_path, "w(1,5,0,0)\nw(1,0,0,1)")[0]
    columns = {"session": [0, 0, 1], "txn": [0, 1, 0], "kind": ["w", "r", "r"], "key": [1] * 3}
    pq.write_table(pa.table(columns | {"value": pa.nulls(3, pa.int64())}), tmp_path / "a.parquet")
    report = check(read(tmp_path / "a.parquet"))
    assert report.holds and report.operations == 2 and "1 writes of loading" in report.notes[0]


def test_indeterminate_transactions(tmp_path: Path) -> None:
    """An :info whose write was read has committed; one that nobody read never happened; a :fail is aborted."""
    lines = [
        "{:type :invoke :process 0 :f :txn :value [[:w 1 1]]}",
        "{:type :info :process 0 :f :txn :value [[:w 1 1]]}",
        "{:type :invoke :process 1 :f :txn :value [[:w 1 2]]}",
        "{:type :invoke :process 2 :f :txn :value [[:w 1 3]]}",
        "{:type :fail :process 2 :f :txn}",
        "{:type :ok :process 3 :f :txn :value [[:r 1 1]]}",
    ]
    (tmp_path / "a.edn").write_text("\n".join(lines))
    report = check(read(tmp_path / "a.edn"))
    assert report.holds and report.transactions == 2
    assert report.notes == ["1 indeterminate transactions are taken as committed: their writes were read"]
    (tmp_path / "b.edn").write_text("\n".join([*lines, "{:type :ok :process 3 :f :txn :value [[:r 1 3]]}"]))
    assert "AbortedRead" in check(read(tmp_path / "b.edn")).patterns
