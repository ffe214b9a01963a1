"""What everybody meets in the first hour: messages that are true and say what to do, commands that show their work."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.commands import LIMIT, Command, until, whence
from whence.cli import main, missing, show

WHENCE = [sys.executable, "-m", "whence"]


def test_ctrl_c_during_the_imports_is_one_line(tmp_path: Path) -> None:
    """A module that `whence.cli.parser` imports is interrupted, as a signal there would."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'whence.cli.parser':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([*WHENCE, "--version"], env=env, capture_output=True, text=True, timeout=LIMIT)
    assert (done.returncode, done.stderr) == (130, "whence: interrupted\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("args", [["sim", "demo", "--json"], ["node", "--cluster", "x", "--insecure", "--publish"]])
def test_a_full_standard_output_names_itself(args: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*WHENCE, *args], input=b"hi\n", stdout=full, stderr=subprocess.PIPE, timeout=LIMIT)
    assert done.returncode == 2
    assert done.stderr.decode().splitlines()[-1] == "whence: standard output: No space left on device"


def test_a_node_says_that_it_lost_its_ticket(start: Callable[..., Command]) -> None:
    """Two of three coordinators are killed at once; the one that is left says so, and says it to machines."""
    node = ("node", "--cluster", "x", "--insecure", "--publish")
    a = start(*node, "--json")
    address = json.loads(until(lambda: a.err, "its first notice")[0])["address"]
    others = [start(*node, "--contact", address) for _ in range(2)]
    for other in others:
        other.notice("may publish")
    a.notice("council of 3")
    for other in others:
        other.process.kill()
    lost = json.loads(a.notice("^.* is lost .*publishing waits for another.*$")[0])
    assert lost["ticket"] is None and lost["level"] == "warning"


def test_with_stay_the_end_of_input_keeps_the_ticket(start: Callable[..., Command]) -> None:
    """As under systemd, with /dev/null for standard input. What it published is its own; SIGTERM ends it cleanly."""
    service = start("node", "--cluster", "x", "--insecure", "--publish", "--stay")
    service.notice("may publish")
    assert service.process.stdin is not None
    service.say("last line")
    service.process.stdin.close()
    until(lambda: service.heard("last line"), "its input is read to the end")
    other = start("node", "--cluster", "x", "--insecure", "--publish", "--contact", service.address)
    other.notice("may publish")  # granted by the service: it still is a coordinator
    assert other.end() == 0
    service.process.send_signal(signal.SIGTERM)
    assert service.process.wait(LIMIT) == 0


def test_text_files_are_no_traces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Said at once: no Spark is started for it."""
    pytest.importorskip("pyspark")
    for name, text in (("a.csv", "a,b\n1,2\n"), ("b.txt", "hello\n")):
        (tmp_path / name).write_text(text)
        assert main(["audit", str(tmp_path / name), "--out", str(tmp_path / "out")]) == 2
        said = capsys.readouterr().err
        assert f"{name}: no trace: it begins with" in said and "starting Spark" not in said
    (tmp_path / "log").write_text("a {'a': 1}\nhello\n")
    assert main(["audit", "--format", "shiviz", str(tmp_path / "log"), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert "line 1 is no parser expression: give --parser" in said and "starting Spark" not in said


@pytest.mark.parametrize(
    ("package", "extra", "command"),
    [
        ("pyspark", "spark", ["audit", "a.jsonl", "--out", "y", "--engine", "spark"]),
        ("pyarrow", "scale,trace", ["audit", "a.jsonl", "--out", "y"]),
        ("numba", "spark", ["demo", "--out", "y"]),
        ("numba", "scale,trace", ["demo", "--out", "y", "--engine", "local"]),
        ("numba", "scale", ["scale"]),
    ],
)
def test_the_extra_of_the_command_is_named(tmp_path: Path, package: str, extra: str, command: list[str]) -> None:
    row = {"run": "r", "cluster": "c", "member": "a#1", "lseq": 1, "kind": "join"}
    (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / f"{package}.py").write_text(f"raise ModuleNotFoundError('hidden', name='{package}')")
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "hidden")}
    done = subprocess.run([*WHENCE, *command], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 2 and f"pip install 'whence[{extra}]'" in done.stderr, done.stderr
    assert "whence[scale]" in str(missing(ModuleNotFoundError(name="numba")))


def test_work_that_does_not_tick_is_shown_all_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(show, "SAY_EVERY_S", 0.01)
    said = ""
    with show.progress("compiling"):
        while not (said := said + capsys.readouterr().err):
            time.sleep(0.01)
    assert said.splitlines()[0] == "whence: 0 s: compiling"


def test_an_adapter_says_what_it_cannot_read() -> None:
    adapter = [*WHENCE, "conform", "--adapter"]
    for line in (b"garbage\n", b"{}\n", b'{"src": "c1", "body": {"type": "echo"}}\n'):
        done = subprocess.run(adapter, input=line, capture_output=True, timeout=LIMIT)
        said = done.stderr.decode()
        assert done.returncode == 2 and said.startswith("whence: standard input: no message") and said.count("\n") == 1


def test_an_interrupted_publish_is_no_success(start: Callable[..., Command]) -> None:
    """Nobody has accepted the event; a script has to hear of it."""
    client = start("publish", "--cluster", "x", "--insecure", "--contact", "127.0.0.1:1", "hello")
    client.notice("one copy")
    client.process.send_signal(signal.SIGINT)
    assert client.process.wait(LIMIT) == 130
    client.notice("interrupted: event 1 is perhaps not published")


def test_a_silent_node_has_the_time_that_was_said() -> None:
    """`--timeout 0.5`: not the half minute that a node otherwise has to start."""
    code, _, said = whence("conform", "--timeout", "0.5", "--hold", "0.5", "--only", "triangle", "--", "sleep", "100")
    assert code == 2 and "0.5 s" in said, said


def test_long_work_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(show, "SAY_EVERY_S", 0.0)
    assert main(["sim", "demo", "--json"]) == 0
    said = capsys.readouterr().err.splitlines()
    assert len(said) > 2 and all(re.fullmatch(r"whence: \d+ s: simulating, \d+%", line) for line in said)
