"""`python -m soak.editing [PATH]`: replays an editing session through a cluster of processes with message loss.

Every member must end with the session's text, and the judge must find no violation. PATH is a concurrent editing trace
(github.com/josephg/editing-traces, `.json` or `.json.gz`). Without it the session is `friendsforever.json.gz` in the
directory WHENCE_DATA, or a synthetic one.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import whence
from soak.editor import LIMIT_S, Editing
from soak.verdict import tell
from whence.audit.judge import judge
from whence.audit.judge.promises import REUSED_ID
from whence.lab.replay import session
from whence.live.fleet.fleet import Fleet
from whence.live.fleet.task import MemberSpec

ROOT = Path(__file__).parent.parent


async def soak(
    path: Path | str,
    home: Path,
    *,
    drop: float = 0.05,
    watchers: int = 4,
    order: str = "causal",
    limit: float = LIMIT_S,
) -> dict[str, Any]:
    """Replay the session; returns the result."""
    recording = session(path)
    authors = len(recording.authors)
    place = str(Path(path).resolve()) if path else ""
    async with asyncio.timeout(limit), Fleet(home, traced=home / "trace") as fleet:
        for number in range(authors + watchers):
            task = Editing(cluster="editing", members=[MemberSpec(order=order)], path=place, number=number)
            task.tickets, task.drop = authors, drop
            fleet.member(task, "soak.editor", cwd=ROOT)
        await fleet.start()
        began = time.monotonic()
        results = await fleet.ask("replay", timeout=limit)
        took = time.monotonic() - began
    report = judge(fleet.rows()[0])
    return {
        "ok": report.ok and all(r["same"] for r in results),
        "members": len(results),
        "authors": authors,
        "transactions": sum(map(len, recording.authors)),
        "all_end_with_the_recorded_text": all(r["same"] for r in results),
        "seconds": round(took, 1),
        "gossip_lost_on_purpose": sum(r["lost_on_purpose"] for r in results),
        "recovered": sum(r["recovered"] for r in results),
        "deliveries": report.total.deliveries,
        "inversions": report.total.inverted,
        "repeated_ids": report.broken.get(REUSED_ID, 0),
        "broken": report.broken,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m soak.editing", description=__doc__)
    parser.add_argument("path", nargs="?", default="")
    parser.add_argument("--drop", type=float, default=0.05, help="share of gossip lost on purpose")
    parser.add_argument("--watchers", type=int, default=4)
    parser.add_argument("--order", choices=("causal", "reliable"), default="causal")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="whence-soak-"))
    work = soak(args.path, home, drop=args.drop, watchers=args.watchers, order=args.order)
    try:
        return tell(args.json, whence.run(work))
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
