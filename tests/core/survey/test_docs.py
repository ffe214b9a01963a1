"""The page on the survey is run: its session prints what it says, and its Python is Python."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.ports import free_ports

PAGE = (Path(__file__).parents[3] / "docs" / "survey.md").read_text(encoding="utf-8")


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_the_session_prints_what_it_says(tmp_path: Path) -> None:
    [(script, shown)] = re.findall(r"```sh\n(whence node.*?)```\n\n```\n(.*?)```", PAGE, re.DOTALL)
    used = sorted(set(re.findall(r"127\.0\.0\.1:(\d+)", script)))
    for port, free in zip(used, free_ports(len(used)), strict=True):
        script = script.replace(f":{port}", f":{free}")
    whence = f'whence() {{ exec {sys.executable} -m whence "$@"; }}\n'  # in the background it is the process itself
    script = re.sub(r"^(whence publish .*)$", r"( \1 )", script, flags=re.MULTILINE)
    # a process group of its own, which is ended whatever happens
    session = subprocess.Popen(
        ["bash", "-c", whence + script],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = session.communicate(timeout=240)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(session.pid, signal.SIGKILL)
    said = {path.name: path.read_text() for path in tmp_path.glob("*.log")}
    assert out == shown, (err, said)
    assert (tmp_path / "lobby.txt").read_text().splitlines() == [
        "ann\ttea?",
        "eve\ta secret of the lobby",
        "hall/bob\tyes, please",
    ]


def test_the_python_is_python() -> None:
    for example in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        names: dict[str, object] = {"SECRET": b"x" * 32}
        exec(compile(example, "survey.md", "exec"), names)
