"""Logs for the ShiViz viewer, which other people wrote."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.data import recorded
from whence.audit.trace.shiviz import EXPRESSION, compile_expression, load_log, parse_log
from whence.errors import TraceError, UsageError

AKKA = r"\[\w+\] \[(?<date>([^ ]+ [^ ]+))\] [^ ]+ \[akka://Broadcast/user/(?<host>\w+)\] (?<clock>.*\}) (?<event>.*)"
FACEBOOK = (
    r"(?<ip>(\d{1,3}\.){3}\d{1,3}) (?<date>(\d{1,2}/){2}\d{4} (\d{2}:){2}\d{2} (AM|PM)) "
    r"(?<action>(INFO|GET|POST)) (?<event>.*)\n(?<host>\w*) (?<clock>.*)"
)


@pytest.mark.parametrize(
    ("name", "expression", "records", "hosts", "passed_over"),
    [
        ("chord", EXPRESSION, 1235, 8, []),
        ("facebook", FACEBOOK, 47, 4, []),
        ("reliable-broadcast", AKKA, 116, 4, [8]),  # line 8 is the runtime's own notice, without a clock
        ("simple-reliable-broadcast", AKKA, 39, 3, []),
    ],
)
def test_logs_of_others_are_read_whole(
    name: str, expression: str, records: int, hosts: int, passed_over: list[int]
) -> None:
    log = load_log(recorded(f"shiviz/{name}.log"), expression)
    assert (len(log.records), len({r.host for r in log.records})) == (records, hosts)
    assert [line for line, _ in log.passed_over] == passed_over


def test_a_file_for_the_viewers_upload(tmp_path: Path) -> None:
    """It begins with the expression and the delimiter."""
    record = 'a {"a":1}\nfine\n'
    (tmp_path / "run.log").write_text(f"{EXPRESSION}\n\n{record}")
    (one,) = load_log(tmp_path / "run.log").records
    assert (one.host, one.own, one.event, one.line) == ("a", 1, "fine", 3)
    (tmp_path / "runs.log").write_text(
        f"{EXPRESSION}\n=== (?<trace>.*) ===\n=== first ===\n{record}=== second ===\n{record}"
    )
    log = load_log(tmp_path / "runs.log")
    assert [(r.execution, r.line) for r in log.records] == [("first", 4), ("second", 7)] and not log.passed_over


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('a {"a":1}\nfine\nb {"b":}\nx', "line 3: the clock .* is not a JSON"),
        ('a {"a":1}\nfine\n\nb {"a":1}\nx', "line 4: .* no entry for its own host 'b'"),
        ('a {"a":"1"}\nx', "line 1: the clock"),
    ],
)
def test_bad_records_are_named(text: str, message: str) -> None:
    line, reason, _ = parse_log(text).refused[0]
    assert re.search(message, f"line {line}: {reason}")


def test_a_log_without_a_record_is_no_log() -> None:
    with pytest.raises(TraceError, match="finds no record"):
        parse_log("nothing of the kind")


def test_what_surrounds_records_is_kept() -> None:
    log = parse_log('noise\na {"a":1}\nfine\nb {"a":1}\nx\nmore noise', file="some.log")
    assert [r.event for r in log.records] == ["fine"]
    assert [(line, reason.partition(" clock")[0]) for line, reason, _ in log.refused] == [(4, "the")]
    assert log.passed_over == [(1, "noise"), (6, "more noise")]


def test_files_that_are_no_logs_are_named(tmp_path: Path) -> None:
    def reason(content: bytes) -> str:
        (tmp_path / "x.log").write_bytes(content)
        with pytest.raises(TraceError) as caught:
            load_log(tmp_path / "x.log")
        return str(caught.value)

    assert "empty file" in reason(b" \n")
    assert "byte 2: not UTF-8" in reason(b"ab\xff")
    assert "line 1: no parser expression" in reason(b'a {"a":1}\nfine\n')
    with pytest.raises(TraceError, match="cannot read"):
        load_log(tmp_path / "nowhere.log")


def test_javascript_expressions() -> None:
    def groups(expression: str, text: str) -> dict[str, str] | None:
        match = compile_expression(expression, needed=()).search(text)
        return match.groupdict() if match else None

    assert groups(r"(?<a>\w)=(?<b>\k<a>)", "x=x") == {"a": "x", "b": "x"}
    assert groups(r"(?<=\()(?<a>\d)(?<!7)", "(7 (8") == {"a": "8"}
    assert groups(r"\(?<(?<a>[^]*)>", "<x\ny>") == {"a": "x\ny"}
    assert groups(r"^(?<a>\d+)$", "x\n12\ny") == {"a": "12"}
    assert groups(r"(?<a>\d)", "\u0663") is None  # JavaScript's digits are ASCII
    with pytest.raises(UsageError, match="lacks the named groups: clock"):
        compile_expression("(?<host>.)(?<event>.)")
    with pytest.raises(UsageError, match="cannot use the parser expression"):
        compile_expression("(?<host>.")
    escaped = parse_log('a {\\"a\\":1} x', r"(?<host>\w) (?<clock>{.*}) (?<event>\w)")
    assert escaped.records[0].clock == {"a": 1}


def test_an_expression_of_a_log_that_takes_for_ever_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whence.audit.trace.shiviz.EXPRESSION_S", 0.2)
    log = tmp_path / "slow.log"
    log.write_text(r"(?<host>(a+)+) (?<clock>{.*}) (?<event>.*)" + "\n\n" + "a" * 60 + "!\n")
    with pytest.raises(TraceError, match=r"slow.log: its parser expression takes longer"):
        load_log(log)
