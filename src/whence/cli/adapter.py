"""`whence conform --adapter`: one real member as a node of the conformance kit (docs/conform.md).

What the member sends travels as wire bytes, in base64, in messages of Maelstrom's format. The kit's network loses,
repeats and reorders whatever it likes. A member can stand that for datagrams; its streams have to be FIFO without
duplicates, and may break (`ports.Send`): they are numbered here, and what comes too late is dropped.

    whence      {"from": member, "data": base64}                            a datagram, for whoever is at this node
    whence      {"from": member, "to": member, "seq": n, "data": base64}    on a stream, for this life; boot 0: for any
    hello       {"from": member}                                            a newcomer asks who is there
    hello_ok    {"from": member}
"""

from __future__ import annotations

import base64
import os
import random
import select
import sys
from pathlib import Path
from time import monotonic_ns as now
from typing import Any

import msgspec

from whence.core import ports
from whence.core.clock import MemberId, address_of, member_id, reaches
from whence.core.config import MS, Settings
from whence.core.member import Member
from whence.core.wire import decode, encode
from whence.errors import RemoteError, UsageError
from whence.files import write_whole

HELLO_EVERY_NS = 200 * MS
MAX_WAITING = 1024
"""Publishes that wait for a ticket; more are refused for the moment."""
NOT_SUPPORTED, UNAVAILABLE = 10, 11
"""Maelstrom's error codes."""
TICKETS = 4
NETWORK = Settings(
    members=16,  # the same for all, also for those that do not know of a joiner yet
    loss=0.05,
    mode="eager",
    round_ns=50 * MS,
    latency_ns=10 * MS,
    ring_round_ns=250 * MS,
    delta_ns=80 * MS,
)
FEATURES = {"fifo": ["fifo"], "causal": ["fifo", "causal"], "reliable": ["fifo", "causal", "reliable"]}
ALWAYS = ["datagrams", "loss", "late-join", "restart"]
SAVED = (ports.Published, ports.Deliver, ports.Joined, ports.Ticket, ports.InstallSnapshot, ports.Remember)
"""Outputs that change the checkpoint."""

Body = dict[str, Any]
App = list[tuple[str, str]]
"""The application: (id, value) of all events, in the order of their delivery."""


class _Disk(msgspec.Struct, array_like=True):
    """What survives a crash."""

    boot: int
    checkpoint: bytes | None = None
    app: App = []


