"""`python -m soak.editing PATH`: a recorded editing session, replayed by its authors through a cluster of processes
with loss, other members only watching. Every member has to end with the recorded text, and the oracle
has to find nothing.

PATH is a concurrent editing trace (github.com/josephg/editing-traces, `.json` or `.json.gz`).
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from examples.replay_editing import Reader

import whence
from soak.fleet import ROOT, SoakFailed, secret, tell
from whence.judge import judge
from whence.judge.promises import REUSED_ID
from whence.net.transport import Faults
from whence.objects import Objects
from whence.objects.replay import NAME, Author, load
from whence.trace import read

LIMIT_S = 240.0


# -- one member, in a process of its own ---------------------------------------------------------------------------


async def member(task: dict[str, Any]) -> None:
    """Join, say so; on a line of input begin; at the end say which text there is, and stay for the others."""
    recording = load(task["path"])
    objects = Objects()
    joining = whence.join(
        "editing",
        task["seeds"],
        secret=bytes.fromhex(task["secret"]),
        order=task["order"],
        tickets=len(recording.authors),
        transport=task["transport"],
        trace=task["trace"],
        faults=Faults(task["drop"], seed=task["number"]),
        state=objects.state,
        restore=objects.restore,
    )
    async with joining as cluster:
        author = Author(recording, task["number"], cluster.me) if task["number"] < len(recording.authors) else None
        reader = Reader(cluster, objects, author)
        reading = asyncio.create_task(reader.read())
        print(json.dumps({"address": cluster.address}), flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await reader.write()
        await reader.has(sum(map(len, recording.authors)), LIMIT_S)
        text, stats = objects.document(NAME).text, cluster.stats()
        result = {
            "member": cluster.me,
            "same": text == recording.final,
            "text": hashlib.sha256(text.encode()).hexdigest()[:16],
            "operations": objects.stats.applied,
            "lost_on_purpose": stats["net.lost_on_purpose"],
            "recovered": stats["order.recovered"],
        }
        print(json.dumps(result), flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        reading.cancel()


# -- all of them -----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _process(task: dict[str, Any]) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "soak.editing",
        "--member",
        json.dumps(task),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _line(process: asyncio.subprocess.Process) -> dict[str, Any]:
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        raise SoakFailed(f"a member ended with {await process.wait()}")
    found: dict[str, Any] = json.loads(line)
    return found


def _next(process: asyncio.subprocess.Process) -> None:
    assert process.stdin is not None
    process.stdin.write(b"\n")


async def soak(
    path: Path,
    home: Path,
    *,
    drop: float = 0.05,
    watchers: int = 4,
    order: str = "causal",
    transport: str = "tcp",
    limit: float = LIMIT_S,
) -> dict[str, Any]:
    """Replay it; what came of it."""
    recording = load(path)
    common = {"path": str(path.resolve()), "secret": secret(), "order": order, "transport": transport, "drop": drop}
    common["trace"] = str(home / "trace")
    async with asyncio.timeout(limit), AsyncExitStack() as stack:
        processes: list[asyncio.subprocess.Process] = []
        seeds: list[str] = []
        for number in range(len(recording.authors) + watchers):
            task = {**common, "number": number, "seeds": seeds[:2]}
            processes.append(await stack.enter_async_context(_process(task)))
            seeds.append((await _line(processes[-1]))["address"])
        began = time.monotonic()
        for process in processes:
            _next(process)
        results = await asyncio.gather(*map(_line, processes))
        took = time.monotonic() - began
        for process in processes:
            _next(process)
        await asyncio.gather(*(process.wait() for process in processes))
    report = judge(read(home / "trace"))
    return {
        "ok": report.ok and all(r["same"] for r in results),
        "members": len(results),
        "authors": len(recording.authors),
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
    parser.add_argument("path", type=Path, nargs="?")
    parser.add_argument("--drop", type=float, default=0.05, help="share of gossip lost on purpose")
    parser.add_argument("--watchers", type=int, default=4)
    parser.add_argument("--order", choices=("causal", "reliable"), default="causal")
    parser.add_argument("--udp", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--member", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.member:
        whence.run(member(json.loads(args.member)))
        return 0
    if args.path is None or not args.path.exists():
        print(f"skipped: there is no recorded editing trace ({args.path or 'no PATH given'})")
        return 0
    home = Path(tempfile.mkdtemp(prefix="whence-soak-"))
    transport = "udp" if args.udp else "tcp"
    work = soak(args.path, home, drop=args.drop, watchers=args.watchers, order=args.order, transport=transport)
    try:
        return tell(args.json, whence.run(work))
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
