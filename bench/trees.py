"""Trees beside eager gossip: packets and bytes for each delivery, hops, repair after crashes; and live, at 60 members.

Simulated from 10 to 1,000 members, five of which publish; then 10 % or 50 % of the others crash at once and publishing
goes on. `payload packets` are those with events in them; the others (rounds, announcements, the ring) do not depend on
the load, so they are given for a member and second, too. Live: members in one process, over TCP on loopback.
"""

from __future__ import annotations

import asyncio
import random
import time
from array import array
from contextlib import AsyncExitStack
from typing import Any

import whence
from whence.core import ports
from whence.core.clock import MemberId
from whence.core.config import Config
from whence.core.member import Member
from whence.core.wire import Message, encode
from whence.lab.sim.actions import Crash
from whence.lab.sim.run import play
from whence.lab.sim.scenario import parse
from whence.lab.sim.world import World

Row = dict[str, Any]

SIZES = ((10, 200), (60, 200), (250, 60), (1000, 30))
"""Members, and events published before the crash."""
RATE = 20.0
"""Events a second, simulated."""
START_S, AFTER_S = 8.0, 5.0
"""When publishing begins; for how long it goes on after a crash."""
PUBLISHERS = 5
LIVE_MEMBERS, LIVE_RATE, LIVE_S = 60, 100.0, 10.0
CALM_RATE = 8.0
"""Events a second among live members at which eager gossip, ten packets a delivery, leaves a core half idle: latency is
compared there."""

SCENARIO = """
members = {members}
round = "200ms"
duration = "{duration}s"
settle = "4s"
[network]
latency = "normal"
mean = "5ms"
sd = "1ms"
[cluster]
tickets = {publishers}
coordinators = {publishers}
order = "causal"
recovery = "Rk"
mode = "{mode}"
view = "{view}"
[cluster.workload]
per_second = {rate}
payload = "64B"
start = "{start}s"
"""


class Count:
    """What all members of a run did while events were published and nobody had crashed, and every delivery."""

    def __init__(self, start: float, stop: float) -> None:
        self.start, self.stop = int(start * 1e9), int(stop * 1e9)
        self.payload = self.others = self.payload_bytes = self.other_bytes = 0
        self.hops = array("q")
        self.recovered = 0
        self.born: dict[object, int] = {}
        self.delivered: dict[object, dict[MemberId, int]] = {}
        self._last: tuple[Message | None, int] = (None, 0)

    def make(self, me: MemberId, config: Config, rng: random.Random, checkpoint: bytes | None) -> Member:
        member = Counted(me, config, rng, checkpoint)
        member.count = self
        return member

    def sent(self, message: Message) -> None:
        last, size = self._last
        if message is not last:  # one message goes to many
            size = len(encode(message))
            self._last = (message, size)
        if getattr(message, "items", ()):
            self.payload += 1
            self.payload_bytes += size
        else:
            self.others += 1
            self.other_bytes += size


class Counted(Member):
    """A member that reports what it does."""

    count: Count

    def handle(self, input: ports.Input, now: int) -> list[ports.Output]:
        out = super().handle(input, now)
        count = self.count
        counting = count.start <= now < count.stop
        for o in out:
            if type(o) is ports.Send:
                if counting:
                    count.sent(o.message)
            elif type(o) is ports.Arrived:
                if counting:
                    count.recovered += o.recovered
                    if not o.recovered:
                        count.hops.append(o.age)
            elif type(o) is ports.Published:
                count.born[o.frame.key] = now
            elif type(o) is ports.Deliver:
                count.delivered.setdefault(o.frame.key, {})[self.me] = now
        return out


def simulate(mode: str, members: int, events: int, crashed: float, seed: int = 1) -> Row:
    """One run, and its row."""
    crash_s = START_S + events / RATE + 1.0
    duration = crash_s + AFTER_S if crashed else crash_s
    text = SCENARIO.format(
        members=members,
        duration=duration,
        publishers=PUBLISHERS,
        mode=mode,
        view="partial" if members > 100 else "full",
        rate=RATE,
        start=START_S,
    )
    loaded = parse(text)
    dead = random.Random(seed).sample(range(PUBLISHERS, members), int(crashed * members))
    count = Count(START_S + 1.0, crash_s)
    world = World(loaded, seed, make=count.make)
    world.schedule = (*world.schedule, *(Crash(at=int(crash_s * 1e9), who=f"n{i}") for i in dead))
    violation = play(world)
    if violation is not None:
        raise violation
    alive = {host.id for host in world.hosts.values() if host.up}
    what = f"{mode}, {members} simulated members"
    if crashed:
        return {"what": f"{what}, {crashed:.0%} crash at once", **_repair(count, alive, int(crash_s * 1e9))}
    return {"what": what, **_quiet(count, members)}


