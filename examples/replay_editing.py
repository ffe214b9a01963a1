"""Replay an editing session through a live cluster with loss, and check that everybody ends with the same text.

    python examples/replay_editing.py [PATH] [--drop 0.05] [--watchers 4] [--order causal] [--json]

PATH is a concurrent editing trace (github.com/josephg/editing-traces, `.json` or `.json.gz`). Without it the session
is `friendsforever.json.gz` in the directory WHENCE_DATA, or a synthetic one. Each author and each reader is a member
with its own socket on loopback, all in this process. Exit code 0: all texts equal the session's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from contextlib import AsyncExitStack
from typing import Any

import whence
from whence.errors import WhenceError
from whence.lab.replay import NAME, Author, Recording, session
from whence.live.objects import Objects
from whence.live.objects.live import as_event
from whence.testing import Faults, MemoryNetwork

SECRET = "anything will do on loopback"


class Reader:
    """One member: it keeps the text; an author also writes its part."""

    def __init__(self, cluster: whence.Cluster, objects: Objects, author: Author | None) -> None:
        self.cluster = cluster
        self.objects = objects
        self.author = author
        self.heard = asyncio.Event()

    async def read(self) -> None:
        events = self.cluster.events()
        while batch := await events.batch():
            for event in batch:
                happened = as_event(event)
                self.objects.apply(happened)
                if self.author is not None:
                    self.author.hear(happened)
            self.heard.set()

    async def write(self) -> None:
        """Publish the author's part."""
        if self.author is None:
            return
        async with self.cluster.publisher() as publisher:
            while not self.author.done:
                self.heard.clear()
                if todo := self.author.write():
                    await publisher.publish_many(todo)
                else:
                    await self.heard.wait()

    async def has(self, operations: int, patience: float) -> bool:
        """Wait until all operations are applied; not longer than `patience` seconds without any progress."""
        while (before := self.objects.stats.applied) < operations:
            self.heard.clear()
            try:
                async with asyncio.timeout(patience):
                    await self.heard.wait()
            except TimeoutError:
                if self.objects.stats.applied == before:
                    return False
        return True


async def replay(
    recording: Recording,
    *,
    drop: float = 0.05,
    watchers: int = 4,
    order: str = "causal",
    transport: MemoryNetwork | None = None,
    patience: float = 20.0,
) -> list[dict[str, Any]]:
    """Replay it; one row per member."""
    total = sum(map(len, recording.authors))
    began = time.monotonic()
    async with AsyncExitStack() as stack:
        readers: list[Reader] = []
        for i in range(len(recording.authors) + watchers):
            objects = Objects()
            how: dict[str, Any] = {"order": order, "tickets": len(recording.authors), "secret": SECRET}
            how |= {"transport": transport, "faults": Faults(drop, seed=i)}
            how |= {"state": objects.state, "restore": objects.restore}
            entry = (
                whence.join("replay", readers[0].cluster.address, **how) if readers else whence.create("replay", **how)
            )
            cluster = await stack.enter_async_context(entry)
            author = Author(recording, i, cluster.me) if i < len(recording.authors) else None
            readers.append(Reader(cluster, objects, author))
        reading = [asyncio.create_task(r.read()) for r in readers]
        try:
            await asyncio.gather(*(r.write() for r in readers))
            await asyncio.gather(*(r.has(total, patience) for r in readers))
            took = time.monotonic() - began
            return [row(r, recording, took) for r in readers]
        finally:
            for task in reading:
                task.cancel()
            await asyncio.gather(*reading, return_exceptions=True)


def row(reader: Reader, recording: Recording, took: float) -> dict[str, Any]:
    stats = reader.cluster.stats()
    return {
        "member": reader.cluster.me,
        "role": "watcher" if reader.author is None else f"author {reader.author.index}",
        "same": reader.objects.document(NAME).text == recording.final,
        "operations": reader.objects.stats.applied,
        "over_gap": reader.objects.stats.over_gap,
        "lost_on_purpose": stats.get("net.lost_on_purpose", 0),
        "recovered": stats["order.recovered"],
        "seconds": round(took, 2),
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("path", nargs="?", default="")
    parser.add_argument("--drop", type=float, default=0.05, help="share of gossip messages dropped on purpose")
    parser.add_argument("--watchers", type=int, default=4)
    parser.add_argument("--order", choices=("causal", "reliable"), default="causal")
    parser.add_argument("--json", action="store_true", help="one JSON object per member")
    args = parser.parse_args(argv)
    try:
        recording = session(args.path)
        rows = whence.run(replay(recording, drop=args.drop, watchers=args.watchers, order=args.order))
    except (OSError, WhenceError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2
    for r in rows:
        print(json.dumps(r) if args.json else "  ".join(f"{k} {v}" for k, v in r.items()))
    good = all(r["same"] for r in rows)
    if not args.json:
        print("all members end with the recorded text" if good else "NOT all members end with the recorded text")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
