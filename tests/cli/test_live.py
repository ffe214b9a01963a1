"""The live commands as people and scripts use them: real processes on loopback, ports that the system chooses, signals,
pipes and terminals. Nothing waits for time: every wait is for a condition, with a limit."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import LIMIT, Command, until, whence
from whence.audit.judge import judge
from whence.audit.trace import read as read_trace
from whence.cli import main
from whence.cli.connect import joining
from whence.cli.parser import parser
from whence.cli.streams import Lines, PipeWriter, printable
from whence.lab.sim.scenario import config_of, load
from whence.live.metrics import ask
from whence.live.net import keys


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with keys."""
    root = tmp_path_factory.mktemp("live")
    keys.init(root / "keys")
    keys.issue(root / "keys", "alice")
    keys.issue(root / "keys", "wall", "receiver")
    return root


# -- node -----------------------------------------------------------------------------------------------------------


def test_three_nodes_exchange_lines(start: Callable[..., Command], home: Path, tmp_path: Path) -> None:
    """Two publish, one only receives; the trace of all three passes the oracle; each ends in another way."""
    trace = tmp_path / "trace"
    common = ("--cluster", "lobby", "--secret-file", home / "keys" / "secret.key", "--trace", trace)
    a = start("node", *common, "--publish")
    join = ("--contact", a.address)
    b = start("node", *common, *join, "--publish", "--json")
    c = start("node", *common, *join, "--order", "reliable", "--metrics", "127.0.0.1:0", "--stay")
    for node in (a, b):
        node.notice("may publish, under ticket")
    assert c.address  # it is in the cluster, too: who joins later gets the state, not the lines
    a.say("one", "two", "grüße")
    until(lambda: b.heard("one", "two", "grüße"), "a's lines at b")
    b.say("three", "", "\x1b[31mred")
    for node in (a, b, c):
        until(lambda node=node: node.heard("one", "two", "grüße", "three", "red"), "all lines everywhere")
    _check_lines(a, b, c)

    status, text = asyncio.run(ask(c.metrics, "/metrics"))
    assert status == 200 and 'whence_order_delivered_total{cluster="lobby"} 6' in text

    def health() -> dict[str, Any]:
        return json.loads(asyncio.run(ask(c.metrics, "/health"))[1])

    until(lambda: health()["clusters"]["lobby"]["members"] == 3, "c sees all: a round after they have come")
    assert asyncio.run(ask(c.metrics, "/health"))[0] == 200 and health()["ok"]

    assert b.end(signal.SIGINT) == 0 and a.end() == 0 and c.end(signal.SIGTERM) == 0
    _check_trace(trace, {"a": a.address, "b": json.loads(b.err[0])["address"]})


def _check_lines(a: Command, b: Command, c: Command) -> None:
    at_b = [json.loads(line) for line in b.out]
    assert [e["payload"] for e in at_b] == ["one", "two", "grüße", "three", "", "\x1b[31mred"]
    assert all(e["over_gap"] is False and e["t"] > 1e9 for e in at_b) and len({e["id"] for e in at_b}) == 6
    assert {e["origin"].split("#")[0] for e in at_b[:3]} == {a.address}
    other = at_b[3]["origin"].split("#")[0]
    lines = [f"{a.address}\t{text}" for text in ("one", "two", "grüße")]
    lines += [f"{other}\t{text}" for text in ("three", "", "\N{REPLACEMENT CHARACTER}[31mred")]
    assert a.out == c.out == lines  # nobody's terminal turns red


def _check_trace(trace: Path, publishers: dict[str, str]) -> None:
    """All three have written to the end; tickets were given back; no effect came before its cause."""
    assert len(list(trace.glob("*.jsonl"))) == 3
    rows = list(read_trace(trace))
    assert sum(row.kind == "leave" for row in rows) == 3
    back = {row.member.split("#")[0] for row in rows if row.kind == "ticket" and "released" in str(row.reason)}
    assert publishers["b"] in back  # a was the last coordinator: there was nobody to give it to
    report = judge(rows)
    assert report.ok, report


