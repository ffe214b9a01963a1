"""docs/objects.md: its example runs, and its numbers are the code's."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from whence.live.objects import Objects, container, kernel, registers

TEXT = (Path(__file__).parents[3] / "docs" / "objects.md").read_text(encoding="utf-8")


def test_the_example_prints_what_it_says() -> None:
    code = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)[0]
    said = re.search(r"# prints: (.*)", code)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert said and done.stdout.strip() == said[1], done.stderr


def test_the_numbers_are_the_codes() -> None:
    words = " ".join(TEXT.split())
    assert f"{registers.MAX_TOMBSTONES:,} deleted registers" in words
    assert f"{container.MAX_OBJECTS:,} objects" in words
    assert f"at most {kernel.MAX_VALUE >> 10} KiB each" in words
    assert f"{Objects().limit >> 20} MiB unless told otherwise" in words
    assert kernel.PREFIX.hex(" ").upper() in words
