"""A world of four regions, each a cluster. Three players walk around; each joins the regions it enters, leaves the
others, and takes its avatar from one cluster to the next.

    python examples/world.py

A player gets only the events of its regions. An avatar is never in two regions at once. The keeper founds the regions
and stays in all of them, over one port.
"""

import asyncio
import os
from contextlib import AsyncExitStack
from typing import Any

import whence
from whence.live import Live, Objects

REGIONS = ("north-west", "north-east", "south-east", "south-west")
SIDE = 4  # squares of a region
WALKS = {"ann": 0, "bob": 1, "cid": 2}  # player -> the region it starts in; all walk clockwise
VISITS = 3


class Presence:
    """A presence in a region: a member of its cluster, with a replica of its objects."""

    def __init__(self, cluster: whence.Cluster, objects: Objects, live: Live, stack: AsyncExitStack) -> None:
        self.cluster = cluster
        self.objects = objects
        self.live = live
        self._stack = stack

    @classmethod
    async def enter(cls, host: whence.Host, region: str, contacts: list[str]) -> "Presence":
        objects, stack = Objects(), AsyncExitStack()
        try:
            how: dict[str, Any] = {"host": host, "order": "reliable", "timeout": 60}
            how |= {"state": objects.state, "restore": objects.restore}
            entry = whence.join(region, contacts, **how) if contacts else whence.create(region, **how)
            cluster = await stack.enter_async_context(entry)
            return cls(cluster, objects, await stack.enter_async_context(Live(objects, cluster)), stack)
        except BaseException:
            await stack.aclose()
            raise

    async def leave(self) -> None:
        await self._stack.aclose()

    def avatars(self) -> dict[str, tuple[object, object]]:
        """Who is here, and where."""
        here = {name: self.objects.registers(name) for name in self.objects.names("registers")}
        return {name: (avatar["x"], avatar["y"]) for name, avatar in here.items() if "x" in avatar and "y" in avatar}


async def visit(player: str, presence: Presence, steps: int, last: bool) -> int:
    """Walk through the region, and take the avatar along unless this is the last one. Returns its steps so far."""
    avatar, live = presence.objects.registers(player), presence.live
    changes = live.changes(avatar)
    async with presence.cluster.publisher() as publisher:
        for x in range(SIDE):
            steps += 1
            await live.publish(
                publisher, avatar.set("x", x), avatar.set("y", WALKS[player]), avatar.set("steps", steps)
            )
            while avatar.get("steps") != steps:  # it takes effect when it is delivered
                await anext(changes)
        if not last:
            await live.publish(publisher, *(avatar.delete(key) for key in avatar))
            while len(avatar):
                await anext(changes)
    return steps


async def play(player: str, keeper: str, secret: bytes) -> None:
    """One player's walk; a separate process would do the same."""
    way = [REGIONS[(WALKS[player] + number) % len(REGIONS)] for number in range(VISITS)]
    async with whence.Host(secret=secret) as host:
        steps, previous = 0, None
        for region in way:
            presence = await Presence.enter(host, region, [keeper])
            if previous is not None:
                await previous.leave()
            others = sorted(presence.avatars())
            print(f"{player} enters {region}" + (f" and meets {', '.join(others)}" if others else ""))
            steps = await visit(player, presence, steps, region == way[-1])
            previous = presence
        assert previous is not None
        await previous.leave()


def draw(regions: dict[str, Presence]) -> str:
    """The world as its keeper sees it."""
    lines = []
    for left, right in (("north-west", "north-east"), ("south-west", "south-east")):
        for y in range(SIDE):
            rows = []
            for region in (left, right):
                at = {where: name[0].upper() for name, where in regions[region].avatars().items()}
                rows.append(" ".join(at.get((x, y), ".") for x in range(SIDE)))
            lines.append("  |  ".join(rows))
        lines.append("-" * len(lines[0]))
    return "\n".join(lines[:-1])


async def main() -> None:
    secret = os.urandom(32)
    async with whence.Host(secret=secret) as host:
        entered = await asyncio.gather(*(Presence.enter(host, region, []) for region in REGIONS))
        regions = dict(zip(REGIONS, entered, strict=True))
        await asyncio.gather(*(play(player, host.address, secret) for player in WALKS))
        ends = {player: REGIONS[(start + VISITS - 1) % len(REGIONS)] for player, start in WALKS.items()}
        for player, end in ends.items():
            for region, presence in regions.items():
                changes = presence.live.changes()
                while presence.objects.registers(player).get("steps") != (VISITS * SIDE if region == end else None):
                    await anext(changes)
        print(draw(regions))
        for player, end in ends.items():
            homes = [region for region in REGIONS if player in regions[region].avatars()]
            assert homes == [end], f"{player} is in {homes}, not in {end}"
        print(f"{len(ends)} avatars, each in one region, after {VISITS * SIDE} steps each")
        await asyncio.gather(*(presence.leave() for presence in entered))


if __name__ == "__main__":
    whence.run(main())
