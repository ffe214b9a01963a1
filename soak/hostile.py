"""`python -m soak.hostile`: processes of a TLS cluster with roles under attack; order, copies and resources are judged.

Two publishers and a receiver are honest, each in a process of its own; one has a door, one a disk. Beside them:

* **strangers** without a key: idle connections, random bytes, half a handshake;
* **liars** with receivers' certificates: well-formed messages of every kind with invented contents; many
  connections, each with half of a large packet; questions in the names of others;
* **mallory**, a receiver that takes part: asks for everything all the time, hands old frames over, says that others
  have left, and tells of members and events that are not there;
* **eve**, a publisher that takes part: publishes two events under one id, one for each half of the others;
* a **client** of the door that asks for what makes no sense, in the names of others too;
* **misfortune**: the process with a disk is killed (SIGKILL) and comes back, links work in one direction only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import msgspec

import whence
from soak.verdict import verdict
from soak.victim import DOOR_KEY, VictimTask
from whence.core.cast.messages import Gossip, Subscribe
from whence.core.clock import Digest, Frame, Send, address_of
from whence.core.order.messages import HANDED_OVER, AckRecover, Recover, SnapshotRequest
from whence.core.wire import Message, encode, frame_stream, header
from whence.errors import FleetError, WhenceError
from whence.lab.sim.lies import Liar
from whence.live.bridge.door import Client, ClientAccepted, ClientGreeting, ClientRefused, Line, Request
from whence.live.fleet.fleet import Fleet, Look
from whence.live.fleet.task import MemberSpec
from whence.live.net import keys, tls
from whence.live.net.hello import Ask, Greeting, direct, encode_hello
from whence.live.net.transport import parse_address

MAX_MB = 256
"""Memory of an honest process: 64 strangers at 0.6 MB for a TLS handshake under way, and four times what is idle."""
MAX_DESCRIPTORS = 400
MAX_TASKS = 400
MAX_DELAY_S = 20.0
"""From a publish until there are two copies. Far above any on a free machine, below a ring founded again."""
KILL_EVERY_S = 7.0
CUT_S = 1.0


class Attack:
    """What is done to the members at these addresses."""

    def __init__(self, home: Path, seed: int, fleet: Fleet, door: str) -> None:
        self.home = home
        self.rng = random.Random(seed)
        self.fleet = fleet
        self.door = door
        names = [n for m in self.victims for n in (m, f"{address_of(m)}#1", f"{address_of(m)}#{(1 << 64) - 1}")]
        self.liar = Liar(self.rng, [*names, "x:1#1"])
        self.sent = self.certificates = 0
        self.old: dict[Any, Frame] = {}

    @property
    def victims(self) -> list[str]:
        return [me for one in self.fleet.all for me in one.me]

    async def greet(self, name: str, address: str, to: str, urgent: bool) -> asyncio.StreamWriter:
        mine = keys.load(self.home / name)
        _, client = tls.contexts(mine.ca, mine.certificate, mine.key)
        _, writer = await asyncio.open_connection(*parse_address(to), ssl=client)
        writer.write(frame_stream(encode_hello(Greeting(address, urgent))))
        return writer

    async def liar_s(self) -> tuple[str, str]:
        """The name and the address of one more certificate."""
        self.certificates += 1
        name = f"liar{self.certificates}"
        await asyncio.to_thread(keys.issue, self.home, name, "receiver")
        return name, f"127.0.0.1:{self.rng.randrange(20_000, 60_000)}"

    async def lie(self) -> None:
        """One certificate, until everybody has cut it off or it has said enough."""
        name, address = await self.liar_s()
        for member in self.victims:
            urgent = self.rng.random() < 0.5
            try:
                writer = await self.greet(name, address, address_of(member), urgent)
                for _ in range(50):
                    packet = header("live", f"{address}#{self.rng.choice((1, 7))}") + self.liar.message()
                    writer.write(frame_stream(direct(member, packet) if urgent else packet))
                    self.sent += 1
                await writer.drain()
                await asyncio.sleep(0.01)
                writer.close()
            except OSError:
                pass  # cut off: that is the point

    async def hoard(self) -> None:
        """One certificate with many connections, each with most of a large packet or with questions for others."""
        name, address = await self.liar_s()
        writers: list[asyncio.StreamWriter] = []
        for number in range(12):
            member = self.rng.choice(self.victims)
            try:
                writers.append(writer := await self.greet(name, address, address_of(member), number % 2 == 0))
                for n in range(20):
                    writer.write(frame_stream(encode_hello(Ask("live", f"127.0.0.9:{20_000 + n}", n))))
                writer.write((3 << 20).to_bytes(4, "big") + bytes(2 << 20))
                self.sent += 1
            except OSError:
                pass
        await asyncio.sleep(0.3)
        for writer in writers:
            writer.transport.abort()

    def say(self, member: whence.Cluster, to: str, message: Message, reliable: bool = True) -> None:
        """What no member says by itself."""
        packet = header("live", member.me) + encode(message)
        member._host.ship([address_of(to)], direct(to, packet) if reliable else packet, reliable)
        member._node._wanted()
        self.sent += 1

    async def mallory(self, member: whence.Cluster) -> None:
        ordering, rng = member._node.member.ordering, self.rng
        self.old |= {frame.key: frame for frame in list(ordering.buffer)[:200] if len(self.old) < 2000}
        frames, T = list(self.old.values()), tuple(ordering.T)
        ghosts = tuple((f"127.0.0.9:{rng.randrange(1000, 60_000)}#1", 0) for _ in range(400))
        gone = tuple((m, 0) for m in self.victims)
        ahead = Digest(tuple((inc, seq + 1000 * (inc > 0)) for inc, seq in T))
        spans = tuple((t, inc, 1 + i, 4096) for t, (inc, _) in enumerate(T) if inc for i in range(20))
        for victim in self.victims:
            for number in range(1, 30):
                asks = (Recover(number, spans), SnapshotRequest(number, 0, True), Subscribe(4096))
                self.say(member, victim, rng.choice(asks))
            for start in range(0, len(frames), 200):
                some = tuple(frames[start : start + 200])
                self.say(member, victim, AckRecover(HANDED_OVER, some))
                self.say(member, victim, Gossip(some, (1,) * len(some)), False)
            self.say(member, victim, Gossip(digest=ahead, members=ghosts, unsubs=gone), False)
        await asyncio.sleep(0.1)

    async def eve(self, publisher: whence.Publisher) -> None:
        await publisher.publish(b"to whom?")
        await asyncio.sleep(0.1)

    def two_faced(self, member: whence.Cluster) -> None:
        """From now on half of the others get another event under the id of each that it publishes."""
        inside = member._node.member
        honest, seal = inside.handle, inside.seal
        assert seal is not None

        def other(item: Any) -> Any:
            if not isinstance(item, Frame) or item.owner != member.me:
                return item
            made = msgspec.structs.replace(item, body=item.body.replace(b"whom", b"you!"))
            return msgspec.structs.replace(made, signature=seal.sign(made.unsigned()))

        def handle(input: Any, now: int) -> list[Any]:
            out = honest(input, now)
            for at, step in enumerate(out):
                if isinstance(step, Send) and isinstance(step.message, Gossip) and step.to in self.victims[::2]:
                    lie = msgspec.structs.replace(step.message, items=tuple(map(other, step.message.items)))
                    self.sent += lie != step.message
                    out[at] = Send(step.to, lie, step.reliable)
            return out

        inside.handle = handle  # type: ignore[method-assign]

    async def misfortune(self) -> None:
        await asyncio.sleep(KILL_EVERY_S * self.rng.uniform(0.5, 1.0))
        one = self.fleet.all[1]
        await one.kill()
        await self.fleet.restart(one)
        deaf = self.rng.choice(self.fleet.all)  # what it sends is lost; what others send it is not
        others = [a for other in self.fleet.all if other is not deaf for a in other.addresses]
        await deaf.ask("cut", islands=[deaf.addresses, others])
        await asyncio.sleep(CUT_S)
        await deaf.ask("heal")

    async def knock(self) -> None:
        """A stranger: idle connections, random bytes, half a handshake."""
        open_: list[asyncio.StreamWriter] = []
        for address in (*map(address_of, self.victims), self.door):
            for _ in range(20):
                try:
                    _, writer = await asyncio.open_connection(*parse_address(address))
                except OSError:
                    continue
                open_.append(writer)
                if self.rng.random() < 0.6:
                    begin = self.rng.choice((b"", b"\x16\x03\x01\x02\x00\x01", b"\x00\x10\x00\x00"))
                    writer.write(begin + self.rng.randbytes(self.rng.randrange(200)))
                self.sent += 1
        await asyncio.sleep(0.3)
        for writer in open_:
            writer.transport.abort()

    async def pester(self) -> None:
        """A client of the door: words that are no requests, of other clusters, far ahead, or under another's name."""
        rng = self.rng
        guard = tls.Protection.of(DOOR_KEY, None, False).guard
        for _ in range(5):
            try:
                reader, writer = await asyncio.open_connection(*parse_address(self.door))
            except OSError:
                continue
            try:
                line = Line(reader, writer, guard)
                await line.say(ClientGreeting())
                number = rng.choice((1, 2, 7, 1 << 40, (1 << 62) - 1))
                name = rng.choice(("liar", "x" * 64, "other", "\0", "\x01whence:"))
                payload = rng.choice((b"", b"\x01whence:[1]", rng.randbytes(1000)))
                asked = Request(rng.choice(("live", "other")), name, number, payload, rng.random() < 0.5, False)
                await line.say(
                    rng.choice((asked, ClientAccepted(number), ClientRefused(number, "no"), ClientGreeting()))
                )
                self.sent += 1
                async with asyncio.timeout(0.05):
                    await line.hear()
            except (OSError, TimeoutError, WhenceError):
                pass  # refused, not answered, or cut off: that is the point
            finally:
                writer.close()

    async def go_on(self, what: Callable[[], Any]) -> None:
        while True:
            await what()
            await asyncio.sleep(0.02)


