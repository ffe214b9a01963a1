"""Data that others recorded: in the directory that WHENCE_DATA names, or the test is skipped."""

from __future__ import annotations

import os
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