def _quiet(count: Count, members: int) -> Row:
    born = {k: t for k, t in count.born.items() if count.start <= t < count.stop}
    deliveries = sum(len(count.delivered[k]) - 1 for k in born)
    late = sorted(t - born[k] for k in born for m, t in count.delivered[k].items() if t > born[k])
    hops = sorted(count.hops)
    seconds = (count.stop - count.start) / 1e9
    return {
        "payload_packets_per_delivery": round(count.payload / deliveries, 3),
        "payload_bytes_per_delivery": round(count.payload_bytes / deliveries),
        "other_packets_per_member_s": round(count.others / members / seconds, 1),
        "other_bytes_per_member_s": round(count.other_bytes / members / seconds),
        "hops_mean": round(sum(hops) / len(hops), 2),
        "hops_p99": hops[len(hops) * 99 // 100],
        "hops_last": hops[-1],
        "p50_ms": round(late[len(late) // 2] / 1e6, 1),
        "p99_ms": round(late[len(late) * 99 // 100] / 1e6, 1),
        "recovered": count.recovered,
    }


def _repair(count: Count, alive: set[MemberId], crash: int) -> Row:
    """From the crash until every event reaches all that live as fast as before it; how long the slowest took; how many
    deliveries were slow."""
    took = {k: [count.delivered.get(k, {}).get(m, 1 << 62) - t for m in sorted(alive)] for k, t in count.born.items()}
    usual = max(max(t) for k, t in took.items() if count.start <= count.born[k] < crash - 10**9)
    after = [k for k, t in count.born.items() if t >= crash]
    slow = [k for k in after if max(took[k]) > 2 * usual]
    pairs = [t for k in after for t in took[k]]
    return {
        "repaired_after_ms": round(max((count.born[k] - crash + max(took[k]) for k in slow), default=0) / 1e6),
        "slowest_ms": round(max(pairs) / 1e6, 1),
        "usual_slowest_ms": round(usual / 1e6, 1),
        "slow_deliveries": round(sum(t > 2 * usual for t in pairs) / len(pairs), 4),
        "lost": sum(t > 1 << 60 for t in pairs),
    }


async def _live(mode: str, members: int, rate: float, seconds: float) -> Row:
    late = array("q")
    settings = {"mode": mode, "members": members}
    async with AsyncExitStack() as stack:
        clusters: list[whence.Cluster] = []
        for i in range(members):
            options: dict[str, Any] = {"insecure": True, "settings": settings, "tickets": 4, "timeout": 60.0}
            contacts = [c.address for c in random.Random(i).sample(clusters, min(2, len(clusters)))]
            entering = whence.join("bench", contacts, **options) if contacts else whence.create("bench", **options)
            clusters.append(await stack.enter_async_context(entering))

        async def read(cluster: whence.Cluster) -> None:
            events = cluster.events()
            while batch := await events.batch():
                now = time.monotonic_ns()
                if counting:
                    late.extend(now - int.from_bytes(e.payload[:8], "big") for e in batch if e.origin != cluster.me)

        counting = False
        readers = [asyncio.create_task(read(c)) for c in clusters]
        publishers = [await stack.enter_async_context(c.publisher(timeout=60.0)) for c in clusters[:4]]
        for publisher in publishers:
            await publisher.ready()

        async def load(for_s: float) -> None:
            began, n = time.monotonic(), 0
            while (now := time.monotonic()) - began < for_s:
                while n < (now - began) * rate:
                    await publishers[n % 4].publish(time.monotonic_ns().to_bytes(8, "big") + bytes(56))
                    n += 1
                await asyncio.sleep(max(0.0, began + n / rate - time.monotonic()))

        await load(3.0)
        counting = True
        before, cpu = [c.stats() for c in clusters], time.process_time()
        await load(seconds)
        await asyncio.sleep(0.5)
        counting = False
        after, cpu = [c.stats() for c in clusters], time.process_time() - cpu

        def grown(name: str) -> int:
            return sum(a[name] - b[name] for a, b in zip(after, before, strict=True))

        figures = sorted(late)
        row = {
            "what": f"{mode}, {members} live members, {rate:g} events/s",
            "packets_per_delivery": round(grown("net.sent") / len(figures), 3),
            "bytes_per_delivery": round(grown("net.sent_bytes") / len(figures)),
            "event_copies_per_delivery": round(grown("cast.events_sent") / len(figures), 3),
            "cpu_us_per_delivery": round(cpu / len(figures) * 1e6),
            "p50_ms": round(figures[len(figures) // 2] / 1e6, 2),
            "p99_ms": round(figures[len(figures) * 99 // 100] / 1e6, 2),
            "deliveries": len(figures),
        }
        for task in readers:
            task.cancel()
        return row


def live(mode: str, members: int = LIVE_MEMBERS, rate: float = LIVE_RATE, seconds: float = LIVE_S) -> Row:
    return asyncio.run(_live(mode, members, rate, seconds))


def main() -> list[Row]:
    rows = [
        simulate(mode, members, events, crashed)
        for members, events in SIZES
        for crashed in (0.0, 0.1, 0.5)
        for mode in ("eager", "tree")
    ]
    loaded, eager, tree = live("tree"), live("eager", rate=CALM_RATE), live("tree", rate=CALM_RATE)
    goals = [
        {
            "what": f"goal: packets a delivery, {LIVE_MEMBERS} live members with trees, {LIVE_RATE:g} events/s",
            "measured": loaded["packets_per_delivery"],
            "goal": "<= 1.5",
            "holds": "yes" if loaded["packets_per_delivery"] <= 1.5 else "NO",
        },
        {
            "what": f"goal: p99 with trees over p99 of eager gossip, live, {CALM_RATE:g} events/s",
            "measured": round(tree["p99_ms"] / eager["p99_ms"], 2),
            "goal": "<= 1",
            "holds": "yes" if tree["p99_ms"] <= eager["p99_ms"] else "NO",
        },
    ]
    return [*rows, loaded, eager, tree, *goals]
