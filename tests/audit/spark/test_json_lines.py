"""The fast reader of JSON lines takes a part of what the decoder takes, and gives the same rows for it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from whence.audit.judge.batch import lines
from whence.audit.spark import ingest, json_lines
from whence.audit.trace import Row
from whence.audit.trace.schema import COLUMNS

NAMES = tuple(column.name for column in COLUMNS)
ROWS = [
    Row("r", "c", "a#1", 0, 0, "join", reason="genesis", order="causal"),
    Row("r", "c", "a#1", 1, 10, "publish", event="0:1.0.1:1@a#1", origin="a#1", ticket=0, clock="1 -", bytes=64),
    Row("r", "c", "b#1", 0, -5, "receive", event="0:1.0.1:1@a#1", origin="a#1", age=3, control=9, held=1, peer="a#1"),
    Row("rün", "c", "b#1", 1, 2**60, "deliver", event="0:1.0.1:1@a#1", origin="ä#1"),
    Row("r", "", "", 123456789012345678, 7, "snapshot", token="t 1"),
]  # fmt: skip
GOOD = [msgspec.json.encode(row) for row in ROWS]
ODD = [
    b"", b" ", b"{}", b"[]", b"null", b'{"run":', b'{"run":"r"', b'{"run":"r"}', GOOD[0] + b" ", b" " + GOOD[0],
    GOOD[0] + GOOD[1], GOOD[0][:-1], GOOD[0] + b"}", GOOD[1].replace(b'"ticket":0', b'"ticket":00'),
    GOOD[1].replace(b'"ticket":0', b'"ticket":0.0'), GOOD[1].replace(b'"ticket":0', b'"ticket":1e3'),
    GOOD[1].replace(b'"ticket":0', b'"ticket":null'), GOOD[1].replace(b'"ticket":0', b'"ticket":"0"'),
    GOOD[1].replace(b'"ticket":0', b'"ticket":-'), GOOD[1].replace(b'"ticket":0', b'"ticket":-0'),
    GOOD[1].replace(b'"ticket":0', b'"ticket":4294967296'), GOOD[1].replace(b'"lseq":1', b'"lseq":-1'),
    *(GOOD[1].replace(b":10,", b":%d," % n) for n in (2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64 - 1, 2**64 + 1)),
    GOOD[1].replace(b'"lseq":1', b'"lseq":99999999999999999999'), GOOD[0].replace(b"causal", b"best"),
    GOOD[0].replace(b'"run":"r"', b'"run":"\\u0041"'), GOOD[0].replace(b'"run":"r"', b'"run":"a\\"b"'),
    GOOD[0].replace(b'"run":"r"', b'"run":"\x01"'), GOOD[0].replace(b'"run":"r"', b'"run":"\xff"'),
    GOOD[0].replace(b'"run":"r"', b'"run":"r","run":"s"'), GOOD[0].replace(b'"run":"r"', b'"new":[{}],"run":"r"'),
    GOOD[0].replace(b'"version":2', b'"version":0'), GOOD[0].replace(b',"version":2', b""),
    b'{"version":2,' + GOOD[0][1:].replace(b',"version":2', b""), GOOD[0].replace(b'"r"', b'"%0*d"' % (1 << 20, 1)),
]  # fmt: skip


def both(tmp_path: Path, text: bytes, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, list[Any]]]:
    """What the two ways make of a file: rows, and what is no row."""
    file = tmp_path / "t.jsonl"
    file.write_bytes(text)
    piece = ingest.Piece(str(file), False, (), 0, len(text), 1, None)
    found = []
    for least in (1 << 60, 0):
        monkeypatch.setattr(json_lines, "QUICK_BYTES", least)
        table, bad = ingest.read_piece(piece, NAMES)
        found.append((table.to_pylist(), bad))
    return found


def test_many_small_files_are_read_fast_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A live trace is a file per member: what counts is all that a process reads."""
    text = b"".join(line + b"\n" for line in GOOD)
    file = tmp_path / "t.jsonl"
    file.write_bytes(text)
    piece = ingest.Piece(str(file), False, (), 0, len(text), 1, None)
    monkeypatch.setattr(json_lines, "_read", 0)
    monkeypatch.setattr(json_lines, "QUICK_BYTES", 2 * len(text))
    fast: list[bytes] = []
    slow = json_lines._slow

    def noted(block: bytes, *rest: Any) -> Any:
        fast.append(block)
        return slow(block, *rest)

    monkeypatch.setattr(json_lines, "_quick", noted)
    found = [ingest.read_piece(piece, NAMES)[0].to_pylist() for _ in range(3)]
    assert fast == [text] * 2 and found[0] == found[1] == found[2] and len(found[0]) == len(GOOD)


def test_plain_lines_are_read_fast() -> None:
    block = b"\n".join(GOOD)
    assert lines.plain(block, NAMES, 1 << 20).line.tolist() == list(range(len(GOOD)))


def test_odd_lines_are_left_to_the_decoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for odd in ODD:
        for text in (odd, odd + b"\n", b"\n".join([GOOD[0], odd, GOOD[1], odd]), b"\n".join([odd, odd, *GOOD]) + b"\n"):
            slow, fast = both(tmp_path, text, monkeypatch)
            assert fast == slow, text[:200]


@pytest.mark.parametrize("block", [64, 300, 1 << 24])
def test_cut_and_damaged_files_are_read_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(json_lines, "BLOCK_BYTES", block)
    rng = random.Random(block)
    alphabet = b'{}[]",:\\\n -0123456789abruneflsvx\x00\xff\xc3'
    for _ in range(400):
        text = bytearray(b"\n".join(rng.choices(GOOD, k=rng.randint(1, 5))) + b"\n")
        for _ in range(rng.randint(0, 3)):
            at = rng.randrange(len(text))
            match rng.randrange(3):
                case 0:
                    text[at] = rng.choice(alphabet)
                case 1:
                    text.insert(at, rng.choice(alphabet))
                case _:
                    del text[at : at + rng.randint(1, 30)]
        slow, fast = both(tmp_path, bytes(text[: rng.randint(1, len(text))]), monkeypatch)
        assert fast == slow, bytes(text)


def test_a_line_belongs_to_the_piece_it_begins_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "QUICK_BYTES", 0)
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
