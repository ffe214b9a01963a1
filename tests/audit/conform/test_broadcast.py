"""Histories of broadcast workloads as a trace, and what the judge says about it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from whence.audit.conform.broadcast import read_histories
from whence.audit.judge import judge
from whence.audit.trace import read
from whence.cli import main
from whence.errors import TraceError


def op(process: int, kind: str, f: str, value: object) -> str:
    said = "nil" if value is None else str(value).replace(",", "")
    return f"{{:process {process}, :type :{kind}, :f :{f}, :value {said}, :time 5}}"


def sent(process: int, value: object, outcome: str = "ok") -> list[str]:
    return [op(process, "invoke", "broadcast", value), op(process, outcome, "broadcast", value)]


def got(process: int, *values: int) -> list[str]:
    return [op(process, "invoke", "read", None), op(process, "ok", "read", list(values))]


def history(path: Path, *ops: list[str]) -> Path:
    path.write_text("\n".join(line for some in ops for line in some) + "\n", encoding="utf-8")
    return path


CHAIN = [sent(0, 1), got(1, 1), sent(1, 2)]
"""Process 1 broadcasts 2 knowing 1."""


def test_a_read_is_a_set(tmp_path: Path) -> None:
    """Whatever the order in the list, and however many are new."""
    for values in ((1, 2), (2, 1)):
        made = read_histories([history(tmp_path / "h.edn", *CHAIN, got(2, *values), got(0, 2, 1))])
        assert made.refused == [] and judge(made.rows).ok


def test_an_effect_read_before_its_cause_is_found(tmp_path: Path) -> None:
    made = read_histories([history(tmp_path / "h.edn", *CHAIN, got(2, 2), got(2, 1, 2))])
    assert judge(made.rows).broken == {"causal": 1}
    made = read_histories([history(tmp_path / "h.edn", *CHAIN, got(2, 2), got(2, 1, 2))], order="unordered")
    assert judge(made.rows).ok


def test_what_nobody_broadcast_and_what_failed_is_found(tmp_path: Path) -> None:
    for ops in ([*CHAIN, got(2, 1, 7)], [*CHAIN, sent(0, 7, "fail"), got(2, 1, 7)]):
        assert judge(read_histories([history(tmp_path / "h.edn", *ops)]).rows).broken == {"integrity": 1}
    maybe = [*CHAIN, sent(0, 7, "info"), got(2, 1, 7)]
    assert judge(read_histories([history(tmp_path / "h.edn", *maybe)]).rows).ok


def test_a_value_twice_in_a_read_is_a_duplicate(tmp_path: Path) -> None:
    made = read_histories([history(tmp_path / "h.edn", *CHAIN, got(2, 1, 1), got(2, 1, 1, 2))])
    assert judge(made.rows).broken == {"integrity": 1}


def test_other_forms_of_the_same_history(tmp_path: Path) -> None:
    lines = [line for some in (*CHAIN, got(2, 2), got(2, 1, 2)) for line in some]
    nemesis = "{:process :nemesis, :type :info, :f :start-partition, :value [:isolated {}]}"
    tagged = " ".join(f"#jepsen.history.Op{line}" for line in [*lines, nemesis])
    (tmp_path / "v.edn").write_text(f"; a comment\n[{tagged}]", encoding="utf-8")
    assert judge(read_histories([tmp_path / "v.edn"]).rows).broken == {"causal": 1}


def test_what_cannot_be_judged_is_named_with_its_line(tmp_path: Path) -> None:
    odd = [
        (sent(0, 1), "broadcast a second time", 7),
        (sent(0, [1, 2]), "has to be a number or a text", 7),
        ([op(2, "ok", "read", 5)], "a list of values", 7),
        (["7"], "an operation is a map", 7),
        ([*got(2, 1, 2), *got(2, 2)], "no longer reads 1, which it read in line 8", 10),
    ]
    for ops, reason, line in odd:
        made = read_histories([history(tmp_path / "h.edn", *CHAIN, ops)])
        assert [(r.file, r.line) for r in made.refused] == [(str(tmp_path / "h.edn"), line)]
        assert reason in made.refused[0].reason
    for text in ("{:process", "[" * 5_000, "\xff", "{:a 1}", ""):
        (tmp_path / "bad.edn").write_text(text, encoding="latin-1")
        with pytest.raises(TraceError, match=r"bad\.edn"):
            read_histories([tmp_path / "bad.edn"])


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    history(Path("h.edn"), *CHAIN, got(2, 1, 2))
    audit = ["audit", "--engine", "local", "--out", "out", "--format"]
    for _ in range(2):
        assert main([*audit, "broadcast", "h.edn", "--json"]) == 0
        said = json.loads(capsys.readouterr().out)
        assert said["clean"] and said["members"] == 3
    assert judge(list(read("out/imported.parquet"))).ok
    history(Path("odd.edn"), *CHAIN, sent(0, 1))
    assert main([*audit, "broadcast", "odd.edn"]) == 3
    assert "odd.edn: line 7: 1 is broadcast a second time" in capsys.readouterr().err
    assert main([*audit, "otel", "h.edn"]) == 2
    assert "h.edn: line 1: no OTLP request" in capsys.readouterr().err
