"""docs/application.md is run, in its order: blocks print what they say, commands succeed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.long import few

PAGE = (Path(__file__).parents[2] / "docs" / "application.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(python|sh)\n(.*?)```(?:\n\n```\n(.*?)```)?", PAGE, re.DOTALL)


def run(command: list[str], place: Path) -> str:
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), f"{command}: {done.stderr}"
    return done.stdout


@pytest.mark.parametrize("whole", few([False, True], 1))
def test_every_block_in_order(whole: bool, tmp_path: Path) -> None:
    assert [kind for kind, _, _ in BLOCKS] == ["python"] * 4 + ["sh", "python", "sh", "python"]
    for kind, block, shown in BLOCKS:
        if block.startswith('"""stock.py'):
            (tmp_path / "stock.py").write_text(block, encoding="utf-8")
        elif kind == "python":
            assert run([sys.executable, "-c", block], tmp_path) == shown
        else:
            for line in block.splitlines():
                if " audit " in line and (shutil.which("java") is None or not whole):
                    continue  # it needs Java, as the page says, and seconds: the tutorial has one, too
                run([sys.executable, "-m", "whence", *line.split()[1:]], tmp_path)
