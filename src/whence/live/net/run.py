"""The run id of a live cluster: the `run` column of its traces (docs/trace.md).

All members of a cluster share one, and no two foundings do. In this order:

1. `WHENCE_RUN` in the environment of the process.
2. The run of the cluster that is joined: every member tells it to whoever asks before joining (`hello.Answer`).
3. The run in the directory of a member that resumes from its checkpoint and finds nobody.
4. A new one: this member founds the cluster.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from whence.core.wire import is_name
from whence.errors import UsageError
from whence.files import write_whole

log = logging.getLogger("whence.live.net")

MAX_RUN: Final = 64
"""Characters of a run id. It travels in a datagram with other names."""


def is_run(text: str) -> bool:
    """At most `MAX_RUN` visible ASCII characters."""
    return len(text) <= MAX_RUN and is_name(text)


def new_run() -> str:
    """A run id that no other cluster has: the time, for people, and random digits."""
    return f"live-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.urandom(4).hex()}"


def run_from_environment() -> str:
    """What `WHENCE_RUN` says; empty: nothing."""
    given = os.environ.get("WHENCE_RUN", "")
    if given and not is_run(given):
        raise UsageError(f"WHENCE_RUN must be 1 to {MAX_RUN} visible ASCII characters without spaces, not {given!r}")
    return given


def run_of(told: Iterable[str], directory: Path | None, resumes: bool) -> str:
    """The run of this member's cluster. `told`: what its members answered, empty where they said nothing. `resumes`:
    it goes on from a checkpoint in `directory`, where the run is kept for the next life."""
    first = run_from_environment() or next(filter(None, told), "")
    run = first or (kept_run(directory) if resumes else "") or new_run()
    if directory is not None:
        _keep(directory, run)
    return run


def kept_run(directory: Path | None) -> str:
    """What the last life kept; empty: nothing that can be read."""
    if directory is not None:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            kept = (directory / "run").read_text(encoding="ascii").strip()
            return kept if is_run(kept) else ""
    return ""


def _keep(directory: Path, run: str) -> None:
    """Without it only the name of the next trace changes, so a failure is no reason to stay away."""
    try:
        if kept_run(directory) != run:
            write_whole(directory / "run", f"{run}\n")
    except OSError as error:
        log.warning("%s: the run id %s is not kept for a restart: %s", directory, run, error.strerror or error)
