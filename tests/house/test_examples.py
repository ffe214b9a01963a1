"""The examples run as their first lines say, and show what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = {
    "bridge": "3 answers, each after its question, in both clusters",
    "chat": "5 answers, each after its question",
    "document": r"In the end all 4 have:\n(.+\n){3}",
    "world": "3 avatars, each in one region, after 12 steps each",
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_runs(name: str, tmp_path: Path) -> None:
    if name == "document":
        pytest.importorskip("pycrdt", reason="needs the extra `document`")
    path = ROOT / "examples" / f"{name}.py"
    assert f"    python examples/{name}.py\n" in path.read_text(encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(path)], cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr  # a warning, on a busy machine
    assert re.search(EXAMPLES[name] + r"\s*\Z", done.stdout), done.stdout
    assert list(tmp_path.iterdir()) == []
