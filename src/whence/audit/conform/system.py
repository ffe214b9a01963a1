"""The system under test, for scenarios: nodes to start, ask and kill, the network between them, and what they report.

Nodes speak Maelstrom's format: one JSON object a line, `{"src": ..., "dest": ..., "body": {...}}` (docs/conform.md).
Messages to the client are checked here; messages between nodes are passed on unread.

Scenarios depend on what nodes report, not on time, with two exceptions, since a foreign system has its own timers: how
long something may take (`timeout_s`), and how long a message is withheld from a node that must wait for it (`hold_s`).
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from asyncio.subprocess import PIPE
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from whence.audit.conform.judge import NodeHistory, Publication, Reported
from whence.audit.conform.network import NOT_OF_STREAMS, Link, Network, Proxies
from whence.errors import AdapterError, UsageError

Body = dict[str, Any]

CLIENT: Final = "c1"
"""The kit's name as a client."""
LINE_LIMIT: Final = 1 << 20
"""The longest line in bytes."""

FEATURES: Final = {
    "fifo": "events of one node are delivered in the order in which it published them",
    "causal": "no effect is delivered before its cause",
    "reliable": "every event that was accepted is delivered by every node that stays",
    "total": "all nodes deliver all events in one order",
    "datagrams": "messages between nodes may arrive in another order, and more than once",
    "loss": "messages between nodes may get lost",
    "late-join": "a node that is started later gets all that was delivered before",
    "restart": "a node that is killed can be started again, and goes on",
}
"""The claims that a system can make."""
DEFAULT_CLAIMS: Final = ("fifo", "causal", "reliable")
"""The claims of a system whose `init_ok` has no `features`."""

UNAVAILABLE: Final = 11
"""Maelstrom's code for "temporarily unavailable": the kit retries."""
MAX_UNREAD: Final = 16 << 20
"""The most unread bytes of a node's input; beyond that it is considered hung."""
STDERR_SHOWN: Final = 800

RETRY_S = 0.05
"""Seconds before a refused publish is retried."""
MAX_SAID = 100_000
"""The most deliveries that nodes may report in one scenario, which publishes a dozen events."""


@dataclass(frozen=True)
class ConformSettings:
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
    own_network: bool = False
    """The nodes speak to each other themselves, through proxies of the kit."""

    def __post_init__(self) -> None:
        if not 3 <= self.nodes <= 100:
            why = "two processes cannot show an effect before its cause"
            raise UsageError(f"nodes must be 3 to 100, not {self.nodes}: {why}")
        if not 0 < self.hold_s <= self.timeout_s:
            raise UsageError(f"want 0 < hold ({self.hold_s:g} s) <= timeout ({self.timeout_s:g} s)")


class Envelope(msgspec.Struct, frozen=True):
    """A message on the wire."""

    src: str
    dest: str
    body: Body


_decoder = msgspec.json.Decoder(Envelope)


def decode(line: bytes, node: str) -> Envelope:
    """The message in this line of a node's output."""
    try:
        envelope = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise AdapterError(
            f"{node} wrote a line that is not a message: {shown(line)} ({error}); every line of standard output is "
            '{"src": ..., "dest": ..., "body": {...}}, anything else belongs on standard error'
        ) from None
    if envelope.src != node:
        raise AdapterError(f"{node} sent a message as {envelope.src!r}: {shown(line)}")
    return envelope


def features_of(body: Body, node: str) -> tuple[str, ...]:
    """The claims in this `init_ok`."""
    said = body.get("features", list(DEFAULT_CLAIMS))
    if not isinstance(said, list) or (unknown := [f for f in said if f not in list(FEATURES)]):
        what = unknown if isinstance(said, list) else said
        raise AdapterError(f"{node} claims unknown features: {what!r} (known: {', '.join(FEATURES)})")
    return tuple(f for f in FEATURES if f in said)


