"""Start the JVM from an archive of its classes: half of the CPU time of a cold start is loading them from jars.

The first JVM writes the archive when it ends, after the command has ended; those after it start from it (class-data
sharing, JEP 350). It is a cache: it may be deleted at any time, and where it cannot be written or does not fit, the
JVM starts without it.
"""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path
from typing import Final

KEPT: Final = 2
"""Archives that are kept: one for each Java and Spark on this machine that was used last. Each takes about 160 MB."""

_log = logging.getLogger(__name__)


def directory() -> Path:
    """Where archives are: `whence` in the user's cache directory."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "whence"


def options(*used_for: str) -> list[str]:
    """Options for the JVM: use the archive, or write it at the end. `used_for`: all that it depends on (the Java, the
    Spark, other options)."""
    try:
        return _options(directory() / f"spark-{hashlib.sha256(repr(used_for).encode()).hexdigest()[:16]}.jsa")
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home directory
        _log.info("no archive of classes for the JVM, which takes longer to start so: %s", error)
        return []


def _options(archive: Path) -> list[str]:
    if not str(archive).isascii() or any(c in str(archive) for c in " \t\n\"'\\"):
        raise OSError(f"{archive}: a path that cannot be given to the JVM")
    quiet = "-Xlog:disable"  # what the JVM says about archives would go to standard output
    if _finished(archive):
        os.utime(archive)
        return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", quiet]
    archive.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(archive.parent, os.W_OK):
        raise OSError(f"{archive.parent} cannot be written")
    others = sorted((p for p in archive.parent.glob("spark-*.jsa") if p != archive), key=lambda p: p.stat().st_mtime)
    for old in others[: len(others) - KEPT + 1] if len(others) >= KEPT else []:
        old.unlink(missing_ok=True)
    return [f"-XX:ArchiveClassesAtExit={archive}", quiet]


def _finished(archive: Path) -> bool:
    """The JVM writes the header last: until then there are zeros."""
    try:
        with archive.open("rb") as file:
            return any(file.read(4))
    except FileNotFoundError:
        return False