class Adapter:
    """Between the kit's lines and a member's inputs and outputs."""

    member: Member  # from `init` on
    file: Path

    def __init__(self, order: str) -> None:
        self.order = order
        self.node = ""
        self.peers: list[str] = []
        self.client = "c1"
        self.disk = _Disk(0)
        self.hello_at: int | None = None
        self.creates = self.coordinating = False
        self.waiting: list[tuple[int, str]] = []  # (msg_id, value)
        self.sent: dict[str, int] = {}
        self.received: dict[MemberId, int] = {}

    # -- lines --------------------------------------------------------------------------------------------------

    def send(self, dest: str, **body: Any) -> None:
        sys.stdout.buffer.write(msgspec.json.encode({"src": self.node, "dest": dest, "body": body}) + b"\n")

    def run(self) -> None:
        """Until standard input ends."""
        rest = b""
        while True:
            sys.stdout.buffer.flush()
            wakes = (self.hello_at, self.member.wake_at if self.node else None)
            due = min((at for at in wakes if at is not None), default=None)
            if select.select([0], [], [], None if due is None else max(0.0, (due - now()) / 1e9))[0]:
                data = os.read(0, 1 << 16)
                if not data:
                    return
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._read(line)
            if self.hello_at is not None and self.hello_at <= now():
                self.hello()
            if self.node and self.member.wake_at is not None and self.member.wake_at <= now():
                self.feed(ports.Wake())

    def _read(self, line: bytes) -> None:
        try:
            message = msgspec.json.decode(line)
            self.line(message["src"], message["body"])
        except (msgspec.DecodeError, KeyError, TypeError) as error:
            raise UsageError(f"standard input: no message of `whence conform`: {line[:80]!r} ({error!r})") from None

    def line(self, src: str, body: Body) -> None:
        match body["type"]:
            case "init":
                self.init(body)
                self.send(src, type="init_ok", in_reply_to=body["msg_id"], features=[*FEATURES[self.order], *ALWAYS])
            case "whence" if self.node:
                self.receive(body)
            case "hello" if self.node and self.member.started:
                self.send(src, type="hello_ok", **{"from": self.member.me})
            case "hello_ok" if self.hello_at is not None:
                self.hello_at = None
                self.start(ports.Start((body["from"],)))
            case "whence" | "hello" | "hello_ok":
                pass  # too early, or too late
            case "echo":
                self.send(src, type="echo_ok", in_reply_to=body["msg_id"], echo=body.get("echo"))
            case "publish":
                self.publish(src, body)
            case other:
                text = f"no such request: {other}"
                self.send(src, type="error", in_reply_to=body.get("msg_id"), code=NOT_SUPPORTED, text=text)

    # -- life ---------------------------------------------------------------------------------------------------

    def init(self, body: Body) -> None:
        self.node = body["node_id"]
        nodes: list[str] = body["node_ids"]
        self.peers = [n for n in nodes if n != self.node]
        self.creates = self.node == nodes[0]
        self.file = Path(body["dir"]) / "member"
        if self.file.exists():
            self.disk = msgspec.msgpack.decode(self.file.read_bytes(), type=_Disk)
        self.disk.boot += 1
        self.save()
        me = member_id(self.node, self.disk.boot)
        config = NETWORK.config(TICKETS, self.order, "conform")  # type: ignore[arg-type]
        self.member = Member(me, config, random.Random(me), self.disk.checkpoint, disk=True)
        if body["join"]:
            self.hello()
        else:
            self.start(ports.Start(tuple(member_id(n, 1) for n in self.peers), genesis=True))

    def start(self, start: ports.Start) -> None:
        self.feed(start)
        if self.creates:  # after a restart it asks the council that it remembers for a ticket instead (rule C0)
            self.coordinating = True
            self.feed(ports.FoundRing())

    def hello(self) -> None:
        """Ask the peers for their member ids: only a peer itself knows its boot."""
        for peer in self.peers:
            self.send(peer, type="hello", **{"from": self.member.me})
        self.hello_at = now() + HELLO_EVERY_NS

    def publish(self, src: str, body: Body) -> None:
        self.client = src
        if len(self.waiting) >= MAX_WAITING:
            text = f"{MAX_WAITING} publishes wait for a ticket"
            self.send(src, type="error", in_reply_to=body["msg_id"], code=UNAVAILABLE, text=text)
            return
        self.waiting.append((body["msg_id"], body["value"]))
        self.feed(ports.Wake() if self.coordinating else ports.Coordinate())
        self.coordinating = True

    # -- the member ---------------------------------------------------------------------------------------------

    def receive(self, body: Body) -> None:
        sender: MemberId = body["from"]
        if "seq" in body:
            if not reaches(body["to"], self.member.me) or body["seq"] <= self.received.get(sender, 0):
                return
            self.received[sender] = body["seq"]
        try:
            input: ports.Input = ports.Received(sender, decode(base64.b64decode(body["data"])))
        except RemoteError as error:
            input = ports.BadBytes(sender, str(error))
        self.feed(input)

    def feed(self, input: ports.Input) -> None:
        """One step of the member, then the publishes that it has made possible."""
        self.carry_out(self.member.handle(input, now()))
        while self.waiting and self.member.may_publish:
            msg_id, value = self.waiting[0]
            outputs = self.member.handle(ports.Publish((value.encode(),)), now())
            published = [o.frame for o in outputs if isinstance(o, ports.Published)]
            if published:
                del self.waiting[0]
            self.carry_out(outputs)
            for frame in published:
                self.send(self.client, type="publish_ok", in_reply_to=msg_id, id=frame.names()[0])

    def carry_out(self, outputs: list[ports.Output]) -> None:
        """In order, but the disk first: after a crash this node must not know less than it told others."""
        said: list[tuple[str, Body]] = []
        states: list[ports.SnapshotTaken] = []
        for out in outputs:
            match out:
                case ports.Send():
                    said.append(self.packed(out))
                case ports.Deliver():
                    frame = out.frame
                    events = [(id, p.decode()) for id, p in zip(frame.names(), frame.payloads(), strict=True)]
                    self.disk.app += events
                    said += [(self.client, {"type": "delivered", "id": id, "value": value}) for id, value in events]
                case ports.InstallSnapshot():
                    self.disk.app = msgspec.json.decode(out.state, type=App)
                    installed = [{"id": id, "value": value} for id, value in self.disk.app]
                    said.append((self.client, {"type": "installed", "events": installed}))
                case ports.TakeSnapshot():
                    states.append(ports.SnapshotTaken(out.token, msgspec.json.encode(self.disk.app)))
        if any(isinstance(out, SAVED) for out in outputs):
            self.disk.checkpoint = self.member.checkpoint() if self.member.joined else None
            self.save()
        for dest, body in said:
            self.send(dest, **body)
        for state in states:
            self.feed(state)

    def packed(self, out: ports.Send) -> tuple[str, Body]:
        address = address_of(out.to)
        data = base64.b64encode(encode(out.message)).decode()
        body: Body = {"type": "whence", "from": self.member.me, "data": data}
        if out.reliable:
            self.sent[address] = self.sent.get(address, 0) + 1
            body |= {"to": out.to, "seq": self.sent[address]}
        return address, body

    def save(self) -> None:
        write_whole(self.file, msgspec.msgpack.encode(self.disk))
