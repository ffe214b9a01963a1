"""Machine code that another version has left on disk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOM = """
from typing import NamedTuple
from whence.audit.judge.batch.compiled import compiled

class Old(NamedTuple):
    n: int

@compiled
def inner(x):
    return x.n + 1

@compiled
def outer(x):
    return inner(x)

print(outer(Old(1)))
"""


def test_a_type_that_is_gone(tmp_path: Path) -> None:
    """It has another name in the new version; functions are at the same lines. Nothing fails, it is compiled anew."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA")}
    command = [sys.executable, "-B", "-c", "import room"]
    for name in ("Old", "New"):
        (tmp_path / "room.py").write_text(ROOM.replace("Old", name))
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr
        assert len(list((tmp_path / "__pycache__").glob("*.nbi"))) == 2