def reported(body: Body, node: str) -> Reported:
    """The event that a `delivered` is about, or one of an `installed`."""
    event, value = body.get("id"), body.get("value")
    if isinstance(event, bool) or not isinstance(event, str | int) or not isinstance(value, str):
        raise AdapterError(f"{node} names an event by {body!r}: want an id (text or integer) and a value (text)")
    return Reported(str(event), value)


def shown(line: bytes) -> str:
    """A shortened line, for error messages."""
    text = repr(line.decode("utf-8", "replace").rstrip("\n"))
    return text if len(text) <= 120 else text[:117] + "..."


class NodeProcess:
    """A running node. It leads its own process group, so its children die with it."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, errors: Path, system: System) -> None:
        self.name = name
        self._gone = False
        self._process = process
        self._errors = errors
        self._reader = asyncio.create_task(self._read(system))

    @classmethod
    async def start(cls, name: str, command: Sequence[str], errors: Path, system: System) -> NodeProcess:
        """`system` gets every line of its output, and the error when it ends by itself."""
        try:
            with errors.open("ab") as stderr:
                process = await asyncio.create_subprocess_exec(
                    *command, stdin=PIPE, stdout=PIPE, stderr=stderr, limit=LINE_LIMIT, start_new_session=True
                )
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise AdapterError(f"cannot start {' '.join(command)!r}: {reason}") from None
        return cls(name, process, errors, system)

    async def _read(self, system: System) -> None:
        assert self._process.stdout is not None
        try:
            while text := await self._process.stdout.readline():
                if not self._gone:
                    system.line(self.name, text)
            if not self._gone:
                code = await self._process.wait()
                how = f"ended with exit code {code}" if code >= 0 else f"was ended by signal {-code}"
                system.fail(self.error(f"{how}, though nobody had told it to"))
        except ValueError:  # asyncio raises this for a line beyond its limit
            system.fail(self.error(f"wrote a line longer than {LINE_LIMIT} bytes"))
        except AdapterError as error:
            system.fail(error)

    def error(self, what: str) -> AdapterError:
        """An error about this node, with the end of its standard error."""
        text = self._errors.read_bytes()[-STDERR_SHOWN:].decode("utf-8", "replace").strip()
        return AdapterError(f"{self.name} {what}" + (f"; its standard error ends with:\n{text}" if text else ""))

    def write(self, line: bytes) -> None:
        """Write one line to its standard input."""
        stdin = self._process.stdin
        assert stdin is not None
        if self._gone or stdin.is_closing():  # closed by the node; the reader reports why
            return
        if stdin.transport.get_write_buffer_size() > MAX_UNREAD:
            raise self.error("does not read its standard input")
        stdin.write(line)

    async def kill(self) -> None:
        """Send SIGKILL to its process group, and wait."""
        self._gone = True
        with suppress(ProcessLookupError, PermissionError):  # it is gone already, and so is its group
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        self._reader.cancel()
        await asyncio.wait([self._reader])
        if self._process.stdin is not None:
            self._process.stdin.close()


class Failed(Exception):
    """The scenario cannot continue, because the system did not do what it must."""


class NoAnswer(AdapterError):
    """A request was not answered in time."""


class Unsupported(Exception):
    """The system does not claim what the scenario needs."""


@dataclass
class PendingRequest:
    """What a node was asked."""

    node: str
    kind: str
    answer: Body | None = None


class System:
    """One cluster of the system under test."""

    def __init__(
        self,
        command: Sequence[str],
        settings: ConformSettings,
        directory: Path,
        needs: Sequence[str],
        features: tuple[str, ...] | None,
    ) -> None:
        """`directory`: for the nodes' disks and standard errors. `features`: the claims, once they are known."""
        self.command = command
        self.settings = settings
        self.names = [f"n{i}" for i in range(1, settings.nodes + 1)]
        self.features = features
        self.history = NodeHistory()
        self.network = Network(self.history.fault)
        self._proxies = Proxies(self.names, self.network, self.fail) if settings.own_network else None
        self.notes: list[str] = []
        """Remarks about a passed scenario."""
        self._needs = needs
        self._directory = directory
        self._processes: dict[str, NodeProcess] = {}
        self._reports = 0
        self._asked: dict[int, PendingRequest] = {}
        """By `msg_id`: 1, 2, 3, ..."""
        self._changed = asyncio.Event()
        self._failure: AdapterError | None = None

    async def start(self, names: Sequence[str], join: bool = False) -> None:
        """Start these nodes. `join`: the cluster exists already, and they know all of its nodes."""
        self._check_needs()
        known = [n for n in self.names if n in names or n in self.history.lives]
        for name in names:
            errors = self._directory / f"{name}.err"
            self._processes[name] = await NodeProcess.start(name, self.command, errors, self)
            self.history.started(name, again=name in self.history.lives)
        asked = []
        if self._proxies is not None:
            await self._proxies.open()
        for name in names:
            home = self._directory / name
            home.mkdir(exist_ok=True)
            body = {"type": "init", "node_id": name, "node_ids": known, "join": join, "dir": str(home)}
            if self._proxies is not None:
                body["peers"] = self._proxies.peers(name)
            asked.append(self._send(name, body))
        for name, request in zip(names, asked, strict=True):
            answer = await self._answer(request, self.settings.start_s)
            features = features_of(answer, name)
            if self._proxies is not None:
                self._proxies.listens(name, answer.get("address"))
                features = tuple(f for f in features if f not in NOT_OF_STREAMS)
            if self.features not in (None, features):
                raise AdapterError(
                    f"{name} claims {', '.join(features) or 'nothing'}, another node or life "
                    f"{', '.join(self.features or ()) or 'nothing'}"
                )
            self.features = features
        self._check_needs()

    def _check_needs(self) -> None:
        missing = [f for f in self._needs if self.features is not None and f not in self.features]
        if missing:
            or_shown = ", or a proxy cannot show" if self._proxies is not None else ""
            raise Unsupported(f"needs {', '.join(missing)}, which the system does not claim{or_shown}")

    async def kill(self, name: str) -> None:
        """Kill a node (`kill -9`); its disk stays."""
        await self._processes.pop(name).kill()
        self.history.ended(name)

    async def close(self) -> None:
        """Kill all nodes."""
        await asyncio.gather(*(process.kill() for process in self._processes.values()))
        self._processes.clear()
        if self._proxies is not None:
            await self._proxies.close()

    def claims(self, feature: str) -> bool:
        """Whether the system claims a feature."""
        return feature in (self.features or ())

    def order(self) -> str:
        """The strongest claimed order, as named in traces."""
        if self.claims("causal"):
            return "reliable" if self.claims("reliable") else "causal"
        return "fifo" if self.claims("fifo") else "unordered"

    async def publish(self, name: str, value: str) -> Publication:
        """Let a node publish; retries while it is temporarily unavailable."""
        deadline = time.monotonic() + self.settings.timeout_s
        while True:
            event = self.history.asked(name, value)
            try:
                answer = await self._ask(name, {"type": "publish", "value": value})
            except NoAnswer:
                await self.fence([name])  # a node that does not reply to this is hung
                raise Failed(f"{name} did not publish {value} within {self.settings.timeout_s:g} s") from None
            if answer.get("type") != "error":
                id = answer.get("id")
                if isinstance(id, bool) or not isinstance(id, str | int):
                    raise AdapterError(f"{name} answered a publish with {answer!r}: want an id, text or integer")
                event.id = str(id)
                self._changed.set()
                return event
            self.history.refused(event)
            if answer.get("code") != UNAVAILABLE:
                raise AdapterError(f"{name} refused to publish: {answer!r}")
            if time.monotonic() > deadline:
                why = answer.get("text") or "no reason given"
                raise Failed(f"{name} could not publish {value} within {self.settings.timeout_s:g} s: {why}")
            await asyncio.sleep(RETRY_S)

    async def fence(self, names: Sequence[str] | None = None) -> None:
        """Wait until these nodes have processed all earlier messages, and their reports have arrived."""
        for name in names or self.history.alive():
            await self._ask(name, {"type": "echo", "echo": "fence"})

    async def until(self, done: Callable[[], bool], within_s: float | None = None) -> bool:
        """Wait for a condition; False on a timeout."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.settings.timeout_s if within_s is None else within_s):
                while True:
                    if self._failure is not None:
                        raise self._failure
                    if done():
                        return True
                    self._changed.clear()
                    await self._changed.wait()
        return done()

    async def has(self, event: Publication, *names: str) -> None:
        """Wait until these nodes (default: all) have delivered the event; over perfect links they must."""
        for name in names or self.history.alive():
            if not await self.until(lambda name=name: self.history.has(name, event.value)):  # type: ignore[misc]
                raise Failed(
                    f"{name} did not deliver {event.value} of {event.node} within {self.settings.timeout_s:g} s"
                )

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

    def links(self, src: Sequence[str] | None = None, dest: Sequence[str] | None = None) -> list[Link]:
        """The links from `src` to `dest` (default: all nodes)."""
        return [(a, b) for a in src or self.names for b in dest or self.names if a != b]

    def line(self, name: str, line: bytes) -> None:
        """A line of a node's output."""
        envelope = decode(line, name)
        if envelope.dest == CLIENT:
            self._said(name, envelope.body)
        elif envelope.dest in self.names:
            self.network.route((name, envelope.dest), partial(self._hand_over, envelope.dest, line))
        else:
            raise AdapterError(f"{name} sent a message to {envelope.dest!r}, who does not exist: {shown(line)}")
        self._changed.set()

    def _said(self, name: str, body: Body) -> None:
        """A message from a node to the client."""
        if body.get("in_reply_to") is not None:
            self._answered(name, body)
            return
        self._reports += 1
        if self._reports > MAX_SAID:
            raise AdapterError(f"{name} goes on reporting deliveries: more than {MAX_SAID} by now")
        match body.get("type"):
            case "delivered":
                self.history.delivered(name, reported(body, name))
            case "installed":
                events = body.get("events")
                if not isinstance(events, list) or not all(isinstance(e, dict) for e in events):
                    raise AdapterError(f"{name} installed {body!r}: want a list of events")
                if not self.history.installed(name, [reported(e, name) for e in events]):
                    raise AdapterError(f"{name} sent `installed` after it had delivered or published something")
            case other:
                raise AdapterError(f"{name} told the client {other!r}, which is no message of this workload: {body!r}")

    def _answered(self, name: str, body: Body) -> None:
        """An answer. Only a `publish` may be answered by an error."""
        reply, kind = body["in_reply_to"], body.get("type")
        request = self._asked.get(reply) if isinstance(reply, int) else None
        if request is None or request.node != name or request.answer is not None:
            raise AdapterError(f"{name} answered {reply!r}, which it was not asked, or has answered: {body!r}")
        if kind != f"{request.kind}_ok" and (request.kind, kind) != ("publish", "error"):
            raise AdapterError(f"{name} answered {request.kind!r} with {body!r}")
        request.answer = body

    def _hand_over(self, name: str, line: bytes) -> bool:
        process = self._processes.get(name)
        if process is None:
            return False
        process.write(line)
        return True

    def fail(self, error: AdapterError) -> None:
        """A node broke the rules or died: all waiters get the error."""
        self._failure = self._failure or error
        self._changed.set()

    async def _ask(self, name: str, body: Body) -> Body:
        """Send a request and wait for its answer."""
        return await self._answer(self._send(name, body), self.settings.timeout_s)

    def _send(self, name: str, body: Body) -> PendingRequest:
        """Send a request."""
        number = len(self._asked) + 1
        request = self._asked[number] = PendingRequest(name, body["type"])
        self._processes[name].write(msgspec.json.encode(Envelope(CLIENT, name, {**body, "msg_id": number})) + b"\n")
        return request

    async def _answer(self, request: PendingRequest, within_s: float) -> Body:
        """Wait for the answer to a request."""
        await self.until(lambda: request.answer is not None, within_s)
        if request.answer is None:
            what = f"did not answer {request.kind!r} within {within_s:g} s"
            raise NoAnswer(str(self._processes[request.node].error(what)))
        return request.answer
