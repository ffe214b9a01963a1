"""The system under test, for scenarios: nodes to start, ask and kill, a network, a history.

Scenarios depend on what nodes report, not on time, with two exceptions, since a foreign system has its own timers: how
long something may take (`timeout_s`), and how long a message is withheld from a node that must wait for it (`hold_s`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from whence.audit.conform.history import Event, History
from whence.audit.conform.messages import CLIENT, UNAVAILABLE, Body, Envelope, decode, encode, features_of, said, shown
from whence.audit.conform.network import Link, Network, Parcel
from whence.audit.conform.process import Process
from whence.errors import AdapterError, UsageError

RETRY_S = 0.05
"""Seconds before a refused publish is retried."""
MAX_SAID = 100_000
"""The most deliveries that nodes may report in one scenario, which publishes a dozen events."""


@dataclass(frozen=True)
class Settings:
    """How a system is tested."""

    nodes: int = 3
    """Number of nodes; with fewer than three, causal order cannot break."""
    timeout_s: float = 10.0
    """How long an expected event may take."""
    hold_s: float = 1.0
    """How long a cause is withheld from a node that has its effect. Longer values find systems that give up later, but
    scenarios take longer."""

    start_s: float = 30.0
    """How long a node may take to start."""

    def __post_init__(self) -> None:
        if not 3 <= self.nodes <= 100:
            raise UsageError(
                f"nodes must be 3 to 100, not {self.nodes}: two processes cannot show an effect before its cause"
            )
        if not 0 < self.hold_s <= self.timeout_s:
            raise UsageError(f"want 0 < hold ({self.hold_s:g} s) <= timeout ({self.timeout_s:g} s)")
        if not self.start_s > 0:
            raise UsageError(f"start must be more than 0 s, not {self.start_s:g}")


class Failed(Exception):
    """The scenario cannot continue, because the system did not do what it must."""


class NoAnswer(AdapterError):
    """A request was not answered in time."""


class Unsupported(Exception):
    """The system does not claim what the scenario needs."""

    def __init__(self, missing: list[str]) -> None:
        super().__init__(", ".join(missing))
        self.missing = missing


class System:
    """One cluster of the system under test."""

    def __init__(
        self,
        command: Sequence[str],
        settings: Settings,
        directory: Path,
        needs: Sequence[str] = (),
        features: tuple[str, ...] | None = None,
    ) -> None:
        """`directory`: for the nodes' disks and standard errors. `features`: earlier claims."""
        self.command = command
        self.settings = settings
        self.names = [f"n{i}" for i in range(1, settings.nodes + 1)]
        self.features: tuple[str, ...] = features or ()
        self.history = History()
        self.network = Network(self._hand_over, self.history.fault)
        self.notes: list[str] = []
        """Remarks about a passed scenario."""
        self._needs = needs
        self._claimed = features is not None
        self._directory = directory
        self._processes: dict[str, Process] = {}
        self._msg_id = self._reports = 0
        self._asked: dict[tuple[str, int], asyncio.Future[Body]] = {}
        self._given_up: list[tuple[str, int]] = []  # requests that were not answered in time; one ends a scenario
        self._changed = asyncio.Event()
        self._failure: AdapterError | None = None

    # -- nodes --------------------------------------------------------------------------------------------------

    async def start(self, names: Sequence[str], join: bool = False) -> None:
        """Start these nodes. `join`: the cluster exists already, and they know all of its nodes."""
        known = [n for n in self.names if n in names or n in self.history.lives]
        for name in names:
            errors = self._directory / f"{name}.err"
            self._processes[name] = await Process.start(name, self.command, errors, self._line, self._fail)
            self.history.started(name, again=name in self.history.lives)
        asked = []
        for name in names:
            home = self._directory / name
            home.mkdir(exist_ok=True)
            body = {"type": "init", "node_id": name, "node_ids": known, "join": join, "dir": str(home)}
            asked.append(self._ask(name, body))
        for name, answer in zip(names, await self._all(asked), strict=True):
            features = features_of(answer, name)
            if self._claimed and features != self.features:
                raise AdapterError(
                    f"{name} claims {', '.join(features) or 'nothing'}, another node or life "
                    f"{', '.join(self.features) or 'nothing'}"
                )
            self.features, self._claimed = features, True
        missing = [f for f in self._needs if f not in self.features]
        if missing:
            raise Unsupported(missing)

    async def kill(self, name: str) -> None:
        """Kill a node (`kill -9`); its disk stays."""
        await self._processes.pop(name).kill()
        self.history.ended(name)
        for key in [k for k in self._asked if k[0] == name]:
            self._asked.pop(key).cancel()

    async def close(self) -> None:
        """Kill all nodes."""
        await asyncio.gather(*(process.kill() for process in self._processes.values()))
        self._processes.clear()

    def claims(self, feature: str) -> bool:
        """Whether the system claims a feature."""
        return feature in self.features

    def order(self) -> str:
        """The strongest claimed order, as named in traces."""
        if "causal" in self.features:
            return "reliable" if "reliable" in self.features else "causal"
        return "fifo" if "fifo" in self.features else "unordered"

    # -- requests -------------------------------------------------------------------------------------------------

    async def publish(self, name: str, value: str) -> Event:
        """Let a node publish; retries while it is temporarily unavailable."""
        deadline = self._now() + self.settings.timeout_s
        while True:
            event = self.history.asked(name, value)
            try:
                answer = await self._ask(name, {"type": "publish", "value": value}, errors=True)
            except NoAnswer:
                await self.fence([name])  # a node that does not reply to this is hung
                raise Failed(f"{name} did not publish {value} within {self.settings.timeout_s:g} s") from None
            if answer.get("type") != "error":
                id = answer.get("id")
                if isinstance(id, bool) or not isinstance(id, str | int):
                    raise AdapterError(f"{name} answered a publish with {answer!r}: want an id, text or integer")
                self.history.accepted(event, str(id))
                self._changed.set()
                return event
            self.history.refused(event)
            if answer.get("code") != UNAVAILABLE:
                raise AdapterError(f"{name} refused to publish: {answer!r}")
            if self._now() > deadline:
                why = answer.get("text") or "no reason given"
                raise Failed(f"{name} could not publish {value} within {self.settings.timeout_s:g} s: {why}")
            await asyncio.sleep(RETRY_S)

    async def fence(self, names: Sequence[str] | None = None) -> None:
        """Wait until these nodes have processed all earlier messages, and their reports have arrived."""
        for name in names or self.history.alive():
            await self._ask(name, {"type": "echo", "echo": "fence"})

    async def until(self, done: Callable[[], bool], within_s: float | None = None) -> bool:
        """Wait for a condition; False on a timeout."""
        deadline = self._now() + (self.settings.timeout_s if within_s is None else within_s)
        while True:
            if self._failure is not None:
                raise self._failure
            if done():
                return True
            left = deadline - self._now()
            if left <= 0:
                return False
            self._changed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left)

    async def has(self, event: Event, *names: str) -> None:
        """Wait until these nodes (default: all) have delivered the event; over perfect links they must."""
        for name in names or self.history.alive():
            if not await self.until(lambda name=name: self.history.has(name, event.value)):  # type: ignore[misc]
                raise Failed(
                    f"{name} did not deliver {event.value} of {event.node} within {self.settings.timeout_s:g} s"
                )

    async def gets(self, event: Event, *names: str) -> None:
        """Wait until these nodes have delivered the event, if the system promises that."""
        if self.claims("reliable"):
            await self.has(event, *names)
        else:
            await self.until(lambda: all(self.history.has(n, event.value) for n in names), self.settings.hold_s)

    async def settle(self) -> None:
        """Wait until all nodes have all events, as far as promised, and nothing is in transit."""

        def complete() -> bool:
            events = [e.value for e in self.history.events.values() if e.id is not None]
            return all(self.history.has(name, value) for name in self.history.alive() for value in events)

        reliable = self.claims("reliable")
        done = await self.until(complete, None if reliable else self.settings.hold_s)
        await self.fence()
        if reliable and not done:
            raise Failed(f"not everything was delivered everywhere within {self.settings.timeout_s:g} s")

    async def pause(self) -> None:
        """Wait long enough for the system's timers to expire."""
        await self.until(lambda: False, self.settings.hold_s)

    # -- links --------------------------------------------------------------------------------------------------

    def links(self, src: Sequence[str] | None = None, dest: Sequence[str] | None = None) -> list[Link]:
        """The links from `src` to `dest` (default: all nodes)."""
        return [(a, b) for a in src or self.names for b in dest or self.names if a != b]

    # -- input ------------------------------------------------------------------------------------------

    def _line(self, name: str, line: bytes) -> None:
        envelope = decode(line, name)
        if envelope.dest == CLIENT:
            self._said(name, envelope.body)
        elif envelope.dest in self.names:
            self.network.route(Parcel(name, envelope.dest, line))
        else:
            raise AdapterError(f"{name} sent a message to {envelope.dest!r}, who does not exist: {shown(line)}")
        self._changed.set()

    def _said(self, name: str, body: Body) -> None:
        """A message from a node to the client."""
        reply = body.get("in_reply_to")
        if reply is not None:
            if (name, reply) in self._given_up:
                return
            future = self._asked.pop((name, reply), None) if isinstance(reply, int) else None
            if future is None:
                raise AdapterError(f"{name} answered {reply!r}, which it was not asked, or has answered: {body!r}")
            if not future.done():
                future.set_result(body)
            return
        self._reports += 1
        if self._reports > MAX_SAID:
            raise AdapterError(f"{name} goes on reporting deliveries: more than {MAX_SAID} by now")
        match body.get("type"):
            case "delivered":
                self.history.delivered(name, said(body, name))
            case "installed":
                events = body.get("events")
                if not isinstance(events, list) or not all(isinstance(e, dict) for e in events):
                    raise AdapterError(f"{name} installed {body!r}: want a list of events")
                if not self.history.installed(name, [said(e, name) for e in events]):
                    raise AdapterError(f"{name} sent `installed` after it had delivered or published something")
            case other:
                raise AdapterError(f"{name} told the client {other!r}, which is no message of this workload: {body!r}")

    def _hand_over(self, name: str, line: bytes) -> bool:
        process = self._processes.get(name)
        if process is None:
            return False
        process.write(line)
        return True

    def _fail(self, error: AdapterError) -> None:
        """A node broke the rules or died: all waiters get the error."""
        if self._failure is None:
            self._failure = error
        self._changed.set()
        for future in self._asked.values():
            if not future.done():
                future.set_exception(self._failure)
        self._asked.clear()

    def _ask(self, name: str, body: Body, errors: bool = False) -> asyncio.Task[Body]:
        """Send a request; the task returns the reply."""
        if self._failure is not None:
            raise self._failure
        self._msg_id += 1
        key = (name, self._msg_id)
        future: asyncio.Future[Body] = asyncio.get_running_loop().create_future()
        self._asked[key] = future
        process = self._processes[name]
        patience = self.settings.start_s if body["type"] == "init" else self.settings.timeout_s
        process.write(encode(Envelope(CLIENT, name, {**body, "msg_id": self._msg_id})))

        async def answer() -> Body:
            try:
                got: Body = await asyncio.wait_for(future, patience)
            except TimeoutError:
                self._given_up.append(key)
                what = f"did not answer {body['type']!r} within {patience:g} s"
                raise NoAnswer(str(process.error(what))) from None
            finally:
                self._asked.pop(key, None)
            kind = got.get("type")
            if kind != f"{body['type']}_ok" and not (errors and kind == "error"):
                raise AdapterError(f"{name} answered {body['type']!r} with {got!r}")
            return got

        return asyncio.create_task(answer())

    async def _all(self, tasks: list[asyncio.Task[Body]]) -> list[Body]:
        """All replies; the first error cancels the rest."""
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
