"""docs/trace.md says what the code does: its tables are the schema, its row is a row, its program runs."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from whence.audit.judge import PROMISES
from whence.audit.judge.promises import NAMES, RULES
from whence.audit.trace import COLUMNS, KINDS, TRACE_VERSION, Row

pytest.importorskip("pyarrow")

DOC = (Path(__file__).parents[3] / "docs" / "trace.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOC, re.DOTALL)


def test_the_table_is_the_schema() -> None:
    assert f"## Columns (version {TRACE_VERSION})" in DOC
    rows = re.findall(r"^\| `(\w+)` \| (text|int32|int64) \| (required)? ?\|", DOC, re.MULTILINE)
    assert [(name, kind, bool(required)) for name, kind, required in rows] == list(COLUMNS)


def test_every_kind_and_verdict_is_explained() -> None:
    table = DOC.partition("| kind | says |")[2].partition("\n\n")[0]
    explained = [name for line in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", line.split("|")[1])]
    assert sorted(explained) == sorted(KINDS)
    for name in (*NAMES, *RULES, *PROMISES):
        assert f"`{name}`" in DOC


def test_the_row_is_a_row() -> None:
    (text,) = blocks("json")
    row = msgspec.json.decode(text, type=Row)
    assert msgspec.json.encode(row).decode() == text.strip()


def test_the_program_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [
        Row("r", "c", "a#1", 0, 0, "join", reason="genesis"),
        Row("r", "c", "a#1", 1, 0, "publish", event="0:0.0.1:1@a#1"),
        Row("r", "c", "a#1", 2, 0, "deliver", event="0:0.0.1:1@a#1"),
    ]
    names: dict[str, object] = {"rows": rows}
    (write_and_read,) = blocks("python")
    exec(write_and_read, names)
    assert capsys.readouterr().out.splitlines()[2] == "a#1 2 deliver 0:0.0.1:1@a#1"
