"""`whence demo --live`: a page on which three people write through three workers, and buttons that make trouble."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from whence.audit.judge import judge
from whence.audit.trace import read
from whence.cli.connect import run_until_stopped
from whence.errors import WhenceError
from whence.live.web.stage import show as stage


def show(http: str, out: Path) -> int:
    """Until Ctrl-C."""
    return run_until_stopped(stage(http, out, partial(_verdict, out / "trace"), partial(print, flush=True)))


def _verdict(traces: Path) -> dict[str, Any]:
    """What the judge says of the steps of the page's clients so far."""
    try:
        rows = [row for row in read(traces, on_bad="collect") if row.cluster == "demo/page"]
        ok = not rows or judge(rows, complete=False).ok
    except (WhenceError, OSError):  # nothing is there yet
        return {"delivered": 0, "ok": True}
    return {"delivered": sum(row.kind == "deliver" for row in rows), "ok": ok}
