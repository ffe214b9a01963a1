"""Logs of others: every injected fault is found, where it is, and nothing else; real logs; what is no record."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data import recorded
from whence.audit import Summary
from whence.audit.judge.clocks import ClockStep, judge
from whence.audit.spark.foreign import audit_logs
from whence.audit.spark.tables import manifest
from whence.audit.trace.shiviz import EXPRESSION, load_log
from whence.cli import main
from whence.errors import TraceError, UsageError

AKKA = r"\[\w+\] \[(?<date>([^ ]+ [^ ]+))\] [^ ]+ \[akka://Broadcast/user/(?<host>\w+)\] (?<clock>.*\}) (?<event>.*)"
FACEBOOK = (
    r"(?<ip>(\d{1,3}\.){3}\d{1,3}) (?<date>(\d{1,2}/){2}\d{4} (\d{2}:){2}\d{2} (AM|PM)) "
    r"(?<action>(INFO|GET|POST)) (?<event>.*)\n(?<host>\w*) (?<clock>.*)"
)

Clocks = list[tuple[str, dict[str, int]]]
"""A log: host and clock of each record."""


def execution(rng: random.Random, hosts: int = 4, length: int = 60) -> Clocks:
    """Hosts that take steps, send to each other, and take in what they receive: correct clocks, as time goes."""
    names = [f"h{i}" for i in range(hosts)]
    now: dict[str, dict[str, int]] = {name: {name: 0} for name in names}
    flying: list[tuple[str, dict[str, int]]] = []
    log: Clocks = []
    for _ in range(length):
        host = rng.choice(names)
        waiting = [message for message in flying if message[0] == host]
        if waiting and rng.random() < 0.6:
            message = rng.choice(waiting)
            flying.remove(message)
            for other, count in message[1].items():
                now[host][other] = max(count, now[host].get(other, 0))
        now[host][host] += 1
        if rng.random() < 0.5:
            flying.append((rng.choice([name for name in names if name != host]), dict(now[host])))
        log.append((host, dict(now[host])))
    return log


def as_steps(log: Clocks) -> list[ClockStep]:
    place: Counter[str] = Counter()
    found = []
    for line, (host, clock) in enumerate(log, 1):
        found.append(ClockStep(host, clock[host], clock, place[host], line))
        place[host] += 1
    return found


def text(log: Clocks) -> str:
    return "".join(f"{host} {msgspec.json.encode(clock).decode()}\nstep\n" for host, clock in log)


# -- faults: each changes the log at one place and says what has to be found, or None when there is no such place


def never_taken(rng: random.Random, log: Clocks) -> tuple[str, str] | None:
    """An entry names a step that its host never takes."""
    host, clock = rng.choice(log)
    other = rng.choice([name for name, _ in log])
    if other == host:
        return None
    clock[other] = max(c[other] for name, c in log if name == other) + rng.randint(1, 9)
    return "future", f"{host}:{clock[host]}"


def came_later(rng: random.Random, log: Clocks) -> tuple[str, str] | None:
    """An entry names a step that has this one in its past."""
    host, clock = rng.choice(log)
    later = [(name, c) for name, c in log if name != host and c.get(host, 0) >= clock[host]]
    if not later:
        return None
    name, c = rng.choice(later)
    clock[name] = c[name]
    return "future", f"{host}:{clock[host]}"


def forgotten(rng: random.Random, log: Clocks) -> tuple[str, str] | None:
    """An entry is lower than at the host's step before."""
    at = rng.randrange(len(log))
    host, clock = log[at]
    before = next((c for name, c in reversed(log[:at]) if name == host), {})
    candidates = [name for name in before if name != host and before[name] > 0]
    if not candidates:
        return None
    name = rng.choice(candidates)
    clock[name] = rng.randrange(before[name])
    if rng.random() < 0.5 and not clock[name]:
        del clock[name]
    return "backwards", f"{host}:{clock[host]}"


def swapped(rng: random.Random, log: Clocks) -> tuple[str, str] | None:
    """Two lines of a host stand the wrong way round."""
    host = rng.choice(log)[0]
    lines = [i for i, (name, _) in enumerate(log) if name == host]
    if len(lines) < 2:
        return None
    at = rng.randrange(len(lines) - 1)
    first, second = lines[at], lines[at + 1]
    log[first], log[second] = log[second], log[first]
    return "backwards", f"{host}:{log[second][1][host]}"


def repeated(rng: random.Random, log: Clocks) -> tuple[str, str] | None:
    """A line stands there twice."""
    host, clock = rng.choice(log)
    log.append((host, dict(clock)))
    return "duplicate", f"{host}:{clock[host]}"


def left_out(rng: random.Random, log: Clocks) -> tuple[str, str] | None:
    """A line is missing that is not its host's last."""
    at = rng.randrange(len(log))
    host, clock = log[at]
    if not any(name == host for name, _ in log[at + 1 :]):
        return None
    del log[at]
    return "own entry", f"{host}:{clock[host] + 1}"


