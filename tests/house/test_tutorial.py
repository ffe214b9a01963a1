"""The tutorial is run: its Python prints what it says, its commands succeed."""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.long import few

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text(encoding="utf-8")
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]


def test_the_python_prints_what_it_says() -> None:
    names: dict[str, object] = {}
    found = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", PAGE, re.DOTALL)
    assert len(found) == 2
    for example, shown in found:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(example, "tutorial.md", "exec"), names)
        assert printed.getvalue() == shown


@pytest.mark.parametrize("whole", few([False, True], 1))
def test_the_commands_succeed(whole: bool, tmp_path: Path) -> None:
    """In one directory, one after the other: later ones read what earlier ones wrote."""
    for command in COMMANDS:
        if " scale " in command and not whole:
            continue  # compiles for half a minute
        if " audit " in command and shutil.which("java") is None:
            continue  # it needs Java 17 or newer, as the page says
        name, *args = command.split()
        assert name == "whence"
        run = [sys.executable, "-m", "whence", *args]
        done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        assert done.stdout
