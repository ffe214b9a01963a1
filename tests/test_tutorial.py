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

PAGE = (Path(__file__).parent.parent / "docs" / "tutorial.md").read_text(encoding="utf-8")
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
pytestmark = pytest.mark.xdist_group("tutorial")


def test_the_python_prints_what_it_says() -> None:
    names: dict[str, object] = {}
    found = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", PAGE, re.DOTALL)
    assert len(found) == 2
    for example, shown in found:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(example, "tutorial.md", "exec"), names)
        assert printed.getvalue() == shown


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One directory for all commands: later ones read what earlier ones wrote."""
    return tmp_path_factory.mktemp("tutorial")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_succeed(command: str, desk: Path) -> None:
    if " audit " in command and shutil.which("java") is None:
        pytest.skip("the audit needs Java 17 or newer")
    name, *args = command.split()
    assert name == "whence"
    done = subprocess.run(
        [sys.executable, "-m", "whence.cli", *args], cwd=desk, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
