"""`whence up`: a local cluster of processes, watched and kept alive until it is to stop.

Each process is a `whence node` of its own: what happens here happens to theirs. They end when their standard input
does, so they do not outlive this process, however it ends.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.live import Live
from rich.table import Table

from whence.cli.connect import choose, run_until_stopped
from whence.cli.show import console
from whence.errors import UsageError
from whence.net.guard import encode_secret
from whence.net.metrics import ask

CLUSTER: Final = "up"
START_S: Final = 30.0
"""Seconds for a process to have joined."""
STOP_S: Final = 15.0
"""Seconds for a process to leave; then it is killed."""
LOOK_S: Final = 1.0
EMPTY_S: Final = 10.0
"""Seconds without any coordinator after which the founder is told to found the ring again (docs/ring.md: only an
operator may decide that, and here it is us). Too many crashes at a time cost everybody their tickets."""


def up(args: argparse.Namespace) -> int:
    """Start, watch, stop."""
    args.order, tickets, settings = choose(args)
    args.free = args.order == "probabilistic" or bool(settings.get("mechanism") or settings.get("contract"))
    args.coordinators = args.coordinators or min(args.members, tickets)
    if args.coordinators > args.members:
        raise UsageError(f"{args.coordinators} coordinators of {args.members} processes: at most all of them")
    return run_until_stopped(_up(args))


async def _up(args: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="whence-up-") as home:
        secret = Path(home) / "secret.key"
        secret.touch(mode=0o600)
        secret.write_text(encode_secret(os.urandom(32)) + "\n", encoding="ascii")
        nodes = [Process(args, Path(home), number) for number in range(args.members)]
        try:
            with Console(stderr=True).status(f"starting {args.members} processes"):  # seen on a terminal only
                await nodes[0].start([], found=True)
                await asyncio.gather(*(node.start(nodes[:1]) for node in nodes[1:]))
            await _watch(args, nodes)
        finally:
            await asyncio.gather(*(node.stop() for node in nodes))
    return 0


async def _watch(args: argparse.Namespace, nodes: list[Process]) -> None:
    """Look once a second; whoever has died is started again."""
    began = publishing = time.monotonic()
    live = None if args.json else Live(_table(nodes), console=console(), auto_refresh=False)
    with live or nullcontext():
        while args.seconds is None or time.monotonic() - began < args.seconds:
            left = LOOK_S if args.seconds is None else min(LOOK_S, began + args.seconds - time.monotonic())
            await asyncio.sleep(max(0.0, left))
            await asyncio.gather(*(node.look() for node in nodes))
            dead = [node for node in nodes if not node.alive]
            if len(dead) == len(nodes):
                raise UsageError(f"all processes have ended; the last one said: {dead[-1].said}")
            for node in dead:
                await node.start([other for other in nodes if other.alive])
            if args.free or any(node.health.get("ticket") is not None for node in nodes):
                publishing = time.monotonic()
            elif time.monotonic() - publishing > EMPTY_S:
                publishing = time.monotonic()
                await nodes[0].stop()
                await nodes[0].start(nodes[1:], found=True)
            if live is None:
                found = {"t": time.time(), "nodes": [node.seen for node in nodes]}
                print(json.dumps(found), flush=True)
            elif live.console.is_terminal:
                live.update(_table(nodes), refresh=True)
        if live is not None:
            live.update(_table(nodes), refresh=True)


def _table(nodes: list[Process]) -> Table:
    table = Table(title=f"{len(nodes)} processes; Ctrl-C stops them all")
    for name in ("process", "address"):
        table.add_column(name)
    for name in ("starts", "members", "ticket", "published", "delivered", "over gap", "held", "latency p99", "CPU s"):
        table.add_column(name, justify="right")
    for node in nodes:
        seen = node.seen
        late = seen.get("p99_s")
        numbers = [seen.get(name) for name in ("published", "delivered", "delivered_over_gap", "held")]
        table.add_row(
            str(seen["pid"] or "-"),
            str(seen["address"] or "-"),
            str(seen["starts"]),
            str(seen.get("members", "-")),
            "-" if seen.get("ticket") is None else str(seen["ticket"]),
            *("-" if n is None else f"{n:,}" for n in numbers),
            "-" if late is None else f"<= {late * 1000:g} ms",
            f"{seen.get('cpu_s', 0):.1f}",
        )
    return table


class Process:
    """One member: a process that is started again when it dies."""

    def __init__(self, args: argparse.Namespace, home: Path, number: int) -> None:
        self._args = args
        self._home = home
        self._number = number
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._joined = asyncio.Event()
        self._metrics: str | None = None
        self.address: str | None = None
        self.starts = 0
        self.said = "nothing"
        self.health: dict[str, Any] = {}

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def seen(self) -> dict[str, Any]:
        """What is known of it, for the table and for machines."""
        pid = self._process.pid if self.alive and self._process is not None else None
        return {"node": self._number, "pid": pid, "address": self.address, "starts": self.starts, **self.health}

    async def start(self, others: list[Process], *, found: bool = False) -> None:
        """Start it and wait until it has joined; raises UsageError if it ends instead."""
        seeds = [other.address for other in others if other.address and other is not self]
        self._joined.clear()
        self.starts += 1
        self._process = await asyncio.create_subprocess_exec(
            *self._command(seeds),
            *(["--found"] if found else []),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # the terminal's Ctrl-C is for us: we tell them
        )
        self._reader = asyncio.create_task(self._read(self._process))
        try:
            async with asyncio.timeout(START_S):
                await self._joined.wait()
        except TimeoutError:
            raise UsageError(f"process {self._number} did not join within {START_S:g} s: {self.said}") from None
        if not self.alive and self.starts == 1:
            raise UsageError(f"process {self._number} ended: {self.said}")

    def _command(self, seeds: list[str]) -> list[str]:
        args = self._args
        command = [sys.executable, "-m", "whence.cli", "node", "--cluster", CLUSTER, "--json", "--quiet"]
        command += ["--listen", self.address or "127.0.0.1:0", "--secret-file", str(self._home / "secret.key")]
        command += ["--order", args.order, "--metrics", "127.0.0.1:0"]
        command += ["--directory", str(self._home / f"node{self._number}"), "--drop", str(args.drop)]
        for seed in seeds:
            command += ["--join", seed]
        if self._number < args.coordinators:
            command += ["--coordinate", "--load", str(args.load)]
        if args.settings:
            command += ["--settings", str(args.settings)]
        if args.trace:
            command += ["--trace", str(args.trace)]
        return command + (["--udp"] if args.udp else [])

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        """Its notices, until it ends."""
        assert process.stderr is not None
        while line := await process.stderr.readline():
            self.said = line.decode("utf-8", "replace").strip()
            with suppress(ValueError, AttributeError):
                notice = json.loads(line)
                if "address" in notice:
                    self.address, self._metrics = notice["address"], notice["metrics"]
                    self._joined.set()
        await process.wait()
        self._joined.set()

    async def look(self) -> None:
        """Ask it how it is."""
        if not self.alive or self._metrics is None:
            return
        with suppress(OSError, TimeoutError, ValueError, KeyError):
            _, body = await ask(self._metrics, timeout=LOOK_S)
            found = json.loads(body)
            self.health = {"ok": found["ok"], "reasons": found["reasons"], **found["clusters"][CLUSTER]}

    async def stop(self) -> None:
        """Ask it to leave; kill it if it does not."""
        process = self._process
        if process is None:
            return
        for end in (process.terminate, process.kill):
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    end()
                with suppress(TimeoutError):
                    async with asyncio.timeout(STOP_S):
                        await process.wait()
        if self._reader is not None:
            await self._reader
