"""A bridge at work: a member of each of its clusters, driven by the rules of `gateway.py`.

    async with Bridge({"lobby": {"contacts": ["10.0.0.5:7001"], "secret": one}, "hall": {...}}, directory) as bridge:
        await bridge.run()

Its directory holds a member's directory for each cluster, and the **ledger**: what the other sides have got. Whoever is
started with it after a crash goes on where the last one was.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self, TextIO

from whence.audit.trace.merge import CROSSINGS, Crossing, lines
from whence.core.clock import EventId, Frame, FreeId, address_of
from whence.core.clock.bounds import MAX_PAYLOAD_BYTES
from whence.core.config import Settings
from whence.errors import DiskError, UsageError
from whence.files import file_name, why, write_whole
from whence.live.api import LISTEN, Cluster, Join, create, join
from whence.live.bridge.gateway import Forward, Gateway, GatewayOutput
from whence.live.events import Event, Events
from whence.live.publisher import Publisher

log = logging.getLogger("whence.live.bridge")

ORDERS = ("causal", "reliable", "probabilistic")
"""What a bridge can keep across clusters, it has to get in each: with (N, R, K) clocks, all but a share of it."""
BEHIND_S = 10.0
"""Seconds that a server waits for an original whose copy by another server it has read (gateway.py, rule 4)."""
PROBE_S = 2.0
"""Seconds that the own probe has to come round in before anything is forwarded. Longer: a circle through slow clusters
is noticed in time. Shorter: a quicker start. A probe that comes later still ends the bridge."""
FRAMES = 64
"""Read and published at a time, if there are so many. More: fewer waits for the disk, more to do again after a
crash."""
LOOK_S = 0.1


class Bridge:
    """Between two or more clusters, from entering the block to leaving it."""

    def __init__(
        self,
        clusters: Mapping[str, Mapping[str, Any]],
        directory: str | os.PathLike[str] | None = None,
        *,
        unmarked: str = "local",
        probe: float = PROBE_S,
        trace: str | os.PathLike[str] | None = None,
        trusted: Mapping[str, Collection[str]] | None = None,
        servers: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """`clusters`: by name, what `whence.join` needs for each (`order`: the strongest that the cluster has).
        `directory`: what survives a crash; without it a crash loses what was under way. `unmarked`: `global` brings
        over what has no scope, too. `probe`: seconds to look for a circle in. `trace`: a directory for what every
        member did, and for which event was which (`crossings.ndjson`, see merge.py). `trusted`: by cluster, the
        addresses of its other bridges and its doors; without it, every publisher can write their headings. `servers`:
        this bridge has several servers; by cluster, their addresses, in the order in which they take over."""
        started = f"{time.time_ns() // 1_000_000:015d}-{secrets.token_hex(4)}"
        self.gateway = Gateway(
            tuple(clusters),
            started,
            unmarked=unmarked,
            max_payload=MAX_PAYLOAD_BYTES,
            trusted=trusted,
            servers=servers,
        )
        self.clusters: dict[str, Cluster] = {}
        self.directory = None if directory is None else Path(directory)
        self.open = False
        """Events are forwarded: no circle was found."""
        self._trace = None if trace is None else Path(trace)
        self._joins = {name: dict(options) for name, options in clusters.items()}
        for name, options in self._joins.items():
            if options.setdefault("order", strongest(options)) not in ORDERS:
                raise UsageError(f"{name}: a bridge joins in {' or '.join(ORDERS)} order, not {options['order']}")
        self._probe = probe
        self._publishers: dict[str, Publisher] = {}
        self._readers: dict[str, Events] = {}
        self._crossings: TextIO | None = None
        self._stack = AsyncExitStack()

    # -- life ---------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        try:
            await self._enter()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _enter(self) -> None:
        self._restore()
        if self._trace is not None:
            self._trace.mkdir(parents=True, exist_ok=True)
            self._crossings = self._stack.enter_context(
                (self._trace / CROSSINGS).open("a", encoding="utf-8", buffering=1)
            )
        for name, options in self._joins.items():
            if self.directory is not None:
                options["directory"] = self.directory / f"member-{file_name(name)}"
            if self._trace is not None:
                options["trace"] = self._trace
            cluster = await self._stack.enter_async_context(enter(name, options))
            if (servers := self.gateway.servers[name]) and cluster.address not in servers:
                raise UsageError(f"{name}: this server is {cluster.address}, and the servers are {', '.join(servers)}")
            self.clusters[name] = cluster
            # Each side is read only as fast as the others are published to: waiting for readers would be a deadlock.
            publisher = cluster.publisher(wait_for_reader=False)
            self._publishers[name] = await self._stack.enter_async_context(publisher)
            self._readers[name] = cluster.events()
            self.gateway.is_member(name, cluster.me)
        self._save()
        for name, reader in self._readers.items():  # what the last life published, and did not live to write down
            for event in reader.waiting():
                if event.origin in self.gateway.lives[name]:
                    self.gateway.read(name, _id_of(event), event.payload)

    async def run(self) -> None:
        """Forward until a cluster is left. Raises `CyclicTopology` if there is another way between the clusters."""
        await self._look_for_circle()
        tasks = [asyncio.create_task(self._carry(name), name=f"bridge from {name}") for name in self.clusters]
        if not self.gateway.active:
            tasks.append(asyncio.create_task(self._watch(), name="bridge, the other servers"))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    # -- at work ------------------------------------------------------------------------------------------------

    async def _look_for_circle(self) -> None:
        """Nothing is read yet, only looked at: what is found there is forwarded, or not, afterwards."""
        if self._probe > 0:
            for forward in self.gateway.probes():
                await self._publishers[forward.to].publish(forward.payload)
        seen: dict[tuple[str, str], None] = {}
        over = time.monotonic() + self._probe
        while time.monotonic() < over:
            for name, reader in self._readers.items():
                for event in reader.waiting():
                    if (name, event.id) not in seen and event.origin not in self.gateway.lives[name]:
                        seen[name, event.id] = None
                        for forward in self.gateway.look(name, event.payload, event.origin):
                            await self._publishers[forward.to].publish(forward.payload)
            await asyncio.sleep(LOOK_S)
        self.gateway.starting = False
        self.open = True

    async def _carry(self, name: str) -> None:
        """What one cluster delivers, to the others. Asking for the next batch says that this one is done with."""
        reader, stats, refused = self._readers[name], self.gateway.stats[name], 0
        while batch := await reader.batch(FRAMES):
            out: list[GatewayOutput] = []
            for event in batch:
                if not event.direct:
                    out += self.gateway.read(name, _id_of(event), event.payload)
            await self._catch_up()
            await self._publish([o for o in out if isinstance(o, Forward)])
            self._record([o for o in out if isinstance(o, Crossing)])
            if self.gateway.learned:
                self._save()
            if stats.refused > refused:
                refused = stats.refused
                log.warning("%s: not all could be brought over: %s", name, stats)

    async def _publish(self, forwards: list[Forward]) -> None:
        """In all clusters at once: what follows an event may be read at any time, and comes after it everywhere."""
        calls: list[asyncio.Future[Sequence[str]]] = []
        for to in self.clusters:
            payloads = [forward.payload for forward in forwards if forward.to == to]
            if payloads:
                # It is said to be done with here when the next is asked for: by then the disk there has it.
                call = self._publishers[to].publish_many(payloads, durable=self.directory is not None)
                calls.append(asyncio.ensure_future(call))
        await asyncio.gather(*calls)

    async def _watch(self) -> None:
        """Forward while all servers before this one are gone (gateway.py, rule 4)."""
        servers = self.gateway.servers
        before = next(servers[n].index(cluster.address) for n, cluster in self.clusters.items())
        while True:
            there = {n: {address_of(m) for m in cluster.members()} for n, cluster in self.clusters.items()}
            active = not any(all(servers[n][at] in there[n] for n in there) for at in range(before))
            if active:
                await self._catch_up()
            await self._publish(self.gateway.forwards(active))
            await asyncio.sleep(LOOK_S)

    async def _catch_up(self) -> None:
        """Until the members here have delivered the originals of all copies by other servers that were read."""
        over = time.monotonic() + BEHIND_S
        for name, events in self.gateway.learned_of.items():
            while events:
                tenure, event = next(iter(events.items()))
                blocked = self.clusters[name].why_blocked(event).state in ("held", "unknown")
                if blocked and time.monotonic() < over:
                    await asyncio.sleep(LOOK_S)
                elif events.get(tenure) == event:
                    del events[tenure]

    def _record(self, crossings: list[Crossing]) -> None:
        if self._crossings is not None and crossings:
            self._crossings.write(lines(crossings))

    def stats(self, cluster: str) -> dict[str, int]:
        """What became of the events of a cluster, and the counters of the member there."""
        return {**self.clusters[cluster].stats(), **self.gateway.stats[cluster].asdict()}

    # -- the ledger ---------------------------------------------------------------------------------------------

    def _restore(self) -> None:
        if self.directory is None:
            return
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            ledger = self.directory / "ledger"
            if ledger.exists():
                self.gateway.restore(ledger.read_bytes())
        except OSError as error:
            raise DiskError(f"cannot use {self.directory}: {why(error)}") from error

    def _save(self) -> None:
        """The old one or the new one is there, whenever the process dies or the power fails."""
        data = self.gateway.ledger()
        if self.directory is None:
            return
        try:
            write_whole(self.directory / "ledger", data, sync=True)
        except OSError as error:
            raise DiskError(f"cannot write {self.directory / 'ledger'}: {error.strerror or error}") from error


def enter(name: str, options: dict[str, Any]) -> Join:
    """Join through the `contacts` among the options; without any, create the cluster."""
    options = dict(options)
    contacts, listen = options.pop("contacts", ()), options.pop("listen", LISTEN)
    return join(name, contacts, listen, **options) if contacts else create(name, listen, **options)


def strongest(options: Mapping[str, Any]) -> str:
    """The order that promises most in such a cluster."""
    settings = Settings.of(options.get("settings"), options.get("profile", ""))
    if options.get("contract") is not None or settings.contract is not None:
        return "probabilistic"
    return "causal" if settings.mechanism else "reliable"


def _id_of(event: Event) -> EventId | FreeId:
    frame = event.frame
    if isinstance(frame, Frame):
        return EventId(frame.ticket, frame.inc, event.seq, frame.owner)
    return FreeId(frame.owner, event.seq)
