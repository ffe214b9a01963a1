"""`whence conform` from the shell: exit codes, JSON, bad adapters, and that nothing is left running."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.long import few
from whence.audit.conform import FEATURES, SCENARIOS, ConformSettings, run_suite

ROOT = Path(__file__).parents[3]
EXAMPLE = [sys.executable, str(ROOT / "examples" / "conform_vector.py")]
WEIRD = [sys.executable, str(Path(__file__).parent / "weird.py")]
WHENCE = [sys.executable, "-m", "whence"]


def conform(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*WHENCE, "conform", *args], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL
    )


def test_list_teaches() -> None:
    done = conform()
    assert done.returncode == 0
    for name, scenario in SCENARIOS.items():
        assert name in done.stdout and scenario.story in done.stdout and scenario.breaks in done.stdout
    for name, meaning in FEATURES.items():
        assert name in done.stdout and meaning in done.stdout
    told = json.loads(conform("--json").stdout)
    assert list(told["scenarios"]) == list(SCENARIOS) and told["features"] == FEATURES


def test_a_pass_as_text_and_as_json(tmp_path: Path) -> None:
    done = conform("--only", "tail-loss", "--only", "duplicate", "--", *EXAMPLE)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"^pass +duplicate", done.stdout, re.MULTILINE) and done.stdout.endswith("2 pass\n")
    done = conform("--only", "late-join", "--json", "--trace", str(tmp_path), "--members", "4", "--", *EXAMPLE)
    report = json.loads(done.stdout)
    assert done.returncode == 0 and report["ok"] and report["error"] is None
    (verdict,) = report["verdicts"]
    assert verdict["verdict"] == "pass" and set(verdict["deliveries"]) == {"n1#1", "n2#1", "n3#1", "n4#1"}
    assert {p.name for p in tmp_path.iterdir()} == {"late-join.jsonl", *(f"late-join.n{i}.err" for i in range(1, 5))}
    rows = [json.loads(line) for line in (tmp_path / "late-join.jsonl").read_text().splitlines()]
    conform("--only", "late-join", "--trace", str(tmp_path), "--members", "4", "--", *EXAMPLE)
    again = [json.loads(line) for line in (tmp_path / "late-join.jsonl").read_text().splitlines()]
    assert len(again) < 2 * len(rows)  # a trace of an earlier run is replaced


def test_a_failure_is_explained(tmp_path: Path) -> None:
    node = str(Path(__file__).parent / "broken.py")
    done = conform("--only", "triangle", "--", sys.executable, node, "no-merge")
    assert (done.returncode, done.stderr) == (1, "")
    assert (
        "causal: n3 delivered answer before question, though question happened before answer: "
        "n1 published question; n2 delivered question, then published answer"
    ) in done.stdout
    assert "n3#1 delivered: ready-n1, ready-n2, answer, question" in done.stdout


BAD = {
    "silent": "n. did not answer 'init' within 1 s",
    "dies": "n. ended with exit code 3, though nobody had told it to; its standard error ends with:\nout of cheese",
    "chatty": "n. wrote a line that is not a message: 'hello, I am a node'",
    "huge": "n. wrote a line longer than 1048576 bytes",
    "impostor": "n. sent a message as 'n9'",
    "stranger": "n. sent a message to 'n9', who does not exist",
    "feature": r"n. claims unknown features: \['causel'\] \(known: fifo,",
    "no-list": "n. claims unknown features: 'causal'",
    "unequal": "n. claims .*, another node or life ",
    "babbler": "n. told the client 'gossip'",
    "nameless": "n. names an event by .*: want an id",
    "installer": "n. sent `installed` after it had delivered",
    "flood": "n. goes on reporting deliveries: more than 100000 by now",
    "no-events": "n. installed .*: want a list of events",
    "wrong-answer": "n. answered 'init' with ",
    "unasked": "n. answered 4711, which it was not asked",
    "deaf": "n. does not read its standard input",
    "refuses": "n1 refused to publish: .*read only",
    "no-id": "n1 answered a publish with .*: want an id",
    "dies-later": "n1 ended with exit code 4",
    "hangs": "n1 did not answer 'echo' within 10 s",
}


@pytest.fixture(scope="module")
def errors() -> dict[str, str | None]:
    """What the kit says of each manner; six at a time, as they mostly wait."""

    async def main() -> list[str | None]:
        room = asyncio.Semaphore(6)

        async def one(manner: str) -> str | None:
            settings = ConformSettings(
                timeout_s=10 if manner == "hangs" else 90, hold_s=1, start_s=1 if manner == "silent" else 120
            )
            async with room:
                return (await run_suite([*WEIRD, manner], settings, ["triangle"])).error

        return await asyncio.gather(*map(one, BAD))

    return dict(zip(BAD, asyncio.run(main()), strict=True))


@pytest.mark.parametrize("manner", BAD)
def test_a_bad_adapter_is_named(errors: dict[str, str | None], manner: str) -> None:
    said = errors[manner]
    assert said is not None and re.match(f"triangle: {BAD[manner]}", said), said


def test_a_bad_adapter_is_exit_code_2() -> None:
    done = conform("--", *WEIRD, "dies")
    assert (done.returncode, done.stdout) == (2, ""), done
    assert re.fullmatch(f"whence: triangle: {BAD['dies']}\n", done.stderr), done.stderr


def test_an_error_is_in_the_json_too() -> None:
    done = conform("--json", "--", *WEIRD, "dies")
    report = json.loads(done.stdout)
    assert done.returncode == 2 and not report["ok"] and report["verdicts"] == []
    assert report["error"].startswith("triangle: n")


@pytest.mark.parametrize(
    ("manner", "said"),
    few(
        [
            ("unavailable", "n1 could not publish ready-n1 within 5 s: no quorum"),
            ("parent", "n1 did not publish ready-n1 within 5 s"),
            ("keeps", "n1 did not deliver ready-n1 of n1 within 5 s"),
            ("slow", "n1 did not publish ready-n1 within 5 s"),
        ],
        2,
    ),
)
def test_what_does_not_work_is_a_failure_of_the_system(manner: str, said: str, tmp_path: Path) -> None:
    done = conform(
        "--timeout", "5", "--hold", "1", "--only", "triangle", "--trace", str(tmp_path), "--", *WEIRD, manner
    )
    assert done.returncode == 1 and said in done.stdout, done
    if manner == "parent":  # what the nodes started is gone with them
        children = [int(path.read_text()) for path in tmp_path.glob("*.err")]
        assert len(children) == 3 and not any(alive(pid) for pid in children)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--members", "2", "--", "x"), "nodes must be 3 to 100, not 2"),
        (("--only", "square", "--", "x"), "no scenario 'square': there are triangle,"),
        (("--hold", "0", "--", "x"), "want 0 < hold"),
        (("--hold", "nan", "--", "x"), "want 0 < hold"),
        (("--", "./no-such-command"), "triangle: cannot start './no-such-command': No such file"),
        (("--trace", "/dev/null/x", "--", "x"), "/dev/null/x: cannot write the trace"),
    ],
)
def test_bad_input(args: tuple[str, ...], said: str) -> None:
    done = conform(*args)
    assert (done.returncode, done.stdout) == (2, "") and done.stderr.startswith(f"whence: {said}"), done


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_kit_leaves_nothing(number: signal.Signals, tmp_path: Path) -> None:
    node = tmp_path / "node.py"
    node.write_text(
        f"import os, sys, time\nopen({str(tmp_path)!r} + f'/{{os.getpid()}}.pid', 'w').close()\ntime.sleep(600)\n"
    )
    kit = subprocess.Popen([*WHENCE, "conform", "--timeout", "300", "--", sys.executable, str(node)])
    try:
        deadline = time.monotonic() + 120
        while len(pids := [int(p.stem) for p in tmp_path.glob("*.pid")]) < 3:
            assert time.monotonic() < deadline and kit.poll() is None
            time.sleep(0.02)
        kit.send_signal(number)
        assert kit.wait(120) == 130
        assert not any(alive(pid) for pid in pids)
    finally:
        kit.kill()
        for pid in (int(p.stem) for p in tmp_path.glob("*.pid")):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def alive(pid: int) -> bool:
    """It runs; a zombie that nobody has waited for does not."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    if Path("/proc/self").exists():
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def test_the_adapter_ends_with_its_input_and_refuses_nonsense() -> None:
    done = subprocess.run([*WHENCE, "conform", "--adapter"], input="", capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    request = '{"src":"c1","dest":"n1","body":{"type":"fly","msg_id":7}}\n'
    done = subprocess.run([*WHENCE, "conform", "--adapter"], input=request, capture_output=True, text=True, timeout=120)
    assert json.loads(done.stdout)["body"] == {
        "type": "error",
        "in_reply_to": 7,
        "code": 10,
        "text": "no such request: fly",
    }
