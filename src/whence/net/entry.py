"""How a process gets into a cluster: its settings, its id, its disk, its trace, and whom to ask first."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from whence.clock import MemberId, address_of
from whence.config import MS, Config
from whence.errors import ConfigError, NotJoined, UsageError
from whence.member import Checkpoint, Member
from whence.net.disk import Journal, Saved
from whence.net.host import Host
from whence.net.node import Node
from whence.order import Seal
from whence.order.messages import TicketState
from whence.ports import Contracted, Found, Start
from whence.recorder import Recorder
from whence.trace import JsonlTrace, TraceWriter, open_trace

log = logging.getLogger("whence.net")

LIVE: dict[str, Any] = {
    "members": 32,
    "mode": "eager",
    "round_ns": 200 * MS,
    "latency_ns": 5 * MS,
    "time_to_terminate": 0.5,
    "time_to_recover": 10.0,
    "ring_round_ns": 1000 * MS,
    "delta_ns": 250 * MS,
    "ring_k": 3,
    "rate": 64.0,
    "history": 16_384,
    "buffer": 4096,
}
"""The settings of a live cluster where nothing else is said (`Config.sized` explains each). A publish is pushed at
once; rounds repair. The ring's times are such that a process which a busy machine holds up for some hundred
milliseconds keeps its ticket; with k = 3 a crash beside a newcomer costs nobody else theirs. The times of recovery are
such that it loses no event by it."""

NODE = {"queue_events": 65_536, "queue_bytes": 64 << 20}
"""Settings of a node, not of the cluster: events and bytes that wait for the application before more is shed."""

SEED_RETRY = 0.5
"""Seconds between two questions to a seed."""
KNOWN_PEERS_WAIT = 2.0
"""Seconds that a restarted founder looks for the peers of its last life."""
MAX_KNOWN_PEERS = 256


@dataclass
class Entry:
    """What a join needs, and what has to be closed at its end."""

    host: Host
    config: Config
    seeds: Sequence[str]
    founder: bool
    state: Callable[[], bytes] | None
    restore: Callable[[bytes], None] | None
    seal: Seal | None
    directory: Path | None
    trace: str | os.PathLike[str] | TraceWriter | None
    queue_events: int
    queue_bytes: int
    timeout: float
    on_alert: Callable[[Any], None] | None = None
    on_contract: Callable[[Contracted], None] | None = None
    journal: Journal | None = None
    writer: TraceWriter | None = None
    """A trace writer of our own: to be closed."""

    def open(self) -> tuple[Node, Saved | None]:
        """The node, attached to its host but not started, and what the disk holds of its last life."""
        saved = self._load()
        me = self.host.new_id() if self.journal is None else self.host.new_id(self.journal.next_boot)
        recorder, flush = self._recorder(me, saved)
        node = Node(
            Member(me, self.config, random.Random(secrets.randbits(64)), saved and saved.checkpoint, self.seal),
            ship=self.host.ship,
            wanted=lambda: self.host.wants_step(self.config.cluster),
            recorder=recorder,
            flush_trace=flush,
            state=self.state,
            restore=self.restore,
            journal=self.journal,
            max_events=self.queue_events,
            max_bytes=self.queue_bytes,
        )
        if saved is not None:
            node.resume(saved)
        self.host.attach(node)
        return node, saved

    def _load(self) -> Saved | None:
        if self.directory is None:
            return None
        self.journal = Journal(self.directory, self.config.cluster)
        saved = self.journal.load()
        if saved.warning:
            log.warning("%s: %s", self.directory, saved.warning)
        if saved.checkpoint is not None:
            checkpoint = msgspec.msgpack.decode(saved.checkpoint, type=Checkpoint)
            if checkpoint.order != self.config.order:
                raise UsageError(f"{self.directory} is of a member in {checkpoint.order} order: join with that one")
            state = checkpoint.clock.state()
            if state.kind != self.config.ordering.kind:
                raise UsageError(f"{self.directory} is of a cluster with {state.kind}")
            if isinstance(state, TicketState) and len(state.T) != self.config.tickets:
                raise UsageError(f"{self.directory} is of a cluster with {len(state.T)} tickets")
        return saved

    def _recorder(self, me: MemberId, saved: Saved | None) -> tuple[Recorder | None, Callable[[], None] | None]:
        if self.trace is None:
            return None, None
        writer = self.trace
        if isinstance(writer, str | os.PathLike):
            writer = self.writer = _open_trace(Path(writer), self.config.cluster, me)
        checkpoint = None if saved is None else saved.checkpoint
        recorder = Recorder(
            writer.append,
            run="live",
            cluster=self.config.cluster,
            member=me,
            order=self.config.order,
            previous=None if checkpoint is None else msgspec.msgpack.decode(checkpoint, type=Checkpoint).me,
            resumed=checkpoint,
        )
        return recorder, writer.flush if isinstance(writer, JsonlTrace) else None

    async def start(self, node: Node, saved: Saved | None) -> None:
        """Find somebody to start from, and start."""
        goes_on = saved is not None and saved.checkpoint is not None
        known = self.known_peers() if goes_on else []
        contacts: list[MemberId] = []
        if self.seeds or known:
            may_be_alone = goes_on or not self.seeds
            patience = min(KNOWN_PEERS_WAIT, self.timeout) if may_be_alone else self.timeout
            try:
                contacts = await find(self.host, self.config.cluster, [*self.seeds, *known], patience)
            except NotJoined:
                if not may_be_alone:
                    raise
        node.feed(Start(tuple(contacts)))
        if self.founder:
            node.feed(Found())

    # -- peers of the last life -----------------------------------------------------------------------------------

    def known_peers(self) -> list[str]:
        """The addresses of the peers when they were last written down."""
        if self.directory is None:
            return []
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            return msgspec.json.decode((self.directory / "peers").read_bytes(), type=list[str])
        return []

    def remember_peers(self, members: Sequence[MemberId]) -> None:
        """Only hints: a loss of them costs nothing but time, so nothing is synced."""
        if self.directory is None:
            return
        peers = [address_of(m) for m in members[:MAX_KNOWN_PEERS]]
        new = self.directory / "peers.new"
        with contextlib.suppress(OSError):
            new.write_bytes(msgspec.json.encode(peers))
            new.replace(self.directory / "peers")

    def close(self) -> None:
        if self.journal is not None:
            self.journal.close()
        if self.writer is not None:
            self.writer.close()


async def find(host: Host, cluster: str, seeds: Sequence[str], timeout: float) -> list[MemberId]:
    """Ask the seeds, again and again, until one of them is in the cluster; then give the others a moment. Raises
    NotJoined, saying what each has answered."""
    heard: dict[str, MemberId | None] = {s: None for s in seeds if s != host.address}

    async def knock(seed: str) -> None:
        while not heard[seed]:
            began = time.monotonic()
            answer = await host.ask(seed, cluster, SEED_RETRY)
            if answer is not None:
                heard[seed] = answer
            if not answer:
                await asyncio.sleep(max(0.0, began + SEED_RETRY / 4 - time.monotonic()))

    tasks = [asyncio.create_task(knock(seed)) for seed in heard]
    try:
        if tasks:
            await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait(tasks, timeout=0.05)
    finally:
        for task in tasks:
            task.cancel()
    found = [m for m in heard.values() if m]
    if not found:
        said = [f"{s}: {'no answer' if a is None else 'is not in it'}" for s, a in heard.items()]
        answers = "; ".join(said) or "the only seed is this host"
        raise NotJoined(f"no seed of {cluster!r} within {timeout:g} s ({answers})")
    return found


def live_config(name: str, order: str, tickets: int, settings: Mapping[str, Any] | None = None) -> Config:
    """The settings of a live cluster: `LIVE` with overrides."""
    given = {k: v for k, v in (settings or {}).items() if k not in NODE}
    try:
        return Config.sized(**{**LIVE, **given, "cluster": name, "order": order, "tickets": tickets})
    except TypeError as error:
        raise ConfigError(f"settings: {error}") from None


def _open_trace(path: Path, cluster: str, me: MemberId) -> TraceWriter:
    if path.suffix in (".jsonl", ".parquet"):
        return open_trace(path)
    name = "".join(c if c.isalnum() or c in "._-" else "_" for c in f"{cluster}-{me}")
    return open_trace(path / f"{name}.jsonl")
