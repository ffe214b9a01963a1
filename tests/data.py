"""What a machine may lack: data that others recorded, and Java. The test that needs it is skipped, and says why."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest


def recorded(name: str) -> Path:
    """The file of that name."""
    folder = os.environ.get("WHENCE_DATA")
    if not folder:
        pytest.skip(f"needs {name}, which others recorded: WHENCE_DATA names the directory that has it, and is not set")
    path = Path(folder) / name
    if not path.exists():
        pytest.skip(f"needs {name}, which others recorded: it is not in the directory that WHENCE_DATA names")
    return path


def java() -> bool:
    """Whether Spark could start."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=f"{home}/bin" if home else None) is not None


def needs_java() -> None:
    """Skip the test where Spark could not start."""
    if not java():
        pytest.skip("needs Java 17 or newer, and there is none in JAVA_HOME or PATH")
