"""ShiViz in and out: other people's logs are read, and ours obey what the viewer demands."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.data import recorded
from whence.audit.trace import Row, shiviz
from whence.audit.trace.shiviz import DELIMITER, EXPRESSION, Record, compile_expression, load_log, parse_log, to_log
from whence.errors import TraceError, UsageError

AKKA = r"\[\w+\] \[(?<date>([^ ]+ [^ ]+))\] [^ ]+ \[akka://Broadcast/user/(?<host>\w+)\] (?<clock>.*\}) (?<event>.*)"
FACEBOOK = (
    r"(?<ip>(\d{1,3}\.){3}\d{1,3}) (?<date>(\d{1,2}/){2}\d{4} (\d{2}:){2}\d{2} (AM|PM)) "
    r"(?<action>(INFO|GET|POST)) (?<event>.*)\n(?<host>\w*) (?<clock>.*)"
)


def triangle() -> list[Row]:
    """a publishes cause; b delivers it and publishes effect; effect reaches c first and waits; d joins from c."""
    steps = [
        ("a#1", "join", {"reason": "genesis"}),
        ("b#1", "join", {"reason": "genesis"}),
        ("c#1", "join", {"reason": "genesis"}),
        ("a#1", "publish", {"event": "cause"}),
        ("a#1", "deliver", {"event": "cause"}),
        ("b#1", "receive", {"event": "cause", "peer": "a#1"}),
        ("b#1", "deliver", {"event": "cause"}),
        ("b#1", "publish", {"event": "effect"}),
        ("b#1", "deliver", {"event": "effect"}),
        ("c#1", "receive", {"event": "effect", "peer": "b#1"}),
        ("c#1", "send", {"peer": "a#1"}),
        ("c#1", "receive", {"event": "cause", "peer": "a#1"}),
        ("c#1", "deliver", {"event": "cause"}),
        ("c#1", "snapshot", {"token": "t1"}),
        ("c#1", "deliver", {"event": "effect"}),
        ("d#1", "join", {"reason": "snapshot", "peer": "c#1", "token": "t1"}),
        ("d#1", "crash", {}),
        ("d#2", "join", {"reason": "checkpoint", "peer": "d#1"}),
        ("d#2", "deliver", {"event": "effect"}),
    ]
    lseq: Counter[str] = Counter()
    rows = []
    for t, (member, kind, more) in enumerate(steps):
        rows.append(Row("run", "main", member, lseq[member], t, kind, **more))
        lseq[member] += 1
    return rows


def viewer_objects(records: list[Record]) -> list[str]:
    """What the viewer refuses: a host's entries are 1, 2, 3, ...; every entry of a clock names a record that is there;
    and a clock is no more and no less than what its host had before and what the named records bring."""
    at = {(r.host, r.own): r.clock for r in records}
    hosts = Counter(r.host for r in records)
    objections = [f"{h} does not count 1..{n}" for h, n in hosts.items() if any((h, i + 1) not in at for i in range(n))]
    if len(at) != len(records):
        objections.append("two records of one step")
    for record in records:
        causes = [at.get((host, n)) for host, n in record.clock.items() if host != record.host]
        if record.own > 1:
            causes.append(at.get((record.host, record.own - 1)))
        if None in causes:
            objections.append(f"{record.host} {record.own} names a record that is not there")
            continue
        merged = {record.host: record.own}
        for clock in causes:
            assert clock is not None
            merged |= {host: max(n, merged.get(host, 0)) for host, n in clock.items()}
        if merged != record.clock:
            objections.append(f"{record.host} {record.own}: {record.clock} should be {merged}")
    return objections


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


def test_our_logs_are_what_the_viewer_demands(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text("".join(shiviz.to_log(triangle())))
    text = (tmp_path / "run.log").read_text()
    assert text.split("\n")[:2] == [EXPRESSION, ""]
    log = load_log(tmp_path / "run.log")
    assert len(log.records) == 18 and not log.passed_over  # all but the send
    assert viewer_objects(log.records) == []
    seen = {(r.host, r.event): r.clock for r in log.records}
    assert seen["b#1", "publish effect"] == {"b#1": 4, "a#1": 2}
    assert seen["c#1", "receive effect from b#1"] == {"c#1": 2, "b#1": 4, "a#1": 2}
    assert seen["d#1", "join (snapshot) of c#1"] == {"d#1": 1, "c#1": 5, "b#1": 4, "a#1": 2}
    assert seen["d#2", "join (checkpoint) of d#1"]["d#1"] == 2
    assert log.records[0].line == 3


def test_the_viewers_demands_can_fail() -> None:
    records = parse_log("".join(to_log(triangle())).split("\n", 2)[2]).records
    assert viewer_objects(records[1:]) and viewer_objects([*records, records[0]])
    wrong = [r if r.event != "publish effect" else Record("b#1", {"b#1": 4}, r.event, 1) for r in records]
    assert viewer_objects(wrong)


def test_order_of_rows_and_clocks_of_members_do_not_matter() -> None:
    rows = triangle()
    skewed = [replace(row, t_ns=-row.t_ns) for row in rows[::-1]]
    records, others = (parse_log("".join(to_log(some)).split("\n", 2)[2]).records for some in (rows, skewed))
    assert {(r.host, r.own): (r.clock, r.event) for r in records} == {
        (r.host, r.own): (r.clock, r.event) for r in others
    }


def test_several_runs_become_several_executions(tmp_path: Path) -> None:
    second = [replace(row, run="second") for row in triangle()]
    (tmp_path / "runs.log").write_text("".join(shiviz.to_log([*triangle(), *second])))
    assert (tmp_path / "runs.log").read_text().split("\n")[1] == DELIMITER
    log = load_log(tmp_path / "runs.log")
    assert Counter(r.execution for r in log.records) == {"run main": 18, "second main": 18}
    assert not log.passed_over


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
