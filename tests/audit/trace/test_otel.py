"""OpenTelemetry spans as a trace, and what the judge says about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from whence.audit.judge import judge
from whence.audit.trace import read
from whence.audit.trace.otel import COUNTER, read_spans
from whence.cli import main

PRODUCER, CONSUMER = 4, 5


def span(name: str, kind: int | str, count: int | None, *links: str) -> dict[str, Any]:
    return {
        "traceId": "t",
        "spanId": name,
        "kind": kind,
        "startTimeUnixNano": "1700000000000000000",
        "attributes": [] if count is None else [{"key": COUNTER, "value": {"intValue": str(count)}}],
        "links": [{"traceId": "t", "spanId": link} for link in links],
    }


def request(process: str, *spans: dict[str, Any]) -> dict[str, Any]:
    named = [{"key": "service.name", "value": {"stringValue": "shop"}}]
    named.append({"key": "service.instance.id", "value": {"stringValue": process}})
    return {"resourceSpans": [{"resource": {"attributes": named}, "scopeSpans": [{"spans": list(spans)}]}]}


QUESTION = request("a", span("q", PRODUCER, 0), span("ra", CONSUMER, 1, "r"))
ANSWER = request("b", span("qb", CONSUMER, 0, "q"), span("r", "SPAN_KIND_PRODUCER", 1))
RIGHT = request("c", span("qc", CONSUMER, 0, "q"), span("rc", "SPAN_KIND_CONSUMER", 1, "r"))
WRONG = request("c", span("rc", CONSUMER, 0, "r"), span("qc", CONSUMER, 1, "q"))


def write(path: Path, *requests: Any) -> Path:
    path.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in requests) + "\n", encoding="utf-8")
    return path


def test_three_processes_in_order_and_not(tmp_path: Path) -> None:
    made = read_spans([write(tmp_path / "a.json", QUESTION, ANSWER), write(tmp_path / "c.json", RIGHT)])
    assert made.refused == []
    assert judge(made.rows).ok
    report = judge(read_spans([write(tmp_path / "w.json", QUESTION, ANSWER, WRONG)]).rows)
    assert report.broken == {"causal": 1}
    assert "shop:c#1 delivered t:r@shop:b#1" in str(report.findings[0])


def test_times_order_nothing(tmp_path: Path) -> None:
    """The answer has an earlier time than the question."""
    late = json.dumps(QUESTION).replace("1700000000000000000", "1800000000000000000")
    assert judge(read_spans([write(tmp_path / "a.json", RIGHT, ANSWER, late)]).rows).ok


def test_one_document_over_many_lines(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(QUESTION, indent=2), encoding="utf-8")
    made = read_spans([tmp_path / "a.json", write(tmp_path / "b.json", ANSWER, RIGHT)])
    assert made.refused == [] and judge(made.rows).ok


def test_a_batch_of_messages_is_many_deliveries(tmp_path: Path) -> None:
    first = request("a", span("1", PRODUCER, 1), span("2", PRODUCER, 2))
    both = request("b", span("x", CONSUMER, 1, "1", "2"), span("plain", 1, 2), span("y", PRODUCER, 3))
    made = read_spans([write(tmp_path / "a.json", first, both)])
    mine = [(row.lseq, row.kind, row.event) for row in made.rows if row.member == "shop:b#1"]
    assert [kind for _, kind, _ in mine] == ["join", "deliver", "deliver", "step", "publish"]
    assert [lseq for lseq, _, _ in mine] == [0, 1, 2, 3, 4]


def test_without_a_counter_nothing_is_taken(tmp_path: Path) -> None:
    bad = request("d", span("qd", CONSUMER, None, "q"))
    made = read_spans([write(tmp_path / "a.json", QUESTION, ANSWER, bad)])
    assert [(r.line, "no attribute 'whence.counter'" in r.reason) for r in made.refused] == [(3, True)]


def test_missing_spans_are_in_doubt_and_accuse_nobody(tmp_path: Path) -> None:
    """Every subset of the lines: no violation."""
    requests = [QUESTION, ANSWER, RIGHT]
    for keep in range(1, 8):
        some = [r for k, r in enumerate(requests) if keep >> k & 1]
        report = judge(read_spans([write(tmp_path / "a.json", *some)]).rows, complete=False)
        assert report.ok, some


def test_bad_input_is_named_with_file_and_line(tmp_path: Path) -> None:
    odd = [
        ("no JSON", "no OTLP request"),
        ('{"resourceSpans": 7}', "no OTLP request"),
        ("[" * 5_000, "no OTLP request"),
        (json.dumps(request("d", span("x", CONSUMER, 0))), "without a link to a producer span"),
        (json.dumps(request("d", span("x", PRODUCER, 0), span("y", PRODUCER, 0))), "counts 0 a second time"),
        (json.dumps(request("d", span("x", PRODUCER, -1))), "not an intValue of 0 or more"),
        (json.dumps(request("", span("x", PRODUCER, 0))).replace("shop", ""), "nobody knows whose step"),
    ]
    for text, reason in odd:
        made = read_spans([write(tmp_path / "odd.json", QUESTION, ANSWER, text)])
        assert [(r.file, r.line) for r in made.refused] == [(str(tmp_path / "odd.json"), 3)], text[:80]
        assert reason in made.refused[0].reason
        assert judge(made.rows, complete=False).ok


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("a.json"), QUESTION, ANSWER, RIGHT)
    audit = ["audit", "--engine", "local", "--out", "out", "--format", "otel"]
    for _ in range(2):
        assert main([*audit, "a.json", "--json"]) == 0
        said = json.loads(capsys.readouterr().out)
        assert said["clean"] and said["members"] == 3
    assert judge(list(read("out/imported.parquet"))).ok
    assert main([*audit, str(write(Path("odd.json"), QUESTION, ANSWER, "no JSON"))]) == 3
    assert "odd.json: line 3: no OTLP request" in capsys.readouterr().err
    assert main([*audit, "odd.json", "--json", "--complete"]) == 3
    (refused,) = json.loads(capsys.readouterr().out)["not_imported"]
    assert refused.startswith("odd.json: line 3: no OTLP request")
    (tmp_path / "bad.json").write_text("no JSON")
    assert main([*audit, "bad.json"]) == 2
    assert "bad.json: line 1: no OTLP request" in capsys.readouterr().err