FAULTS: list[Callable[[random.Random, Clocks], tuple[str, str] | None]] = [
    never_taken,
    came_later,
    forgotten,
    swapped,
    repeated,
    left_out,
]


def found_in(log: Clocks) -> list[tuple[str, str]]:
    return [(finding.rule, finding.event) for finding in judge(as_steps(log))]


@settings(max_examples=200)
@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(0, 80))
def test_correct_clocks_are_clean_however_the_hosts_are_mixed(seed: int, hosts: int, length: int) -> None:
    log = execution(random.Random(seed), max(hosts, 2), length)
    assert found_in(log) == []
    by_host = sorted(log, key=lambda record: record[0])  # as logs are that were written per host and joined
    assert found_in(by_host) == []


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
@settings(max_examples=150)
@given(seed=st.integers(0, 2**32))
def test_one_fault_is_one_finding_at_its_place(
    fault: Callable[[random.Random, Clocks], tuple[str, str] | None], seed: int
) -> None:
    rng = random.Random(seed)
    log = execution(rng)
    wanted = fault(rng, log)
    assert found_in(log) == ([] if wanted is None else [wanted])


def test_what_is_taken_over_is_reported_once() -> None:
    log: Clocks = [
        ("a", {"a": 1}),
        ("a", {"a": 2, "b": 7}),  # b never comes to 7
        ("a", {"a": 3, "b": 7}),
        ("c", {"c": 1, "a": 3, "b": 7}),
        ("b", {"b": 1}),
        ("c", {"c": 2, "a": 3, "b": 7}),
    ]
    findings = judge(as_steps(log))
    assert [(f.rule, f.event, f.witnesses) for f in findings] == [("future", "a:2", ("a:2", "b:1"))]
    assert findings[0].sentence == "a:2 (line 2) knows b up to 7, but b only came to b:1 (line 5)."


def test_who_follows_a_step_knows_what_it_knew() -> None:
    log: Clocks = [("a", {"a": 1}), ("b", {"b": 1, "a": 1}), ("c", {"c": 1, "b": 1})]
    (finding,) = judge(as_steps(log))
    assert finding.rule == "backwards" and finding.witnesses == ("c:1", "b:1")
    assert finding.sentence == "c:1 (line 3) knows a up to 0, but follows b:1 (line 2), which knows it up to 1."


def test_two_steps_that_name_each_other_are_one_finding() -> None:
    log: Clocks = [("a", {"a": 1, "b": 1}), ("b", {"b": 1, "a": 1}), ("b", {"b": 2, "a": 1})]
    (finding,) = judge(as_steps(log))
    assert (finding.rule, finding.witnesses) == ("future", ("a:1", "b:1"))
    assert finding.sentence == "a:1 (line 1) has b:1 in its past, but before that b:1 (line 2) had a:1 in its own."


def test_a_host_that_counts_from_nothing_or_from_the_middle() -> None:
    assert found_in([("a", {"a": 0}), ("a", {"a": 1})]) == [("own entry", "a:0")]
    assert found_in([("a", {"a": 5}), ("a", {"a": 6}), ("a", {"a": 9})]) == [("own entry", "a:5"), ("own entry", "a:9")]


# -- files


def audit(paths: list[Path], out: Path, parser: str | None = EXPRESSION) -> Summary:
    return audit_logs(paths, out, parser)


def table(out: Path, name: str) -> list[dict[str, Any]]:
    return pa.Table.to_pylist(pq.read_table(out / name))


def test_many_files_each_with_a_fault(tmp_path: Path) -> None:
    """Every rule, in the table, at its file; files do not mix."""
    logs = tmp_path / "logs"
    logs.mkdir()
    wanted = []
    for number in range(40):
        rng = random.Random(number)
        log = execution(rng)
        put_in = FAULTS[number % len(FAULTS)](rng, log)
        (logs / f"{number:02}.log").write_text(text(log))
        if put_in is not None:
            wanted.append((str(logs / f"{number:02}.log"), *put_in))
    found = audit([logs], tmp_path / "out")
    assert len(wanted) > 30
    wrong = table(tmp_path / "out", "violations")
    assert sorted((row["run"], row["rule"], row["event"]) for row in wrong) == sorted(wanted)
    assert found.violations == Counter(rule for _, rule, _ in wanted)
    assert (found.runs, found.quarantined) == (40, 0) and not found.clean
    assert len(table(tmp_path / "out", "events")) == found.rows
    assert [entry["file"] for entry in manifest(tmp_path / "out")["inputs"]] == [str(p) for p in sorted(logs.iterdir())]
    assert audit([logs], tmp_path / "out") == found  # again: the same