async def soak(home: Path, seconds: float, seed: int = 1, max_delay: float = MAX_DELAY_S) -> dict[str, Any]:
    """Returns what was measured; `ok` says whether it is within the bounds."""
    held = home / "keys"
    keys.init(held)
    roles = {"a": "publisher", "b": "publisher", "r": "receiver", "mallory": "receiver", "eve": "publisher"}
    for name, role in roles.items():
        keys.issue(held, name, role)
    async with AsyncExitStack() as stack:
        fleet = await stack.enter_async_context(Fleet(home, traced=home / "trace"))
        for name in ("a", "b", "r"):
            disk = str(home / "disk") if name == "b" else None
            rate = 20.0 if roles[name] == "publisher" else 0.0
            spec = MemberSpec(order="reliable", directory=disk, seen=str(home / f"seen-{name}"), rate=rate)
            task = VictimTask(cluster="live", members=[spec], keys=str(held / name), door=name == "a", seed=seed)
            fleet.member(task, "soak.victim")
        await fleet.start()
        door = await fleet.all[0].ask("door")
        contacts, insiders = fleet.all[0].addresses, []
        for name in ("mallory", "eve"):
            entry = whence.join("live", contacts, tls=held / name, order="reliable", trace=str(home / "trace"))
            insiders.append(await stack.enter_async_context(entry))
        client = await stack.enter_async_context(Client("live", [door], secret=DOOR_KEY))
        publisher = await stack.enter_async_context(insiders[1].publisher())
        attack = Attack(held, seed, fleet, door)
        attack.two_faced(insiders[1])
        before = await fleet.looks()
        jobs: list[Callable[[], Any]] = [attack.lie, attack.hoard, attack.knock, attack.pester, attack.misfortune]
        jobs += [lambda: attack.mallory(insiders[0]), lambda: attack.eve(publisher)]
        work = [asyncio.create_task(attack.go_on(job)) for job in jobs]
        work += [asyncio.create_task(_drain(one)) for one in insiders]
        worst: dict[str, float] = {}
        over, clients = time.monotonic() + seconds, 0
        while time.monotonic() < over:
            await client.publish(b"through the door")
            clients += 1
            for one in fleet.all:
                with suppress(FleetError):  # it is killed just now, or starts
                    _worst(worst, await one.ask("look", deep=True, timeout=5.0) if one.alive else [])
            await asyncio.sleep(0.2)
        failed = [repr(job.exception()) for job in work if job.done()]
        for job in work:
            job.cancel()
        await asyncio.gather(*work, return_exceptions=True)
        await fleet.heal()
        await fleet.ask("hush")
        still, looks = await fleet.quiet(limit=max(60.0, max_delay))
        _worst(worst, looks)
        await fleet.kill()
        found = await asyncio.to_thread(verdict, fleet)
    honest = {address for one in fleet.all for address in one.addresses}
    result: dict[str, Any] = {
        **found,
        **worst,
        "mb_before": max(look["mb"] for look in before),
        "through_the_door": clients,
        "kills": fleet.all[1].starts - 1,
        "attacks": attack.sent,
        "certificates": attack.certificates,
        "cut_off": sum(len(look["cut"]) for look in looks),
        "honest_cut_off": sum(address_of(peer) in honest for look in looks for peer in look["cut"]),
        "too_few": [text for look in looks for text in look["too_few"]],
        "tracebacks": [text for look in looks for text in look["tracebacks"]],
        "failed": failed + [look["failure"] for look in looks if look["failure"]],
        "quiet_at_the_end": still,
    }
    bounds = {"mb": MAX_MB, "slowest_s": max_delay, "tasks": MAX_TASKS, "descriptors": MAX_DESCRIPTORS}
    result["beyond"] = [name for name, most in bounds.items() if result[name] > most]
    harm = ("beyond", "honest_cut_off", "tracebacks", "failed")
    result["ok"] = found["ok"] and still and not any(result[name] for name in harm)
    return result


async def _drain(member: whence.Cluster) -> None:
    async for _ in member.events():
        pass


def _worst(worst: dict[str, float], looks: list[Look]) -> None:
    for look in looks:
        for name in ("mb", "slowest_s", "lag_s", "tasks", "descriptors", "copied"):
            worst[name] = max(worst.get(name, 0), look[name])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        result = asyncio.run(soak(Path(home), args.seconds, args.seed))
    print(json.dumps(result, indent=2))
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