def test_killed_and_restarted_it_goes_on_where_it_was(start: Callable[..., Command], tmp_path: Path) -> None:
    a = start("node", "--cluster", "lobby", "--insecure", "--publish")
    b_args = ("node", "--cluster", "lobby", "--insecure", "--contact", a.address, "--order", "reliable", "--publish")
    b_args = (*b_args, "--directory", tmp_path / "b", "--json")
    b = start(*b_args)
    c = start("node", "--cluster", "lobby", "--insecure", "--contact", a.address, "--publish")
    for node in (a, b, c):  # three, since a council of two survives no crash
        node.notice("may publish")
    a.notice(r"council of 3 ")
    a.say("1", "2")
    b.say("mine")
    until(lambda: b.heard('"1"', '"2"', '"mine"') and a.heard("mine"), "the first events")
    b.process.kill()
    assert b.end() == -signal.SIGKILL
    a.say("3", "4")
    until(lambda: a.heard("\t3", "\t4"), "a goes on alone")
    again = start(*b_args)
    until(lambda: again.heard('"3"', '"4"'), "what was missed")
    again.notice("may publish")
    again.say("mine again")
    until(lambda: a.heard("mine again"), "b publishes again")
    until(lambda: again.heard("mine again"), "and sees it")
    assert again.end() == 0 and c.end() == 0 and a.end() == 0
    first, second = ([json.loads(line) for line in node.out] for node in (b, again))
    repeated = {e["id"] for e in first} & {e["id"] for e in second}
    assert repeated <= {first[-1]["id"]}  # the kill may have hit between the print and its being noted
    assert [e["payload"] for e in second if e["id"] not in repeated] == ["3", "4", "mine again"]


def test_certificates_and_roles(start: Callable[..., Command], home: Path) -> None:
    a = start("node", "--cluster", "lobby", "--tls", home / "keys", "alice", "--publish")
    wall = start("node", "--cluster", "lobby", "--tls", home / "keys" / "wall", "wall", "--contact", a.address)
    wall.notice("has joined 'lobby'")
    a.notice("may publish")
    a.say("hello")
    until(lambda: wall.heard("hello"), "the line")
    wall.say("me too")
    wall.notice("1 lines not published: this node only receives")
    assert wall.end() == 0
    code, _, err = whence(
        "node", "--cluster", "lobby", "--tls", home / "keys", "wall", "--contact", a.address, "--publish"
    )
    assert code == 2 and "may only receive" in err
    assert a.end() == 0


def test_ctrl_c_while_nobody_answers(start: Callable[..., Command]) -> None:
    lonely = start("node", "--cluster", "lobby", "--insecure", "--contact", "127.0.0.1:9", "--timeout", "1000")
    handled = f"/proc/{lonely.process.pid}/status"
    if not Path(handled).exists():
        pytest.skip("needs /proc to see when the signal is handled")

    def ready() -> bool:
        caught = re.findall(r"SigCgt:\s*(\w+)", Path(handled).read_text())[0]
        return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)

    until(ready, "its signal handlers")
    assert lonely.end(signal.SIGINT) == 0 and lonely.err == []


