"""Whatever is wrong is said in a line that a person can act on; what takes long shows a bar, to those who look."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.commands import whence
from whence.cli import main


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").touch()
    (tmp_path / "dir").mkdir()
    (tmp_path / "bad.toml").write_text('members = "many"\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "args, said",
    [
        ("sim nothere", "give a .toml file or one of: demo"),
        ("sim not/there.toml", "No such file"),
        ("sim bad.toml", "bad.toml: line 1: expected `int | array`, got `str` - at `members`"),
        ("sim dir", "Is a directory"),
        ("sim quiet --trace file", "Not a directory"),
        ("sim quiet --report dir", "--report dir is a directory; name a file"),
        ("sim quiet --shrink dir", "--shrink dir is a directory; name a file"),
        ("sim empty", "empty: no scenario: the file is empty"),
        ("sim world --latencies nothere.csv", "latencies: cannot read"),
        ("sim quiet --latencies nothere.csv", "or --latencies on the command line"),
        ("sim demo --set network.loss=7", "at `network.loss`"),
        ("sim nothere --seeds 2", "give a .toml file or one of"),
        ("node --cluster x --insecure --contact nonsense", "not an address: 'nonsense' (want host:port)"),
        ("node --cluster x --insecure --directory file", "cannot use file: a file is there, want a directory"),
        ("node --cluster x --insecure --trace file", "file is there, want a directory"),
        ("node --cluster x --insecure --trust nonsense", "not an address: 'nonsense'"),
        ("node --cluster x --insecure --order probabilistic --tickets 3", "has none"),
        ("history file --out file", "file: a file is there, want a directory"),
        ("keys init new --role receiver", "--role is for `whence keys issue`"),
        ("conform --adapter -- cat", "it starts no COMMAND"),
        ("chat --cluster x --nick a --insecure --listen 127.0.0.1:70000", "want host:port"),
        ("keys init file", "cannot write the directory file"),
        ("keys issue dir alice", "`whence keys init`"),
        ("plan --members 10 --publishers 20 --rate 1", "want 1 to 10, the members"),
        ("scale --set processes=10 --set entries=2 --set keys=5", "not from 1 to the number of entries"),
        ("scale --latencies dir", "Is a directory"),
        ("scale --set processes=1", "processes: "),
        ("scale --set nonsense=0", "--set: Object contains unknown field `nonsense`"),
        ("scale --set rate=fast", "--set: Expected `float`, got `str`"),
        ("paper nothere", "no experiment 'nothere': there are"),
        ("paper pco17/fig3 --out file", "--out file is a file; name a directory"),
        ("demo --out file/x", "Not a directory"),
        ("node --cluster x", "who may take part"),
        ("node --cluster x --insecure --listen 10.0.0.1:7001", "loopback"),
        ("node --cluster x --insecure --listen nonsense", "host:port"),
        ("node --cluster x --insecure --metrics nonsense", "host:port"),
        (f"node --cluster {'x' * 80} --insecure", "cluster name"),
        ("node --cluster x --secret-file no-such-file", "no-such-file is missing"),
        ("node --cluster x --tls no-such-directory alice", "no-such-directory"),
        ("node --cluster x --insecure --contact 127.0.0.1:9 --timeout 2", "Connection refused"),
        ("node --cluster x --insecure --force", "--contact HOST:PORT names the one member"),
        ("node --cluster x --insecure --force --contact 127.0.0.1:1", "no answer from 127.0.0.1:1"),
        ("node --cluster x --insecure --open 127.0.0.1:0 --publish", "choose one"),
        ("node --cluster x --insecure --client-secret-file x", "--open"),
        ("node --cluster x --insecure --bootstrap --contact 127.0.0.1:1 --create", "leave --create out"),
        ("conform --only triangle", "which system?"),
        ("paper --quick", "which experiment?"),
        ("audit dir --out x --order fifo", "--order is for"),
        ("bridge --cluster a --insecure", "two clusters or more"),
        ("chat --cluster x --insecure --nick \x1b", "printable"),
        ("up 2 --publishers 3", "3 publishers of 2"),
        ("keys issue no-such-directory alice", "is missing"),
        ("keys issue no-such-directory ../x", "not a member's name"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(args: str, said: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(args.split(" ")) == 2
    out, told = capsys.readouterr()
    assert said in told and told.startswith("whence: ") and told.count("\n") == 1 and not out


@pytest.mark.parametrize(
    "args, said",
    [
        ("plan --members 4 --publishers 2 --rate 1 --check --seeds 0", "--seeds: must be at least 1"),
        ("plan --members 4", "the following arguments are required: --publishers, --rate"),
        ("up 3 --rate nan", "--rate: must be above 0"),
        ("up 3 --loss 3", "--loss: must be at least 0 and below 1"),
        ("sim demo --set network.loss", "--set: write 'network.loss' as KEY=VALUE"),
        ("sim demo --seeds 2 --jobs 0", "--jobs: must be at least 1"),
        ("node", "required: --cluster"),
        ("node --cluster x --insecure --order best", "invalid choice: 'best'"),
        ("node --cluster x --insecure --secret-file f", "not allowed with"),
        ("chat --cluster x --insecure", "required: --nick"),
        ("up", "required: N"),
        ("keys issue d n --role king", "invalid choice: 'king'"),
    ],
)
def test_bad_arguments_are_named(args: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(args.split())
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_progress_is_for_those_who_look() -> None:
    command = [sys.executable, "-m", "whence", "sim", "quiet"]
    quiet = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    bar = [line for line in quiet.stderr.splitlines() if not line.startswith("whence: ")]
    assert not bar and "\x1b" not in quiet.stderr  # a line every ten seconds, on a slow machine
    try:
        ours, theirs = pty.openpty()
    except OSError as error:
        pytest.skip(f"no terminal can be had here: {error}")
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs, env={**os.environ, "TERM": "xterm"})
    os.close(theirs)
    seen = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # Linux says so when nobody writes any more
            break
        if not piece:
            break
        seen += piece
    os.close(ours)
    assert process.wait(240) == 0
    assert b"%" in seen


def test_v_says_more() -> None:
    nobody = ("--contact", "127.0.0.1:1", "--timeout", "1")
    code, _, said = whence("-vv", "node", "--cluster", "x", "--insecure", *nobody)
    assert code == 2 and "whence.live.net: 127.0.0.1:1 cannot be reached" in said