def test_executions_in_one_file_do_not_mix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (execution(random.Random(seed)) for seed in (1, 2))
    both = f"=== one ===\n{text(first)}=== two ===\n{text(second)}"
    (tmp_path / "two.log").write_text(both)
    (tmp_path / "own.log").write_text(f"{EXPRESSION}\n\n{both}")
    delimiter = "=== (?<trace>.*) ==="
    for log, more in (("two.log", ["--parser", EXPRESSION]), ("own.log", [])):
        command = ["audit", str(tmp_path / log), "--format", "shiviz", *more, "--delimiter", delimiter, "--json"]
        assert main([*command, "--engine", "local", "--out", str(tmp_path / "out")]) == 0
        said = json.loads(capsys.readouterr().out)
        assert said["runs"] == 2 and said["quarantined"] == 0
    assert {row["run"].rpartition("#")[2] for row in table(tmp_path / "out", "events")} == {"one", "two"}
    second.append(second[-1])
    (tmp_path / "dup.log").write_text(
        f"{EXPRESSION}\n{delimiter}\n=== one ===\n{text(first)}=== two ===\n{text(second)}"
    )
    audit([tmp_path / "dup.log"], tmp_path / "dup", None)
    assert [(row["run"], row["rule"]) for row in table(tmp_path / "dup", "violations")] == [
        (f"{tmp_path / 'dup.log'}#two", "duplicate")
    ]


def test_a_delimiter_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.log").write_text("x")
    command = ["audit", str(tmp_path / "a.log"), "--out", str(tmp_path / "out"), "--delimiter", "("]
    assert main(command) == 2
    assert "--delimiter are for --format shiviz" in capsys.readouterr().err
    assert main([*command, "--format", "shiviz", "--parser", EXPRESSION]) == 2
    assert "cannot use the delimiter expression '('" in capsys.readouterr().err


def test_what_is_no_record_is_kept_with_its_reason(tmp_path: Path) -> None:
    good = text(execution(random.Random(3)))
    (tmp_path / "good.log").write_text(good)
    (tmp_path / "mixed.log").write_text(f'starting up\n{good}a {{"b": 1}}\nno own entry\nb {{"b": oops}}\nno clock\n')
    (tmp_path / "empty.log").write_text("")
    (tmp_path / "bytes.log").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "other.log").write_text("nothing of the kind\n")
    found = audit([tmp_path], tmp_path / "_out")
    lines = good.count("\n")
    bad = table(tmp_path / "_out", "quarantine")
    rows = sorted((Path(row["file"]).name, row["position"], row["reason"], row["raw"]) for row in bad)
    assert [(name, position) for name, position, _, _ in rows] == [
        ("bytes.log", -1),
        ("empty.log", -1),
        ("mixed.log", 1),
        ("mixed.log", lines + 2),
        ("mixed.log", lines + 4),
        ("other.log", -1),
    ]
    assert "not UTF-8" in rows[0][2] and "empty" in rows[1][2] and rows[2][3] == "starting up"
    assert "no entry for its own host 'a'" in rows[3][2] and rows[3][3] == 'a {"b": 1}'
    assert "not a JSON object" in rows[4][2] and "finds no record" in rows[5][2]
    assert found.quarantined == 6 and found.runs == 2


def test_bad_input_has_a_name(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(TraceError, match="no log here"):
        audit([tmp_path / "in"], tmp_path / "out")
    with pytest.raises(TraceError, match="no such file"):
        audit([tmp_path / "gone"], tmp_path / "out")
    (tmp_path / "in" / "a.log").write_text("x")
    with pytest.raises(UsageError, match="lacks the named groups: clock, event"):
        audit([tmp_path / "in"], tmp_path / "out", r"(?<host>\w+)")
    with pytest.raises(TraceError, match="line 1 is no parser expression"):
        audit([tmp_path / "in"], tmp_path / "out", None)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "expression", "wanted"),
    [
        # Two pairs of lines of one node were written the wrong way round; the clocks themselves are right.
        ("chord", EXPRESSION, [("backwards", "kv-node-60:25"), ("backwards", "kv-node-60:136")]),
        ("facebook", FACEBOOK, []),
        ("reliable-broadcast", AKKA, []),
        ("simple-reliable-broadcast", AKKA, []),
    ],
)
def test_logs_that_others_recorded(name: str, expression: str, wanted: list[tuple[str, str]]) -> None:
    path = recorded(f"shiviz/{name}.log")
    assert found_in([(record.host, record.clock) for record in load_log(path, expression).records]) == wanted


def test_a_recorded_log_by_the_driver(tmp_path: Path) -> None:
    logs = recorded("shiviz")
    both = [logs / "reliable-broadcast.log", logs / "simple-reliable-broadcast.log"]
    found = audit(both, tmp_path / "here", AKKA)
    assert (found.rows, found.clean) == (116 + 39, True)
    (notice,) = table(tmp_path / "here", "quarantine")  # the runtime's own notice, without a clock
    assert notice["position"] == 8 and "dead letters" in notice["raw"]
    chord = audit([logs / "chord.log"], tmp_path / "out")
    assert chord.violations == {"backwards": 2} and chord.members == 8 and chord.rows == 1235