def test_nobody_reads_the_output_any_more(start: Callable[..., Command]) -> None:
    """`whence node ... | head -1`."""
    node = subprocess.Popen(
        [sys.executable, "-m", "whence", "node", "--cluster", "x", "--insecure", "--publish"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert node.stdin is not None and node.stdout is not None and node.stderr is not None
    node.stdin.write(b"".join(b"%d\n" % i for i in range(5000)))
    node.stdin.flush()
    assert node.stdout.readline().endswith(b"\t0\n")
    node.stdout.close()
    until(lambda: _more(node), "its end")
    assert b"Traceback" not in node.stderr.read() and node.returncode == 0


def _more(node: subprocess.Popen[bytes]) -> bool:
    assert node.stdin is not None
    try:
        node.stdin.write(b"more\n")
        node.stdin.flush()
    except BrokenPipeError:
        return node.wait(LIMIT) is not None
    return node.poll() is not None


def test_what_is_not_installed_is_named(tmp_path: Path) -> None:
    """Without the extra `net` an insecure cluster works; whoever wants keys is told what to install."""
    (tmp_path / "cryptography").mkdir()
    (tmp_path / "cryptography" / "__init__.py").write_text("raise ModuleNotFoundError('hidden', name='cryptography')")
    (tmp_path / "uvloop.py").write_text("raise ModuleNotFoundError('hidden', name='uvloop')")
    (tmp_path / "s.key").write_text("whence-secret:" + "A" * 44)
    (tmp_path / "s.key").chmod(0o600)

    def run(*args: object) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-m", "whence", *map(str, args)]
        path = {**os.environ, "PYTHONPATH": str(tmp_path)}
        return subprocess.run(command, input=b"hi\n", capture_output=True, timeout=LIMIT, env=path)

    for args in (("keys", "init", tmp_path / "k"), ("node", "--cluster", "x", "--secret-file", tmp_path / "s.key")):
        done = run(*args)
        assert done.returncode == 2 and b"pip install 'whence[net]'" in done.stderr and done.stderr.count(b"\n") == 1
    done = run("node", "--cluster", "x", "--insecure", "--publish")
    assert done.returncode == 0 and done.stdout.endswith(b"\thi\n")


# -- keys, chat, up ---------------------------------------------------------------------------------------------------


def test_people_chat(start: Callable[..., Command]) -> None:
    """Ann at a terminal, Bob through pipes."""
    try:
        master, slave = pty.openpty()
    except OSError as error:
        pytest.skip(f"no terminal can be had here: {error}")
    args = [sys.executable, "-m", "whence", "chat", "--cluster", "tea", "--insecure", "--nick", "ann"]
    ann = subprocess.Popen(args, stdin=slave, stdout=slave, stderr=subprocess.PIPE, start_new_session=True)
    os.close(slave)
    shown: list[bytes] = []

    def read() -> None:
        while True:
            try:
                data = os.read(master, 4096)
            except OSError:
                return
            shown.append(data)

    threading.Thread(target=read, daemon=True).start()
    assert ann.stderr is not None
    address = re.findall(r"at (127\.0\.0\.1:\d+)", ann.stderr.readline().decode())[0]
    bob = start("chat", "--cluster", "tea", "--insecure", "--nick", "bob", "--contact", address)
    bob.notice("bob has joined 'tea'")
    os.write(master, b"tea?x\x7f\n")
    until(lambda: bob.heard("<ann> tea?"), "ann's question")
    os.write(master, b"half a li")
    bob.say("yes, with \x1b[2Jmilk")
    until(lambda: "milk" in b"".join(shown).decode(), "bob's answer")
    screen = b"".join(shown).decode()
    assert "<bob> yes, with \N{REPLACEMENT CHARACTER}[2Jmilk\r\n" in screen
    assert screen.endswith("ann> half a li")  # what is being typed stays below
    os.write(master, b"\x15/who\n\x04")
    assert ann.wait(LIMIT) == 0
    until(lambda: f"  {address} (ticket" in b"".join(shown).decode(), "who is here")
    bob.say("/quit")
    assert bob.process.wait(LIMIT) == 0
    os.close(master)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_up_keeps_its_processes_alive_and_leaves_none_behind(start: Callable[..., Command], tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    up = start("up", 3, "--rate", 20, "--json", "--trace", trace)

    def nodes() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(up.out[-1])["nodes"] if up.out else []
        return found

    until(lambda: nodes() and all(n.get("delivered", 0) > 20 and n["ticket"] is not None for n in nodes()), "a load")
    pids = [n["pid"] for n in nodes()]
    os.kill(pids[2], signal.SIGKILL)
    until(lambda: nodes()[2]["starts"] == 2 and nodes()[2]["pid"] and nodes()[2].get("ok"), "a restart")
    pids.append(nodes()[2]["pid"])
    assert up.end(signal.SIGINT) == 0 and up.err == []
    assert not any(alive(pid) for pid in pids)
    report = judge(read_trace(trace), complete=False)
    assert report.ok, report


def test_what_is_planned_and_simulated_runs_live(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--settings` takes the scenario: a live member gets what a simulated one gets."""
    assert main(["plan", "--members", "12", "--publishers", "3", "--rate", "5", "--toml"]) == 0
    plan = tmp_path / "plan.toml"
    plan.write_text(capsys.readouterr().out)
    node = ["node", "--cluster", "main", "--insecure", "--settings", str(plan)]
    live = joining(parser().parse_args(node))._entry.config
    scenario = load(plan).scenario
    assert live == config_of(scenario, scenario.cluster[0], "causal", scenario.network.mean)
    assert joining(parser().parse_args([*node, "--order", "reliable"]))._entry.config.order == "reliable"
    assert main([*node, "--tickets", "9"]) == 2 and "--tickets" in capsys.readouterr().err
    reliable = tmp_path / "reliable.toml"
    reliable.write_text('[cluster]\norder = "reliable"\n')
    assert joining(parser().parse_args([*node[:-1], str(reliable)]))._entry.config.order == "reliable"
    reliable.write_text('[cluster]\nabandon = "5s"\n')
    assert joining(parser().parse_args([*node[:-1], str(reliable)]))._entry.config.ordering.abandon_ns == 5 * 10**9
    papers = joining(parser().parse_args([*node[:-2], "--profile", "ccc11"]))._entry.config
    assert (papers.ring.protocol, papers.cast.mode, papers.cast.view) == ("neighbours", "rounds", "partial")
    assert main([*node, "--profile", "ccc11"]) == 2 and "--profile" in capsys.readouterr().err
    two = tmp_path / "two.toml"
    two.write_text('[[cluster]]\nname = "a"\n[[cluster]]\nname = "b"\n')
    assert main(["up", "2", "--settings", str(two)]) == 2 and "2 clusters" in capsys.readouterr().err


# -- streams ----------------------------------------------------------------------------------------------------------


def test_lines_of_any_kind_of_input(tmp_path: Path) -> None:
    async def lines_of(data: bytes, max_line: int) -> tuple[list[bytes], int]:
        path = tmp_path / "in"
        path.write_bytes(data)
        with path.open("rb") as file:
            lines, found = Lines(file.fileno(), max_line), []
            while (batch := await lines.next()) is not None:
                found += batch
            assert await lines.next() is None
            return found, lines.too_long

    def read(data: bytes, max_line: int = 100) -> tuple[list[bytes], int]:
        return asyncio.run(lines_of(data, max_line))

    assert read(b"") == ([], 0)
    assert read(b"a\nb\r\n\nc") == ([b"a", b"b", b"", b"c"], 0)
    assert read(b"x" * 101 + b"\nok\n") == ([b"ok"], 1)
    assert read(b"x" * 300_000 + b"\nok\n" + b"y" * 300_000) == ([b"ok"], 2)
    many = [b"%d" % i for i in range(100_000)]
    assert read(b"\n".join(many)) == (many, 0)


def test_a_slow_reader_does_not_hold_up_the_loop() -> None:
    async def main() -> None:
        source, sink = os.pipe()
        output, beats = PipeWriter(sink), 0
        data = [bytes([65 + i]) * 50_000 for i in range(8)]
        writing = asyncio.gather(*(output.write(part) for part in data))
        for _ in range(20):
            await asyncio.sleep(0.001)
            beats += 1
        assert not writing.done() and beats == 20  # the pipe is full, the loop is free
        got = bytearray()
        while len(got) < 400_000:
            got += await asyncio.to_thread(os.read, source, 65536)
        await writing
        assert got == b"".join(data)
        os.close(source)
        with pytest.raises(BrokenPipeError):
            await output.write(b"x")
        os.close(sink)

    asyncio.run(main())


def test_nothing_that_moves_a_cursor_is_printable() -> None:
    assert printable("tea\tfür 2 ☕".encode()) == "tea\tfür 2 ☕"
    bad = "\N{REPLACEMENT CHARACTER}"
    assert (
        printable("\x1b[2J\r\x00\u202e\x9b".encode()) == f"{bad}[2J{bad}{bad}{bad}{bad}" and printable(b"\xff") == bad
    )


# -- docs/live.md -----------------------------------------------------------------------------------------------------

PAGE = (Path(__file__).parents[2] / "docs" / "live.md").read_text(encoding="utf-8")


def test_the_metrics_of_the_page_exist(start: Callable[..., Command]) -> None:
    node = start("node", "--cluster", "lobby", "--insecure", "--metrics", "127.0.0.1:0")
    _, text = asyncio.run(ask(node.metrics, "/metrics"))
    named = set(re.findall(r"`((?:whence|process)_\w+)[`{]", PAGE))
    assert len(named) > 20 and named <= set(re.findall(r"^# TYPE (\S+)", text, re.M))
    assert node.end() == 0
